"""The square of the map that each player sees, turned so that ahead is up.

Nothing in a view is absolute: columns go from left to right of the player, rows
from ahead to behind, and what is shown is a teammate's or an opponent's, so
that both teams can be played by one policy.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from ftwax import types
from ftwax.environments.capture_the_flag import game_config as config_lib
from ftwax.environments.capture_the_flag import maps, rules


class Things(NamedTuple):
  """What moves or matters, as each of `P` players sees it.

  `K` things: teammates, opponents, own flag, opponents' flag, own stand,
  opponents' stand.

  Attributes:
    ahead: int32 [P, K], how many cells ahead of the player.
    right: int32 [P, K], how many cells to its right.
    view_cell: int32 [P, K], its cell of the view, row by row, or -1 outside.
  """

  ahead: types.Array
  right: types.Array
  view_cell: types.Array


def slices(
  config: config_lib.CaptureTheFlagConfig,
) -> dict[str, slice]:
  """Returns where each kind of thing is among the `K`."""
  num_teammates = config.team_size - 1
  num_others = num_teammates + config.team_size
  return {
    'teammates': slice(0, num_teammates),
    'opponents': slice(num_teammates, num_others),
    'own_flag': slice(num_others, num_others + 1),
    'enemy_flag': slice(num_others + 1, num_others + 2),
    'own_stand': slice(num_others + 2, num_others + 3),
    'enemy_stand': slice(num_others + 3, num_others + 4),
  }


def others(config: config_lib.CaptureTheFlagConfig) -> np.ndarray:
  """Returns [P, P - 1], the teammates and then the opponents of each player."""
  teams = rules.team_of_players(config)
  rows = []
  for player, team in enumerate(teams):
    mates = [p for p in np.flatnonzero(teams == team) if p != player]
    rows.append([*mates, *np.flatnonzero(teams != team)])
  return np.array(rows, np.int32)


def locate(
  state: rules.State, config: config_lib.CaptureTheFlagConfig
) -> Things:
  """Returns where things are for each player."""
  teams = rules.team_of_players(config)
  own_and_enemy = np.stack([teams, 1 - teams], axis=1)
  cells = jnp.concatenate(
    [
      state.cell[others(config)],
      state.flag_cell[own_and_enemy],
      state.map.stands[own_and_enemy],
    ],
    axis=1,
  )  # [P, K]
  south = cells // config.width - (state.cell // config.width)[:, None]
  east = cells % config.width - (state.cell % config.width)[:, None]
  ahead_step, right_step = _axes(state.direction)
  ahead = south * ahead_step[:, :1] + east * ahead_step[:, 1:]
  right = south * right_step[:, :1] + east * right_step[:, 1:]
  row = config.view_size - 1 - config.view_behind - ahead
  column = config.view_size // 2 + right
  in_view = (
    (row >= 0)
    & (row < config.view_size)
    & (column >= 0)
    & (column < config.view_size)
  )
  index = jnp.where(in_view, row * config.view_size + column, -1)
  return Things(ahead, right, index)


def tiles_in_view(
  state: rules.State, config: config_lib.CaptureTheFlagConfig
) -> types.Array:
  """Returns int8 [P, view_size ** 2], walls outside of the map."""
  offsets = jnp.asarray(_offsets(config))[state.direction]  # [P, V * V, 2]
  row = (state.cell // config.width)[:, None] + offsets[:, :, 0]
  column = (state.cell % config.width)[:, None] + offsets[:, :, 1]
  # The border is of walls, so that what lies beyond may be taken from it.
  row = jnp.clip(row, 0, config.height - 1)
  column = jnp.clip(column, 0, config.width - 1)
  tiles = state.map.tiles.reshape(-1)
  return jnp.take(tiles, row * config.width + column, mode='clip')


def _axes(direction):
  steps = jnp.asarray(maps.STEPS)
  return steps[direction], steps[(direction + 1) % 4]


def _offsets(config) -> np.ndarray:
  """Returns int32 [4, V * V, 2], rows and columns from player to seen cell."""
  size = config.view_size
  row, column = np.divmod(np.arange(size * size), size)
  ahead = size - 1 - config.view_behind - row
  right = column - size // 2
  steps = maps.STEPS
  return np.stack(
    [
      ahead[:, None] * steps[d] + right[:, None] * steps[(d + 1) % 4]
      for d in range(4)
    ]
  ).astype(np.int32)
