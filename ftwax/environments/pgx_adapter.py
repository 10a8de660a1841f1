"""Board and card games of pgx (Koyama et al., 2023) as functional games.

Players of pgx take turns: the seat whose turn it is decides, the others are
`types.ABSENT`, and a seat begins with its first turn. Rewards that a seat gets
while it waits follow its last move; see `ftwax.environments.absences`. pgx
draws the seat that begins.

An observation holds `board`, what pgx shows to the seat, and the mask of legal
actions (see `types.ACTION_MASK`). An illegal action loses the game at once, as
it does in pgx.

pgx's trained baselines are left out: they are downloads, and there are none for
connect four, tic-tac-toe and poker.
"""

import functools
import importlib
from typing import Any, NamedTuple

import dm_env
import jax
import jax.numpy as jnp
from dm_env import specs

from ftwax import extras, import_guard, registry, types
from ftwax.environments import functional, specified

# Pixels of a square of a board in films, and colors by what is on it.
_SQUARE = 16
_COLORS = ((235, 235, 235), (60, 110, 220), (220, 70, 60), (120, 120, 120))


class PgxState(NamedTuple):
  """State of a game of pgx.

  Attributes:
    state: state of the game, a pytree.
    has_begun: bool [P], whether each seat has had a turn.
    key: uint32 [2], random key of the remaining steps.
  """

  state: Any
  has_begun: types.Array
  key: types.Key


@registry.register('pgx.game')
def make(name: str) -> functional.FunctionalGame:
  """Makes the game of that name in pgx.

  Args:
    name: e.g. 'connect_four', 'tic_tac_toe', 'kuhn_poker' or 'leduc_holdem'.

  Raises:
    ImportError: if pgx is not installed.
    ValueError: if there is no such game.
  """
  with extras.required('pgx', 'envs'):
    pgx = importlib.import_module('pgx')
  with import_guard.guarded():  # A game may import more.
    if name not in pgx.available_envs():
      raise ValueError(
        f'name ({name!r}) must be the name of a game of pgx; choose from'
        f' {sorted(pgx.available_envs())}.'
      )
    return from_pgx(pgx.make(name))


def from_pgx(environment: Any) -> functional.FunctionalGame:
  """Converts a game of pgx; each of its players is a team.

  Args:
    environment: a game returned by `pgx.make`.
  """
  num_players, num_actions = environment.num_players, environment.num_actions

  def reset(key: types.Key) -> tuple[PgxState, dm_env.TimeStep]:
    init_key, key = jax.random.split(key)
    state = environment.init(init_key)
    timestep = jax.vmap(functional.restart)(_observe(environment, state))
    has_begun = jnp.arange(num_players) == state.current_player
    timestep = timestep._replace(
      step_type=jnp.where(has_begun, types.FIRST, types.ABSENT)
    )
    return PgxState(state, has_begun, key), timestep

  like = jax.eval_shape(reset, jax.random.PRNGKey(0))

  def step(
    state: PgxState, action: types.Array
  ) -> tuple[PgxState, dm_env.TimeStep]:
    step_key, key = jax.random.split(state.key)
    old = state.state
    new = environment.step(old, action[old.current_player], step_key)
    timestep = jax.vmap(functional.transition, in_axes=(0, 0, None, None))(
      new.rewards, _observe(environment, new), new.terminated, new.truncated
    )
    is_turn = jnp.arange(num_players) == new.current_player
    in_play = jnp.where(state.has_begun, types.MID, types.FIRST)
    in_play = jnp.where(is_turn, in_play, types.ABSENT)
    is_over = new.terminated | new.truncated
    timestep = timestep._replace(
      step_type=jnp.where(is_over, types.LAST, in_play)
    )
    state = PgxState(new, state.has_begun | is_turn, key)
    return functional.cast_like((state, timestep), like)

  seen = jax.tree.map(
    lambda leaf: specs.Array(leaf.shape[1:], leaf.dtype), like[1].observation
  )
  return functional.FunctionalGame(
    spec=specified.make_spec(seen, num_actions)._replace(absences=True),
    reset=reset,
    step=step,
    teams=tuple(range(num_players)),
    event_names=('reward',),
    outcome=_outcome,
    scripts={'look_ahead': functools.partial(_look_ahead, environment)},
    display=functional.Display(
      render=lambda state: _render(_observe(environment, state.state)['board']),
      score=lambda state: state.state.rewards,
      team_names=tuple(f'player {i}' for i in range(num_players)),
    ),
  )


def _observe(environment: Any, state: Any) -> dict[str, types.Array]:
  """Returns what all seats see, leaves [P, ...]."""
  players = jnp.arange(environment.num_players)
  is_turn = (players == state.current_player)[:, None]
  mask = state.legal_action_mask[None] & is_turn
  return {
    # Its public form shows the board to the mover only.
    'board': jax.vmap(lambda player: environment._observe(state, player))(
      players
    ),
    types.ACTION_MASK: mask,
  }


def _look_ahead(
  environment: Any, key: types.Key, state: PgxState, player: types.Array
) -> types.Array:
  """Takes a move that wins at once, else any legal one; sees all cards."""
  old = state.state
  results = jax.vmap(lambda move: environment.step(old, move, state.key))(
    jnp.arange(environment.num_actions)
  )
  wins = old.legal_action_mask & (results.rewards[:, player] > 0.0)
  choices = jnp.where(wins.any(), wins, old.legal_action_mask)
  return jax.random.categorical(key, jnp.log(choices))


def _outcome(state: PgxState) -> types.Array:
  """Returns 1 for the only seat with the largest reward, 0 for a shared one."""
  rewards = state.state.rewards
  is_best = rewards == rewards.max()
  best = jnp.where((is_best.sum() == 1) & (rewards.size > 1), 1.0, 0.0)
  return jnp.where(is_best, best, -1.0).astype(jnp.float32)


def _render(boards: types.Array) -> types.Array:
  """Draws the boards that the seats see, [P, ...], as uint8 [H, W, 3].

  A board [rows, columns, planes] is drawn as the first seat sees it, by its
  first two planes: its own pieces and the other's. Anything else is drawn as a
  row of entries for each seat.
  """
  if boards.ndim == 4 and boards.shape[-1] > 1:
    planes = boards[0, ..., :2].astype(jnp.int32)
    squares = planes[..., 0] + 2 * planes[..., 1]
  else:
    entries = boards.reshape(len(boards), -1).astype(bool)
    squares = jnp.where(entries, 1 + jnp.arange(len(boards))[:, None] % 2, 0)
  image = jnp.array(_COLORS, jnp.uint8)[squares]
  for axis in (0, 1):
    image = jnp.repeat(image, _SQUARE, axis)
  return image
