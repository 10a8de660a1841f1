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

# The steps ahead and to the right in each direction, each in rows and columns.
_AXES = np.stack([maps.STEPS, np.roll(maps.STEPS, -1, axis=0)], axis=1)


class Things(NamedTuple):
  """Positions of `K` things relative to each of `P` players.

  The things are teammates, opponents, own flag, opponents' flag, own stand and
  opponents' stand, in this order.

  Attributes:
    offset: int32 [P, 2, K], numbers of cells ahead of the player and to its
      right.
    view_cell: int32 [P, K], cell of the view, `row * view_size + column`, or -1
      outside the view.
  """

  offset: types.Array
  view_cell: types.Array


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
  own_and_enemy = np.stack([teams, 1 - teams], axis=1) + config.num_players
  places = jnp.concatenate([state.cell, state.flag_cell, state.map.stands])
  things = [others(config), own_and_enemy, own_and_enemy + 2]
  cells = places[np.concatenate(things, axis=1)]  # [P, K]
  south = cells // config.width - (state.cell // config.width)[:, None]
  east = cells % config.width - (state.cell % config.width)[:, None]
  axes = jnp.asarray(_AXES)[state.direction]  # [P, 2, 2]
  # Projections on the player's two axes, [P, 2, K].
  offset = south[:, None] * axes[..., :1] + east[:, None] * axes[..., 1:]
  row = config.view_size - 1 - config.view_behind - offset[:, 0]
  column = config.view_size // 2 + offset[:, 1]
  in_view = (
    (row >= 0)
    & (row < config.view_size)
    & (column >= 0)
    & (column < config.view_size)
  )
  index = jnp.where(in_view, row * config.view_size + column, -1)
  return Things(offset, index)


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
