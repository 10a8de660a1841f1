"""Games between members of a population and other players, without learning.

All games of a tournament are played side by side in one compiled function. A
team is copies of one player: a member, or a script, which sees the state of the
game. So ratings have an anchor outside the population.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ftwax import distributions, types
from ftwax.environments import functional
from ftwax.population import tournament as tournament_lib
from ftwax.runtime.device import arena as arena_lib

# `(key, state of the game, player) -> action` of one player.
Script = Callable[[types.Key, Any, types.Array], types.ArrayTree]


class Results(NamedTuple):
  """Results of games.

  Attributes:
    teams: int32 [G, 2, team_size], the player on each seat; members first, then
      scripts, in their order.
    outcomes: float32 [G], 1, 0.5 or 0 for the first team.
    events: float32 [G, P, num_events], their sums over the game.
  """

  teams: np.ndarray
  outcomes: np.ndarray
  events: np.ndarray


def make_random_script(game: functional.FunctionalGame) -> Script:
  """Returns a player that draws its actions uniformly."""
  num_actions = distributions.num_actions(game.spec.actions)

  def script(key, state, player):
    del state, player
    logits = jax.tree.map(lambda n: jnp.zeros((1, n)), num_actions)
    return jax.tree.map(lambda x: x[0], distributions.sample(key, logits))

  return script


def play(
  key: types.Key,
  game: functional.FunctionalGame,
  actor: types.ActorCore,
  variables: types.ActorVariables,
  scripts: Mapping[str, Script],
  teams: np.ndarray,
  num_steps: int,
) -> Results:
  """Plays one game on each place.

  Args:
    key: for games and actions.
    game: one game of two teams of equal size.
    actor: acts for each member.
    variables: of the members, leaves [N, ...].
    scripts: other players, by name.
    teams: int32 [G, 2, team_size], who plays; each player equally often.
    num_steps: of the longest game.

  Returns:
    The results, of games that ended.

  Raises:
    ValueError: if players do not play equally often, or a game did not end.
  """
  num_members = len(jax.tree.leaves(variables)[0])
  num_players = num_members + len(scripts)
  counts = np.bincount(teams.reshape(-1), minlength=num_players)
  if len(set(counts)) != 1:
    raise ValueError(
      f'teams must seat each of the {num_players} players equally often, not'
      f' {counts.tolist()} times; choose population.tournament.round_robin.'
    )
  arena = arena_lib.Arena(
    functional.vectorize(game, len(teams)), len(teams), num_players
  )
  outcome, is_played, events = jax.jit(
    functools.partial(
      _play, arena, actor, tuple(scripts.values()), num_members, num_steps
    )
  )(key, variables, jnp.asarray(_seats(game, teams)))
  if not np.all(is_played):
    raise ValueError(
      f'num_steps ({num_steps}) must be those of the longest game, and'
      f' {int(np.sum(~is_played))} of {len(teams)} did not end; choose more.'
    )
  return Results(
    teams, 0.5 * (1.0 + np.asarray(outcome[:, 0])), np.asarray(events)
  )


def round_robin(
  key: types.Key,
  game: functional.FunctionalGame,
  actor: types.ActorCore,
  variables: types.ActorVariables,
  scripts: Mapping[str, Script],
  games_per_pair: int,
  num_steps: int,
) -> Results:
  """Plays every pair of players against each other; see `play`."""
  num_members = len(jax.tree.leaves(variables)[0])
  teams = tournament_lib.round_robin(
    num_members + len(scripts), games_per_pair, len(game.teams) // 2
  )
  return play(key, game, actor, variables, scripts, teams, num_steps)


def _seats(game: functional.FunctionalGame, teams: np.ndarray) -> np.ndarray:
  """Returns the player on each seat, int32 [G, P], of teams [G, 2, k]."""
  seats = np.empty((len(teams), len(game.teams)), np.int32)
  seats[:, np.argsort(game.teams, kind='stable')] = teams.reshape(
    len(teams), -1
  )
  return seats


def _play(arena, actor, scripts, num_members, num_steps, key, variables, seats):
  """Returns outcomes [G, 2], whether games ended [G], events [G, P, E]."""
  reset_key, actor_key, key = jax.random.split(key, 3)
  arena_state, timestep = arena.reset(reset_key, seats)
  rows = timestep.step_type.shape[1]
  actor_state = jax.vmap(functools.partial(actor.init, batch_size=rows))(
    jax.random.split(actor_key, num_members)
  )

  def step(carry, key):
    arena_state, timestep, actor_state, events = carry
    actions, actor_state = jax.vmap(actor.select_action)(
      variables,
      jax.tree.map(lambda x: x[:num_members], timestep),
      actor_state,
    )
    scripted = [
      _act(arena, arena_state, script, num_members + index, key)
      for index, script in enumerate(scripts)
    ]
    actions = jax.tree.map(lambda *x: jnp.concatenate(x), actions, *scripted)
    is_on = ~arena_state.is_played
    arena_state, timestep = arena.step(arena_state, actions)
    seen = arena.to_seats(arena_state, timestep.reward)
    seen = seen.reshape(*seen.shape[:2], -1)  # [G, P, num_events]
    events += jnp.where(is_on[:, None, None], seen, 0.0)
    return (arena_state, timestep, actor_state, events), None

  num_events = int(np.prod(timestep.reward.shape[2:]))
  shape = (arena.num_games, arena.num_players, num_events)
  (arena_state, _, _, events), _ = jax.lax.scan(
    step,
    (arena_state, timestep, actor_state, jnp.zeros(shape)),
    jax.random.split(key, num_steps),
  )
  return arena_state.outcome, arena_state.is_played, events


def _act(arena, arena_state, script, row, key):
  """Returns the actions [1, M] of a script, which is that row of players."""
  keys = jax.random.split(
    jax.random.fold_in(key, row), arena.num_games * arena.num_players
  ).reshape(arena.num_games, arena.num_players, -1)
  players = jnp.arange(arena.num_players)
  play_game = jax.vmap(script, in_axes=(0, None, 0))
  actions = jax.vmap(play_game, in_axes=(0, 0, None))(
    keys, arena_state.games.state, players
  )
  actions = arena.to_members(arena_state, actions)
  return jax.tree.map(lambda x: x[row : row + 1], actions)


def film(
  key: types.Key,
  game: functional.FunctionalGame,
  actor: types.ActorCore,
  variables: types.ActorVariables,
  render: Callable[[Any], types.Array],
  members: np.ndarray,
  num_steps: int,
) -> np.ndarray:
  """Films a game between teams of copies of two members.

  Args:
    key: for the game and actions.
    game: one game of two teams.
    actor: acts for each member.
    variables: of the members, leaves [N, ...].
    render: maps the game's state to a frame, uint8 [H, W, 3].
    members: int [2], the member of each team.
    num_steps: frames.

  Returns:
    uint8 [num_steps, H, W, 3].
  """
  seats = np.asarray(members)[np.asarray(game.teams)]
  rows = jax.tree.map(lambda leaf: leaf[seats], variables)  # [P, ...]

  @jax.jit
  def run(key, rows):
    reset_key, actor_key = jax.random.split(key)
    state, timestep = game.reset(reset_key)
    actor_state = jax.vmap(functools.partial(actor.init, batch_size=1))(
      jax.random.split(actor_key, len(seats))
    )

    def step(carry, _):
      state, timestep, actor_state = carry
      action, actor_state = jax.vmap(actor.select_action)(
        rows, jax.tree.map(lambda x: x[:, None], timestep), actor_state
      )
      stepped = game.step(state, jax.tree.map(lambda x: x[:, 0], action))
      return (*stepped, actor_state), render(state)

    carry = (state, timestep, actor_state)
    return jax.lax.scan(step, carry, length=num_steps)[1]

  return np.asarray(run(key, rows))
