"""Random symmetric maps on which the bases can reach each other.

A map is a grid of tiles inside a border of walls. The base of team 0 is on the
left; that of team 1 is its image on the right, under a reflection or a rotation
by 180 degrees, each with probability one half. Posts stand on a lattice of
every second row and column, each with a chance of `wall_density`, and each has
an arm of one cell in a random direction, which makes many short walls and
loops. Cells that cannot be reached from the left base become walls. If the
right base is among them, all inner walls are removed instead. If the config
allows smaller maps, each map draws its own size; it lies at the top left, and
the rest of the grid is walls.

Cells are numbered row by row: a cell is `row * width + column`.
"""

import functools
from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from ftwax import scans, types
from ftwax.environments.capture_the_flag import game_config as config_lib

_Config: TypeAlias = config_lib.CaptureTheFlagConfig

# Kinds of tiles. A player appears on its pad; a flag stands on its stand.
FLOOR, WALL, PAD, STAND = range(4)

# Directions, clockwise: a quarter turn to the right adds one.
NORTH, EAST, SOUTH, WEST = range(4)

# [rows, columns] that one step in each direction adds.
STEPS = np.array([[-1, 0], [0, 1], [1, 0], [0, -1]], np.int32)

# The left base: rows above and below its center and columns without walls, the
# columns of stand and pads, and the rows of pads relative to the center.
_BASE_ROWS = 2
_BASE_COLUMNS = range(1, 5)
_STAND_COLUMN = 3
_PAD_COLUMN = 1
_PAD_ROWS = np.array([-1, 1, -2, 2])


# The cells reached before the last step and after it, as bits of words, uint32
# [height, num_words], and steps so far to some cells.
_Flood: TypeAlias = tuple[types.Array, types.Array, types.Array]


class _Size(NamedTuple):
  """Rows and columns of a map, including its border, int32 []."""

  height: types.Array | int
  width: types.Array | int


class Map(NamedTuple):
  """The constant parts of a game.

  Attributes:
    tiles: int8 [height, width], `FLOOR`, `WALL`, `PAD` or `STAND`.
    stands: int32 [2], the cell of each team's stand.
    pads: int32 [P], the cell of each player's pad; players can leave pads but
      not enter them.
  """

  tiles: types.Array
  stands: types.Array
  pads: types.Array


def make_map(key: types.Key, config: _Config) -> Map:
  """Draws a map; see the module docstring."""
  shape = (config.height // 2 + 1, config.width // 2 + 1)
  # One draw for all: on a CPU each takes a loop, which takes long to compile.
  draws = jax.random.uniform(key, (4 + 2 * shape[0] * shape[1],))
  size = _draw_size(draws[:2], config)
  num_rows = size.height - 2 - 2 * _BASE_ROWS
  base_row = 1 + _BASE_ROWS + draw_below(num_rows, draws[2])
  cells = jnp.arange(config.height * config.width)
  image_of = functools.partial(_image_of, config, size, draws[3] < 0.5)
  image = image_of(cells)
  stand = base_row * config.width + _STAND_COLUMN
  pads = (base_row + _PAD_ROWS[: config.team_size]) * config.width + _PAD_COLUMN
  stands = jnp.stack([stand, image_of(stand)])
  pads = jnp.concatenate([pads, image_of(pads)])
  walls = _make_walls(draws[4:].reshape(2, *shape), config)
  # The lower-numbered cell of each pair of images stands for both.
  closed = walls.reshape(-1)[jnp.minimum(cells, image)]
  closed &= ~_in_left_base(config, base_row, cells)
  closed &= ~_in_left_base(config, base_row, image)
  is_pad = any_along(cells[:, None] == pads[None], 1).reshape(walls.shape)
  is_stand = any_along(cells[:, None] == stands[None], 1).reshape(walls.shape)
  border = _border(config, size)
  walls = _wall_up(closed.reshape(walls.shape) | border, border, stands, is_pad)
  tiles = jnp.where(is_pad, PAD, jnp.where(walls, WALL, FLOOR))
  tiles = jnp.where(is_stand, STAND, tiles)
  return Map(tiles.astype(jnp.int8), stands, pads)


def draw_below(limit: types.Array | int, draws: types.Array) -> types.Array:
  """Returns integers below `limit`, int32 [...], from draws in [0, 1)."""
  return jnp.floor(draws * limit).astype(jnp.int32)


def any_along(is_true: types.Array, axis: int) -> types.Array:
  """Returns `jnp.any` along a short axis, as operations on elements.

  XLA fuses these, while on a GPU each reduction ends a kernel.
  """
  parts = jnp.moveaxis(is_true, axis, 0)
  return functools.reduce(
    jnp.logical_or, parts, jnp.zeros(parts.shape[1:], bool)
  )


def is_walkable(tiles: types.Array) -> types.Array:
  """Returns whether players can enter each of `tiles`, bool [...]."""
  return (tiles == FLOOR) | (tiles == STAND)


def flood(
  is_open: types.Array, start: types.Array, cells: types.Array
) -> tuple[types.Array, types.Array]:
  """Finds what can be reached from the cell `start`, which may be closed.

  Args:
    is_open: bool [height, width], false on the border.
    start: int32 [].
    cells: int32 [n].

  Returns:
    Whether each cell can be reached, bool [height, width]; and the number of
    steps to `cells`, int32 [n], `height * width` for those out of reach.
  """
  height, width = is_open.shape
  bits = jnp.arange(32, dtype=jnp.uint32)[None, None]

  def pack(is_true: types.Array) -> types.Array:  # To [height, num_words].
    words = jnp.pad(is_true, ((0, 0), (0, -width % 32))).reshape(height, -1, 32)
    return jnp.sum(words.astype(jnp.uint32) << bits, -1, jnp.uint32)

  def unpack(words: types.Array) -> types.Array:
    is_true = ((words[..., None] >> bits) & 1).reshape(height, -1) > 0
    return is_true[:, :width]

  def spread(carry: _Flood) -> _Flood:
    _, reached, steps = carry
    north, east, south, west = _shifted(reached, 0)
    # From one word of a row to the next, too.
    in_row = (reached << 1) | (reached >> 1) | (east >> 31) | (west << 31)
    after = reached | (floor & (north | south | in_row))
    return reached, after, steps + ~unpack(reached).reshape(-1)[cells]

  floor = pack(is_open)
  at_start = pack(jnp.arange(is_open.size).reshape(height, width) == start)
  carry = jnp.zeros_like(floor), at_start, jnp.zeros_like(cells)
  # Enough for most maps: XLA fuses these, while a loop takes kernels a step.
  for _ in range(height + width if scans.counts_launches() else 0):
    carry = spread(carry)
  # Runs until a step reaches no new cell.
  _, reached, steps = jax.lax.while_loop(
    lambda carry: jnp.any(carry[0] != carry[1]), spread, carry
  )
  is_reached = unpack(reached)
  return is_reached, jnp.where(
    is_reached.reshape(-1)[cells], steps, is_open.size
  )


def _draw_size(draws: types.Array, config: _Config) -> _Size:
  """Draws the size of a map within the limits of the config, from draws [2]."""
  sides: list[types.Array | int] = []
  for index, (low, high) in enumerate(
    ((config.min_height, config.height), (config.min_width, config.width))
  ):
    if low is None or low == high:
      sides.append(high)
      continue
    num_sides = (high - low) // 2 + 1
    sides.append(low + 2 * draw_below(num_sides, draws[index]))
  return _Size(*sides)


def _shifted(grid: types.Array, fill: bool | int) -> list[types.Array]:
  """Returns the grid, [height, width], shifted by a cell in each direction.

  XLA fuses slices of one padded grid into what reads them, and not `roll`.
  """
  padded = jnp.pad(grid, 1, constant_values=fill)
  height, width = grid.shape
  return [
    padded[1 - south : 1 - south + height, 1 - east : 1 - east + width]
    for south, east in STEPS.tolist()
  ]


def _image_of(
  config: _Config, size: _Size, is_turned: types.Array, cells: types.Array
) -> types.Array:
  """Returns the images of `cells`, int32 [...], whose images are the cells.

  Maps are turned or, else, reflected; cells outside are their own images.
  """
  rows, columns = cells // config.width, cells % config.width
  image_rows = jnp.where(is_turned, size.height - 1 - rows, rows)
  image = image_rows * config.width + size.width - 1 - columns
  is_inside = (rows < size.height) & (columns < size.width)
  return jnp.where(is_inside, image, cells)


def _border(config: _Config, size: _Size) -> types.Array:
  """Returns bool [height, width], true along the map's edges and outside."""
  rows, columns = np.indices((config.height, config.width), np.int32)
  is_first = (rows == 0) | (columns == 0)
  is_last = (rows >= size.height - 1) | (columns >= size.width - 1)
  return jnp.asarray(is_first | is_last)


def _in_left_base(
  config: _Config, base_row: types.Array, cells: types.Array
) -> types.Array:
  """Returns whether each of `cells` is in the base of team 0, bool [...]."""
  rows, columns = cells // config.width, cells % config.width
  in_columns = (columns >= _BASE_COLUMNS[0]) & (columns <= _BASE_COLUMNS[-1])
  return (jnp.abs(rows - base_row) <= _BASE_ROWS) & in_columns


def _make_walls(draws: types.Array, config: _Config) -> types.Array:
  """Makes posts with one arm each, bool [height, width], from two draws."""
  posts, arms = draws[0] < config.wall_density, draw_below(4, draws[1])
  # The direction of the arm of each post; no other cell has one.
  arms = jax.lax.pad(jnp.where(posts, arms, -1), -1, [(0, 0, 1)] * 2)
  # Arms in one direction are their posts, shifted by one cell.
  walls = arms >= 0
  for direction, shifted in enumerate(_shifted(arms, -1)):
    walls |= shifted == direction
  return walls


def _wall_up(
  walls: types.Array,
  border: types.Array,
  stands: types.Array,
  is_pad: types.Array,
) -> types.Array:
  """Returns walls with unreachable cells closed, bool [height, width].

  If the base of team 1 is unreachable, only the border is returned.
  """
  # No path leads over a pad, since players cannot enter pads.
  reached, _ = flood(~walls & ~is_pad, stands[0], stands[:0])
  reaches_base = reached.reshape(-1)[stands[1]]
  return jnp.where(reaches_base, ~reached & ~is_pad, border)
