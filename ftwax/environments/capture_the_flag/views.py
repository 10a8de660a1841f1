"""Views: the square of the map around each player, rotated to look up.

A view is relative to its player: rows run from ahead to behind, columns from
left to right, and things belong to the player's own team or to the opponents.
The same policy can therefore play for either team.
"""

from typing import NamedTuple, TypeAlias

import jax.numpy as jnp
import numpy as np
from numpy import typing as npt

from ftwax import types
from ftwax.environments.capture_the_flag import game_config as config_lib
from ftwax.environments.capture_the_flag import maps, rules

_Config: TypeAlias = config_lib.CaptureTheFlagConfig


class Things(NamedTuple):
  """Positions of `K` things relative to each of `P` players.

  The things are teammates, opponents, own flag, opponents' flag, own stand and
  opponents' stand, in this order.

  Attributes:
    ahead: int32 [P, K], number of cells ahead of the player.
    right: int32 [P, K], number of cells to the right of the player.
    view_cell: int32 [P, K], cell of the view, `row * view_size + column`, or -1
      outside the view.
  """

  ahead: types.Array
  right: types.Array
  view_cell: types.Array


def slices(config: _Config) -> dict[str, slice]:
  """Returns the slice of each kind of thing among the `K`."""
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


def others(config: _Config) -> npt.NDArray[np.int32]:
  """Returns each player's teammates, then its opponents, int32 [P, P - 1]."""
  teams = rules.team_of_players(config)
  rows = []
  for player, team in enumerate(teams):
    mates = [p for p in np.flatnonzero(teams == team) if p != player]
    rows.append([*mates, *np.flatnonzero(teams != team)])
  return np.array(rows, np.int32)


def locate(state: rules.State, config: _Config) -> Things:
  """Returns the positions of things relative to each player."""
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
  steps = jnp.asarray(maps.STEPS)
  ahead_step = steps[state.direction]  # Rows and columns, [P, 2].
  right_step = steps[(state.direction + 1) % 4]
  # Projections on the player's two axes, [P, K].
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


def tiles_in_view(state: rules.State, config: _Config) -> types.Array:
  """Returns the tiles in the view of each player, int8 [P, view_size ** 2].

  Cells outside the map are walls.
  """
  offsets = jnp.asarray(_offsets(config))[state.direction]  # [P, V * V, 2]
  row = (state.cell // config.width)[:, None] + offsets[:, :, 0]
  column = (state.cell % config.width)[:, None] + offsets[:, :, 1]
  # Cells beyond the border take its nearest tile, which is a wall.
  row = jnp.clip(row, 0, config.height - 1)
  column = jnp.clip(column, 0, config.width - 1)
  tiles = state.map.tiles.reshape(-1)
  return jnp.take(tiles, row * config.width + column, mode='clip')


def _offsets(config: _Config) -> npt.NDArray[np.int32]:
  """Returns [rows, columns] from a player to each cell of its view.

  Returns:
    int32 [4, V * V, 2], for each direction that the player may face.
  """
  size = config.view_size
  row, column = np.divmod(np.arange(size * size), size)
  ahead = size - 1 - config.view_behind - row
  right = column - size // 2
  offsets = [
    ahead[:, None] * maps.STEPS[d] + right[:, None] * maps.STEPS[(d + 1) % 4]
    for d in range(4)
  ]
  return np.stack(offsets).astype(np.int32)
