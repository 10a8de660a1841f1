"""Games of members and opponents without learning, compiled.

Evaluations play them during a run, tournaments after it.
"""

import functools
from collections.abc import Mapping
from typing import NamedTuple

import dm_env
import jax
import jax.numpy as jnp
import numpy as np

from ftwax import internal_rewards, types
from ftwax.environments import functional
from ftwax.population import players, seating, tournament
from ftwax.runtime import evaluation, sharding
from ftwax.runtime.device import compiled_arena, member_axis

# Steps of all games in one call of the compiled function.
_STEPS_PER_CALL = 20


class _State(NamedTuple):
  """Games under way; returns [G, P, num_events] and lengths [G] so far."""

  arena: compiled_arena.ArenaState
  timestep: dm_env.TimeStep
  actor: types.ActorState
  returns: types.Array
  lengths: types.Array


class _Step(NamedTuple):
  """Games after each step, leaves [T, G, ...].

  Returns [T, G, P, num_events] and lengths are those of the game so far. The
  outcome [T, G, num_teams] is valid where a game has ended.
  """

  ended: types.Array
  outcome: types.Array
  returns: types.Array
  lengths: types.Array


class Matches:
  """Plays games in an arena; compiled once."""

  def __init__(
    self,
    arena: compiled_arena.Arena,
    actor: types.ActorCore,
    mesh: jax.sharding.Mesh,
  ):
    """Prepares games.

    Args:
      arena: has the seats of members and opponents.
      actor: acts for each member.
      mesh: the devices on which the variables of members are.
    """
    self._arena = arena
    self._actor = actor
    # Said of both, or the second call would compile again.
    whole = sharding.replicated(mesh)
    self._start = jax.jit(self._start_games, out_shardings=whole)
    self._play = jax.jit(
      self._play_steps, donate_argnums=1, out_shardings=whole
    )

  def play(
    self,
    key: types.Key,
    variables: types.ActorVariables,
    seats: types.NumpyArray,
    games_per_place: int = 1,
  ) -> list[evaluation.GameResult]:
    """Plays until enough games have ended on each place.

    Args:
      key: for games and actions.
      variables: of members, leaves [N, ...].
      seats: int32 [G, P], the player on each seat; see `Arena.reset`.
      games_per_place: games on each place, at the least.

    Returns:
      All games that ended, in the order in which they did.
    """
    state = self._start(key, jnp.asarray(seats))
    results: list[evaluation.GameResult] = []
    num_ended = np.zeros(len(seats), np.int64)
    while (num_ended < games_per_place).any():
      state, steps = self._play(variables, state)
      steps = jax.device_get(steps)
      num_ended += steps.ended.sum(axis=0)
      for step, place in np.argwhere(steps.ended):
        results.append(
          evaluation.GameResult(
            int(place),
            seats[place],
            steps.outcome[step, place],
            steps.returns[step, place],
            int(steps.lengths[step, place]),
          )
        )
    return results

  def _start_games(self, key: types.Key, seats: types.Array) -> _State:
    arena, places = self._arena, self._arena.seating
    games_key, actor_key = jax.random.split(key)
    arena_state, timestep = arena.reset(games_key, seats)
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
    select_action = member_axis.over_members(
      self._actor.select_action, arena.seating.num_members
    )

    def step(state: _State, _: None) -> tuple[_State, _Step]:
      action, actor = select_action(variables, state.timestep, state.actor)
      arena_state, timestep = arena.step_games(state.arena, action)
      step_type = timestep.step_type[:, 0]
      ended = step_type == types.LAST
      done = _Step(
        ended=ended,
        outcome=arena.games.outcome(arena_state.games),
        returns=state.returns + timestep.reward.reshape(state.returns.shape),
        lengths=state.lengths + (step_type != types.FIRST),
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
) -> list[evaluation.GameResult]:
  """Plays a game on each place.

  Args:
    key: for games and actions.
    game: a single game.
    actor: acts for each member.
    variables: of the members, leaves [N, ...].
    opponents: players that do not learn, by name.
    seats: int32 [G, P], the player on each seat: members from zero, opponents
      from N on. Teams may be mixed.

  Raises:
    ValueError: if members do not have the same number of seats.
  """
  num_members = len(jax.tree.leaves(variables)[0])
  arena = compiled_arena.make_arena(
    game,
    seating.from_seats(seats, num_members, game.teams),
    list(opponents.values()),
  )
  made = Matches(arena, actor, sharding.make_mesh(None))
  results = made.play(key, jax.device_get(variables), seats)
  places = [result.place for result in results]
  first = np.unique(places, return_index=True)[1]
  return [results[index] for index in first]


def round_robin(
  key: types.Key,
  game: functional.FunctionalGame,
  actor: types.ActorCore,
  variables: types.ActorVariables,
  opponents: Mapping[str, players.Player],
  games_per_pair: int,
) -> list[evaluation.GameResult]:
  """Plays every pair of members and opponents against each other.

  A team is copies of one player. See `play` for the arguments, and
  `evaluation.summarize` for win rates and ratings.

  Args:
    key: for games and actions.
    game: of two teams of one size.
    actor: acts for each member.
    variables: of the members, leaves [N, ...].
    opponents: players that do not learn, by name.
    games_per_pair: games of each pair; even, so that each has either side.
  """
  num_players = len(jax.tree.leaves(variables)[0]) + len(opponents)
  teams = tournament.round_robin(
    num_players, games_per_pair, len(game.teams) // 2
  )
  seats = np.empty((len(teams), len(game.teams)), np.int32)
  seats[:, np.argsort(game.teams, kind='stable')] = teams.reshape(
    len(teams), -1
  )
  return play(key, game, actor, variables, opponents, seats)
