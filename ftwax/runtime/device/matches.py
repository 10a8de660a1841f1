"""Plays compiled games between members and opponents, without learning.

Used by evaluations during a run and by tournaments after it.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import dm_env
import jax
import jax.numpy as jnp
import numpy as np

from ftwax import compilation, internal_rewards, types
from ftwax.environments import absences, functional
from ftwax.population import players, seating, tournament
from ftwax.runtime import evaluation, sharding
from ftwax.runtime.device import compiled_arena

# Number of steps of each game per call of the compiled function.
_STEPS_PER_CALL = 20


class _State(NamedTuple):
  """State of running games.

  Attributes:
    arena: state of the games.
    timestep: last timesteps of members, leaves [N, M, ...].
    actor: states of the actors, leaves [N, M, ...].
    returns: float32 [G, P, num_events], of the current game so far.
    lengths: int32 [G], of the current game so far.
  """

  arena: compiled_arena.ArenaState
  timestep: dm_env.TimeStep
  actor: types.ActorState
  returns: types.Array
  lengths: types.Array


class _Step(NamedTuple):
  """Results after each step.

  Attributes:
    ended: bool [T, G], whether a game ended with this step.
    outcome: float32 [T, G, num_teams], valid where a game ended.
    returns: float32 [T, G, P, num_events], of the current game so far.
    lengths: int32 [T, G], of the current game so far.
    metrics: float32 [T, G] by name, valid where a game ended; () for none.
  """

  ended: types.Array
  outcome: types.Array
  returns: types.Array
  lengths: types.Array
  metrics: Any


class Matches:
  """Plays games in an arena; compiles once."""

  def __init__(
    self,
    arena: compiled_arena.Arena,
    actor: types.ActorCore,
    mesh: jax.sharding.Mesh,
    name: str = 'game',
    max_steps: int | None = None,
  ):
    """Prepares the compiled functions.

    Args:
      arena: holds the seats of members and opponents.
      actor: selects actions for one member.
      mesh: the devices that hold the members' variables. On CPUs the first
        plays: each would play all games and select its share of the actions,
        with the same cores.
      name: name of the games in messages.
      max_steps: see `evaluation.is_complete`.
    """
    self._max_steps = max_steps
    self._name = name
    self._arena = arena
    self._actor = actor
    # Both functions declare their output sharding; otherwise the second call of
    # `_play` would see other input shardings and recompile.
    first = mesh.devices.flat[0]
    if first.platform == 'cpu':
      mesh = sharding.make_mesh([first])
    self._whole = whole = sharding.replicated(mesh)
    self._start: Callable[..., Any] = compilation.jit_unoptimized(
      self._start_games, out_shardings=whole
    )
    self._play: Callable[..., Any] = compilation.jit(
      self._play_steps, donate_argnums=1, out_shardings=whole
    )

  def compile(
    self,
    variables: types.ActorVariables,
    seats: types.NumpyArray,
    parameters: Any = (),
  ) -> None:
    """Compiles ahead of time for what `play` will get, on the same devices."""
    start: Any = self._start
    play: Any = self._play
    variables = self._place(variables)
    arguments = jax.random.PRNGKey(0), jnp.asarray(seats), parameters
    self._start = start.lower(*arguments).compile()
    self._play = play.lower(variables, self._start(*arguments)).compile()

  def play(
    self,
    key: types.Key,
    variables: types.ActorVariables,
    seats: types.NumpyArray,
    games_per_place: int = 1,
    parameters: Any = (),
  ) -> list[evaluation.GameResult]:
    """Plays until enough games have ended at each index.

    Args:
      key: random key for games and actions.
      variables: the members' variables, leaves [N, ...].
      seats: int32 [G, P], the player on each seat; see `Arena.reset`.
      games_per_place: minimum number of games at each of the `G` indices.
      parameters: float32 [] by name, of games in place of their defaults; see
        `curricula`.

    Returns:
      The results of all games that ended, in the order in which they ended,
      then those of games that never end.
    """
    variables = self._place(variables)
    state = self._start(key, jnp.asarray(seats), parameters)
    results: list[evaluation.GameResult] = []
    num_ended: types.NumpyArray = np.zeros(len(seats), np.int64)
    lengths: types.NumpyArray = num_ended
    while not evaluation.is_complete(
      num_ended, games_per_place, lengths, self._name, self._max_steps
    ):
      state, steps = self._play(variables, state)
      steps = jax.device_get(steps)
      num_ended = num_ended + steps.ended.sum(axis=0)
      lengths = np.where(steps.ended[-1], 0, steps.lengths[-1])
      for row in range(len(steps.ended)):
        ended, *played, metrics = jax.tree.map(
          lambda leaf, row=row: leaf[row], steps
        )
        for result in evaluation.results_at(ended, seats, *played):
          own = {name: float(metrics[name][result.place]) for name in metrics}
          results.append(result._replace(metrics=own))
    return results + evaluation.endless_results(
      seats,
      max(self._arena.seating.teams) + 1,
      steps.returns[-1],
      lengths,
      self._max_steps,
    )

  def _place(self, variables: types.ActorVariables) -> types.ActorVariables:
    """Returns variables where games are played."""
    if self._whole.mesh.size > 1:
      return variables  # Each device has its share of members.
    placed: types.ActorVariables = jax.device_put(variables, self._whole)
    return placed

  def _start_games(
    self, key: types.Key, seats: types.Array, parameters: Any
  ) -> _State:
    arena, places = self._arena, self._arena.seating
    games_key, actor_key = jax.random.split(key)
    arena_state, timestep = arena.reset(games_key, seats, parameters)
    init = functools.partial(
      self._actor.init, batch_size=places.seats_per_member
    )
    keys = jax.random.split(actor_key, places.num_members)
    num_events = internal_rewards.num_events(arena.games.spec.rewards)
    return _State(
      arena=arena_state,
      timestep=timestep,
      actor=jax.vmap(init)(keys),
      returns=jnp.zeros((*places.opponents.shape, num_events)),
      lengths=jnp.zeros((places.num_games,), jnp.int32),
    )

  def _play_steps(
    self, variables: types.ActorVariables, state: _State
  ) -> tuple[_State, _Step]:
    arena = self._arena
    select_action = sharding.over_members(
      self._actor.select_action, arena.seating.num_members
    )

    def step(state: _State, _: None) -> tuple[_State, _Step]:
      action, actor = select_action(variables, state.timestep, state.actor)
      arena_state, timestep = arena.step_games(state.arena, action)
      ended, outcome, metrics = arena.results(arena_state, timestep)
      done = _Step(
        ended=ended,
        outcome=outcome,
        returns=state.returns + timestep.reward.reshape(state.returns.shape),
        lengths=state.lengths + absences.has_moved(timestep.step_type),
        metrics=metrics,
      )
      state = _State(
        arena=arena_state,
        timestep=arena.to_members(arena_state, timestep),
        actor=actor,
        returns=jnp.where(ended[:, None, None], 0.0, done.returns),
        lengths=jnp.where(ended, 0, done.lengths),
      )
      return state, done

    return jax.lax.scan(step, state, length=_STEPS_PER_CALL)


def play(
  key: types.Key,
  game: functional.FunctionalGame,
  actor: types.ActorCore,
  variables: types.ActorVariables,
  opponents: Mapping[str, players.Player],
  seats: types.NumpyArray,
  places: types.NumpyArray | None = None,
) -> list[evaluation.GameResult]:
  """Plays one game for each row of `seats`.

  Args:
    key: random key for games and actions.
    game: a single game.
    actor: selects actions for one member.
    variables: the members' variables, leaves [N, ...].
    opponents: players that do not learn, by name.
    seats: int32 [K, P], the player on each seat: members are 0 to N - 1,
      opponents start at N. A team may mix players.
    places: int32 [G, P], an evaluation's, whose compiled functions play.

  Returns:
    One result for each row, in the order of the rows.

  Raises:
    ValueError: if members have different numbers of seats, or a game too many.
  """
  leaf = jax.tree.leaves(variables)[0]
  mesh = getattr(getattr(leaf, 'sharding', None), 'mesh', None)
  places = seats if places is None else places
  arena = compiled_arena.make_arena(
    game,
    seating.from_seats(places, len(leaf), game.teams),
    list(opponents.values()),
  )
  matches = Matches(arena, actor, mesh or sharding.make_mesh(None))
  played: dict[int, evaluation.GameResult] = {}
  for rows, batch in seating.fill(seats, places):
    key, batch_key = jax.random.split(key)
    for result in matches.play(batch_key, variables, batch):
      # The first game at each place. Counting later ones, too, would favour
      # short games.
      if result.place < len(rows):
        row = int(rows[result.place])
        played.setdefault(row, result._replace(place=row))
  return [played[row] for row in range(len(seats))]


def round_robin(
  key: types.Key,
  game: functional.FunctionalGame,
  actor: types.ActorCore,
  variables: types.ActorVariables,
  opponents: Mapping[str, players.Player],
  games_per_pair: int,
  places: types.NumpyArray | None = None,
) -> list[evaluation.GameResult]:
  """Plays all pairs of members and opponents against each other.

  Each team consists of copies of one player. `evaluation.summarize` computes
  win rates and ratings from the results.

  Args:
    key: random key for games and actions.
    game: a game of two teams or more.
    actor: selects actions for one member.
    variables: the members' variables, leaves [N, ...].
    opponents: players that do not learn, by name.
    games_per_pair: number of games of each pair, such that each player plays
      all sides equally often; see `population.tournament.round_robin`.
    places: see `play`.

  Returns:
    One result for each game; see `play`.
  """
  num_players = len(jax.tree.leaves(variables)[0]) + len(opponents)
  seats = tournament.round_robin(num_players, games_per_pair, game.teams)
  return play(key, game, actor, variables, opponents, seats, places)
