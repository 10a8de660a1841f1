"""The state of a game as a critic sees it: nothing is hidden.

A float32 vector for each player, from the side of its team: for team 1 columns
and directions are mirrored, so that its own base is on the left, too. First
come the walls of the whole grid, one entry a cell; pads count as walls. Then
come the players: oneself, teammates, opponents, each with row, column, the
direction that it faces, the time that it waits, and whether it can tag and
carries the flag. Then the flags, own and opponents': row, column, whether it is
at home or carried, and the time until it returns; the stands; the time left,
the lead, and with `cue_steps` whether the game is reversed.
"""

from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from ftwax import types
from ftwax.environments.capture_the_flag import features, maps, rules, views
from ftwax.environments.capture_the_flag import game_config as config_lib

_Config: TypeAlias = config_lib.CaptureTheFlagConfig

# Numbers of a player and of a flag; see the module docstring.
_OF_PLAYER, _OF_FLAG = 9, 5


def size(config: _Config) -> int:
  """Returns the length of the vector."""
  players = config.num_players * _OF_PLAYER
  scalars = 2 * _OF_FLAG + 4 + 2 + bool(config.cue_steps)
  return config.height * config.width + players + scalars


def observe(state: rules.State, config: _Config) -> types.Array:
  """Returns the vector of each player, float32 [P, size]."""
  teams = rules.team_of_players(config)
  # Both sides see the game once, [2, ...]; players take that of their team.
  walls, rest = _see_sides(state, config)
  order = np.concatenate(
    [np.arange(config.num_players)[:, None], views.others(config)], axis=1
  )
  players = rest[teams[:, None], order]  # [P, P, 9]
  shared = _shared(state, config)
  parts = [
    walls[teams],
    players.reshape(config.num_players, -1),
    shared[teams],
  ]
  return jnp.concatenate([part.astype(jnp.float32) for part in parts], axis=1)


def _place(
  cells: types.Array, state: rules.State, config: _Config
) -> types.Array:
  """Returns rows and columns of cells [K] for both sides, [2, K, 2], in [0, 1].

  Maps may be narrower than the grid, and are mirrored in themselves.
  """
  row, column = cells // config.width, cells % config.width
  last = (state.map.stands % config.width).sum()
  columns = jnp.stack([column, last - column])
  rows = jnp.broadcast_to(row, columns.shape)
  return jnp.stack([rows / config.height, columns / config.width], axis=-1)


def _see_sides(
  state: rules.State, config: _Config
) -> tuple[types.Array, types.Array]:
  """Returns walls, [2, height * width], and players, [2, P, 9]."""
  tiles = state.map.tiles
  is_wall = (tiles == maps.WALL) | (tiles == maps.PAD)
  last = (state.map.stands % config.width).sum()
  mirrored = last - np.arange(config.width)
  is_inside = (mirrored >= 0) & (mirrored < config.width)
  image = jnp.take(is_wall, jnp.clip(mirrored, 0, config.width - 1), axis=1)
  walls = jnp.stack([is_wall, image | ~is_inside[None]])
  mirror = jnp.array([maps.NORTH, maps.WEST, maps.SOUTH, maps.EAST])
  facing = jnp.stack([state.direction, mirror[state.direction]])
  facts = [
    state.waiting / config.respawn_period,
    (state.cooldown == 0) & (state.waiting == 0),
    rules.carries_flag(state, config),
  ]
  own = jnp.stack([fact.astype(jnp.float32) for fact in facts], axis=-1)
  players = jnp.concatenate(
    [
      _place(state.cell, state, config),
      jax.nn.one_hot(facing, 4),
      jnp.broadcast_to(own, (2, *own.shape)),
    ],
    axis=-1,
  )
  return walls.reshape(2, -1), players


def _shared(state: rules.State, config: _Config) -> types.Array:
  """Returns flags, stands and the state of the game for both sides."""
  both = np.array([[0, 1], [1, 0]])  # Own, then opponents', for each side.
  sides = np.arange(2)[:, None]
  flags = jnp.stack(
    [
      rules.is_home(state),
      state.carrier != rules.NOBODY,
      state.flag_timer / config.flag_return_period,
    ],
    axis=-1,
  )
  lead = (state.score - state.score[::-1]).astype(jnp.float32)
  left = 1 - state.num_steps.astype(jnp.float32) / config.num_steps
  clock = [jnp.full(2, left), jnp.tanh(lead / features.LEAD_SCALE)]
  parts = [
    _place(state.flag_cell, state, config)[sides, both],
    flags[both],
    _place(state.map.stands, state, config)[sides, both],
    jnp.stack(clock, axis=1),
  ]
  if config.cue_steps:
    sign = jnp.where(state.is_reversed, -1.0, 1.0)
    parts.append(jnp.full((2, 1), sign))
  return jnp.concatenate([part.reshape(2, -1) for part in parts], axis=1)
