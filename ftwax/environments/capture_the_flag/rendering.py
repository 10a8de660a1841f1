"""RGB images of what each player sees; films have `painting`.

An image is a grid of square tiles. Each combination of ground, figure
(a player) and flag in a cell has a code and a tile, painted once in NumPy, so
rendering an image is a single table lookup. A player's own team is blue and the
opponents are red. While a cue tells that a game is reversed, views are
negatives.
"""

import functools
import itertools
from typing import Any, TypeAlias

import jax.numpy as jnp
import numpy as np
from numpy import typing as npt

from ftwax import types
from ftwax.environments.capture_the_flag import game_config as config_lib
from ftwax.environments.capture_the_flag import maps, rules, views

_Config: TypeAlias = config_lib.CaptureTheFlagConfig

# Grounds: floor, wall and pad as in `maps`, the stands of two teams, and black.
_BLUE_STAND, _RED_STAND, _DARK = maps.STAND, maps.STAND + 1, maps.STAND + 2
_GROUND_COLORS = np.array(
  [
    [198, 190, 172],
    [62, 60, 66],
    [150, 142, 128],
    [96, 128, 196],
    [196, 104, 96],
    [0, 0, 0],
  ],
  np.uint8,
)
_TEAM_COLORS = np.array([[28, 74, 190], [190, 38, 30]], np.uint8)
_FLAG_COLORS = np.array([[120, 215, 255], [255, 190, 70]], np.uint8)
_NOSE_COLOR = np.array([250, 250, 245], np.uint8)

# A figure is 0 for none, else 1 + 4 * team + direction. A flag is 0 for none,
# else 1 + team.
_NUM_FIGURES = 1 + 2 * 4
_NUM_FLAGS = 1 + 2


def shape(config: _Config) -> tuple[int, int, int]:
  """Returns the shape of an image."""
  side = config.view_size * config.tile_size
  return (side, side, 3)


def observe(state: rules.State, config: _Config) -> types.Array:
  """Renders the view of each player; see `views`.

  Returns:
    uint8 [P, side, side, 3] with side = view_size * tile_size; black for
    players that wait on their pads.
  """
  size = config.view_size
  things = views.locate(state, config)
  is_active = state.waiting == 0
  figure = _figures_in_view(state, things, config)
  flag = mark(things.view_cell[:, -4:-2], np.array([1, 2]), size * size)
  stand = mark(things.view_cell[:, -2:], np.array([0, 1]), size * size)
  tiles = views.tiles_in_view(state, config).astype(jnp.int32)
  ground = jnp.where(tiles == maps.STAND, _BLUE_STAND + stand, tiles)
  code = jnp.where(
    is_active[:, None], _code(ground, figure, flag), _code(_DARK, 0, 0)
  )
  image = lay(_make_tiles(config.tile_size), code.reshape(-1, size, size))
  if config.cue_steps:
    image = jnp.where(rules.cue(state) < 0, 255 - image, image)
  return image


def _figures_in_view(
  state: rules.State, things: views.Things, config: _Config
) -> types.Array:
  """Returns figures in the view of each player, int32 [P, V * V].

  Directions are relative to the player, who is included as a figure.
  """
  others = views.others(config)
  # Teammates come first.
  is_enemy = np.arange(others.shape[1]) >= config.team_size - 1
  turned = (state.direction[others] - state.direction[:, None]) % 4
  is_there = (state.waiting == 0)[others]
  index = jnp.where(is_there, things.view_cell[:, :-4], -1)
  size = config.view_size
  figure = mark(index, 1 + 4 * is_enemy[None] + turned, size * size)
  # The player itself, of its own team and facing up: figure 1.
  here = (size - 1 - config.view_behind) * size + size // 2
  return jnp.where(np.arange(size * size)[None] == here, 1, figure)


def mark(
  index: types.Array, code: types.Array | npt.NDArray[Any], num_cells: int
) -> types.Array:
  """Writes codes into cells; the largest code wins where several meet.

  Args:
    index: int32 [..., K], cells, or -1 for codes to leave out.
    code: int32 [..., K], or any shape that broadcasts to it.
    num_cells: number of cells of the grid.

  Returns:
    int32 [..., num_cells], 0 at cells without a code.
  """
  code = jnp.broadcast_to(code, index.shape)[..., None]
  # Compares every code with every cell; no cell equals -1.
  cells = np.arange(num_cells).reshape((1,) * index.ndim + (num_cells,))
  return jnp.max(jnp.where(index[..., None] == cells, code, 0), axis=-2)


def _code(ground: Any, figure: Any, flag: Any) -> types.Array:
  """Returns the code of a tile, an index into `_make_tiles`."""
  return (ground * _NUM_FIGURES + figure) * _NUM_FLAGS + flag


def lay(table: npt.NDArray[np.uint8], code: types.Array) -> types.Array:
  """Lays tiles from a table [num_codes, size, size, 3].

  Args:
    table: the tile of each code.
    code: int32 [..., rows, columns].

  Returns:
    uint8 [..., rows * size, columns * size, 3].
  """
  tile_size = table.shape[1]
  tiles = jnp.take(jnp.asarray(table), code, axis=0)
  image = jnp.moveaxis(tiles, -3, -4)  # [..., rows, y, columns, x, 3]
  rows, columns = code.shape[-2:]
  return image.reshape(
    (*code.shape[:-2], rows * tile_size, columns * tile_size, 3)
  )


@functools.lru_cache
def _make_tiles(size: int) -> npt.NDArray[np.uint8]:
  """Paints the tile of each code, uint8 [num_codes, size, size, 3]."""
  codes = itertools.product(
    range(len(_GROUND_COLORS)), range(_NUM_FIGURES), range(_NUM_FLAGS)
  )
  return np.stack([_make_tile(size, *code) for code in codes])


def _make_tile(
  size: int, ground: int, figure: int, flag: int
) -> npt.NDArray[np.uint8]:
  """Paints a figure as a square with a bright front, a flag as a diamond."""
  tile = np.tile(_GROUND_COLORS[ground], (size, size, 1))
  # Coordinates of pixel centers, from -1 to 1.
  y, x = np.meshgrid(
    *[(np.arange(size) + 0.5) / size * 2 - 1] * 2, indexing='ij'
  )
  if figure:
    team, direction = divmod(figure - 1, 4)
    tile[np.maximum(abs(x), abs(y)) < 0.8] = _TEAM_COLORS[team]
    south, east = maps.STEPS[direction]
    ahead, aside = y * south + x * east, abs(x * south) + abs(y * east)
    tile[(ahead > 0.3) & (ahead < 0.8) & (aside < 0.45)] = _NOSE_COLOR
  if flag:
    tile[abs(x) + abs(y) < 0.55] = _FLAG_COLORS[flag - 1]
  return tile
