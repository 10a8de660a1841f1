"""Pictures: what a player sees as RGB, and the whole map for videos.

A picture is a grid of square tiles. There is one tile for each ground, figure
and flag that can meet in a cell, all painted once in NumPy; a picture is then
one look-up. In a player's view the own team is blue and the opponents are red;
on the whole map team 0 is blue and team 1 red.
"""

import functools

import jax.numpy as jnp
import numpy as np

from ftwax import types
from ftwax.environments.capture_the_flag import game_config as config_lib
from ftwax.environments.capture_the_flag import maps, rules, views

# Grounds: the tiles of `maps`, then stands by team, then nothing at all.
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

# Figures: nobody, or team and direction. Flags: none, or whose it is.
_NUM_FIGURES = 1 + 2 * 4
_NUM_FLAGS = 1 + 2


def observe(
  state: rules.State, config: config_lib.CaptureTheFlagConfig
) -> types.Array:
  """Returns uint8 [P, side, side, 3], side = view_size * tile_size.

  A player that waits on its pad sees black.
  """
  size = config.view_size
  things = views.locate(state, config)
  is_active = state.waiting == 0
  figure = _figures_in_view(state, things, config)
  flag = _marks(things.view_cell[:, -4:-2], np.array([1, 2]), size * size)
  stand = _marks(things.view_cell[:, -2:], np.array([0, 1]), size * size)
  tiles = views.tiles_in_view(state, config).astype(jnp.int32)
  ground = jnp.where(tiles == maps.STAND, _BLUE_STAND + stand, tiles)
  code = jnp.where(
    is_active[:, None], _code(ground, figure, flag), _code(_DARK, 0, 0)
  )
  return _paint(code.reshape(-1, size, size), config.tile_size)


def render(
  state: rules.State,
  config: config_lib.CaptureTheFlagConfig,
  tile_size: int = 16,
) -> types.Array:
  """Returns uint8 [height * tile_size, width * tile_size, 3], the whole map."""
  teams = rules.team_of_players(config)
  num_cells = config.height * config.width
  cell = jnp.where(state.waiting == 0, state.cell, -1)
  figure = _marks(cell, 1 + 4 * teams + state.direction, num_cells)
  flag = _marks(state.flag_cell, np.array([1, 2]), num_cells)
  stand = _marks(state.map.stands, np.array([0, 1]), num_cells)
  tiles = state.map.tiles.reshape(-1).astype(jnp.int32)
  ground = jnp.where(tiles == maps.STAND, _BLUE_STAND + stand, tiles)
  code = _code(ground, figure, flag).reshape(config.height, config.width)
  return _paint(code, tile_size)


def _figures_in_view(state, things, config):
  """Returns int32 [P, V * V], the figures as turned for each player."""
  others = views.others(config)
  is_enemy = np.arange(others.shape[1]) >= config.team_size - 1
  turned = (state.direction[others] - state.direction[:, None]) % 4
  is_there = (state.waiting == 0)[others]
  index = jnp.where(is_there, things.view_cell[:, :-4], -1)
  size = config.view_size
  figure = _marks(index, 1 + 4 * is_enemy[None] + turned, size * size)
  here = (size - 1 - config.view_behind) * size + size // 2
  return jnp.where(np.arange(size * size)[None] == here, 1, figure)


def _marks(index, code, num_cells):
  """Returns int32 [..., num_cells], `code` at each `index` and 0 elsewhere."""
  code = jnp.broadcast_to(code, index.shape)[..., None]
  cells = np.arange(num_cells).reshape((1,) * index.ndim + (num_cells,))
  return jnp.max(jnp.where(index[..., None] == cells, code, 0), axis=-2)


def _code(ground, figure, flag):
  return (ground * _NUM_FIGURES + figure) * _NUM_FLAGS + flag


def _paint(code: types.Array, tile_size: int) -> types.Array:
  """Returns uint8 [..., rows * tile_size, columns * tile_size, 3]."""
  tiles = jnp.take(jnp.asarray(_make_tiles(tile_size)), code, axis=0)
  image = jnp.moveaxis(tiles, -3, -4)  # [..., rows, y, columns, x, 3]
  rows, columns = code.shape[-2:]
  return image.reshape(
    (*code.shape[:-2], rows * tile_size, columns * tile_size, 3)
  )


@functools.lru_cache
def _make_tiles(size: int) -> np.ndarray:
  """Returns uint8 [num_codes, size, size, 3], a tile for each code."""
  grounds, figures, flags = np.meshgrid(
    np.arange(len(_GROUND_COLORS)),
    np.arange(_NUM_FIGURES),
    np.arange(_NUM_FLAGS),
    indexing='ij',
  )
  codes = zip(grounds.flat, figures.flat, flags.flat, strict=True)
  return np.stack([_make_tile(size, *code) for code in codes])


def _make_tile(size, ground, figure, flag):
  tile = np.tile(_GROUND_COLORS[ground], (size, size, 1))
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
