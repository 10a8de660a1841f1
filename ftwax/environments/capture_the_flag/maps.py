"""Maps: symmetric, drawn from a key, every base reachable from the other.

A map is a grid of tiles inside a border of walls. Team 0 has its base on the
left, team 1 at its image on the right, under a mirror or a half turn, either
with probability one half. Walls stand on a lattice of posts two cells apart,
each of which reaches one cell in a random direction, so that a map is full of
short walls and loops. What the flood from one base does not reach is walled
up; should it miss the other base, the map is left open.

Cells are counted row by row: cell `row * width + column`.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ftwax import types
from ftwax.environments.capture_the_flag import game_config as config_lib

FLOOR, WALL, PAD, STAND = range(4)

# Compass, clockwise; turning right adds one.
NORTH, EAST, SOUTH, WEST = range(4)

# Rows and columns that one step in each direction adds.
STEPS = np.array([[-1, 0], [0, 1], [1, 0], [0, -1]], np.int32)

# A base on the left: rows around its centre, and columns, that are kept free.
_BASE_ROWS = 2
_BASE_COLUMNS = range(1, 5)
_STAND_COLUMN = 3
_PAD_COLUMN = 1
_PAD_ROWS = np.array([-1, 1, -2, 2])


class Map(NamedTuple):
  """Where things are for a whole game.

  Attributes:
    tiles: int8 [height, width].
    stands: int32 [2], the cell in which each team's flag stands.
    pads: int32 [P], the cell in which each player appears; none can enter it.
  """

  tiles: types.Array
  stands: types.Array
  pads: types.Array


def make_map(key: types.Key, config: config_lib.CaptureTheFlagConfig) -> Map:
  """Draws a map."""
  wall_key, row_key, symmetry_key = jax.random.split(key, 3)
  base_row = jax.random.randint(
    row_key, (), 1 + _BASE_ROWS, config.height - 1 - _BASE_ROWS
  )
  image = _image_of_cells(config, jax.random.bernoulli(symmetry_key))
  stand = base_row * config.width + _STAND_COLUMN
  pads = (base_row + _PAD_ROWS[: config.team_size]) * config.width + _PAD_COLUMN
  stands = jnp.stack([stand, image[stand]]).astype(jnp.int32)
  pads = jnp.concatenate([pads, image[pads]]).astype(jnp.int32)
  border = _border(config)
  closed = _make_symmetric(_draw_walls(wall_key, config), image)
  left_base = _left_base(config, base_row)
  closed &= ~(left_base | left_base.reshape(-1)[image].reshape(closed.shape))
  walls = _wall_up(closed | border, border, stands, pads)
  tiles = jnp.where(walls, WALL, FLOOR).reshape(-1)
  tiles = tiles.at[pads].set(PAD).at[stands].set(STAND)
  return Map(tiles.reshape(walls.shape).astype(jnp.int8), stands, pads)


def is_walkable(tiles: types.Array) -> types.Array:
  """Returns where a player can go; pads can only be left."""
  return (tiles == FLOOR) | (tiles == STAND)


def flood(is_open: types.Array, start: types.Array) -> types.Array:
  """Returns the number of steps from `start` to each cell.

  Args:
    is_open: bool [height, width], false all along the border.
    start: int32 [], a cell, reached even if it is not open.

  Returns:
    int32 [height, width], `height * width` where it is never reached.
  """
  never = is_open.size
  at_start = jnp.arange(never).reshape(is_open.shape) == start

  def spread(carry):
    distance, num_steps, _ = carry
    reached = distance < never
    new = (
      is_open
      & ~reached
      & (
        jnp.roll(reached, 1, 0)
        | jnp.roll(reached, -1, 0)
        | jnp.roll(reached, 1, 1)
        | jnp.roll(reached, -1, 1)
      )
    )
    return jnp.where(new, num_steps, distance), num_steps + 1, jnp.any(new)

  start_distance = jnp.where(at_start, 0, never).astype(jnp.int32)
  distance, _, _ = jax.lax.while_loop(
    lambda carry: carry[2],
    spread,
    (start_distance, jnp.int32(1), jnp.bool_(True)),
  )
  return distance


def _image_of_cells(config, is_turned):
  """Returns int32 [height * width], each cell's image; its own inverse."""
  cells = np.arange(config.height * config.width, dtype=np.int32)
  grid = cells.reshape(config.height, config.width)
  return jnp.where(is_turned, cells[::-1], grid[:, ::-1].reshape(-1))


def _make_symmetric(grid, image):
  """Makes each cell of a bool grid the same as its image, the upper or left."""
  cells = jnp.arange(grid.size)
  return grid.reshape(-1)[jnp.minimum(cells, image)].reshape(grid.shape)


def _border(config):
  border = np.ones((config.height, config.width), bool)
  border[1:-1, 1:-1] = False
  return border


def _left_base(config, base_row):
  """Returns bool [height, width], true in team 0's base."""
  rows = jnp.arange(config.height)[:, None]
  columns = np.arange(config.width)[None]
  in_columns = np.isin(columns, _BASE_COLUMNS)
  return (jnp.abs(rows - base_row) <= _BASE_ROWS) & in_columns


def _draw_walls(key, config):
  """Returns bool [height, width]: posts, each with an arm in one direction."""
  post_key, arm_key = jax.random.split(key)
  shape = (config.height // 2 + 1, config.width // 2 + 1)
  posts = jax.random.bernoulli(post_key, config.wall_density, shape)
  arms = jax.random.randint(arm_key, shape, 0, 4)
  walls = jnp.zeros((config.height, config.width), bool)
  walls = walls.at[::2, ::2].set(posts)
  for direction, step in enumerate(STEPS):
    arm = jnp.zeros_like(walls).at[::2, ::2].set(posts & (arms == direction))
    walls |= jnp.roll(arm, step, (0, 1))
  return walls


def _wall_up(walls, border, stands, pads):
  """Closes what cannot be reached, or opens all if a base cannot be."""
  is_pad = jnp.zeros(walls.size, bool).at[pads].set(True).reshape(walls.shape)
  distance = flood(~walls & ~is_pad, stands[0])
  reached = distance < walls.size
  reaches_base = reached.reshape(-1)[stands[1]]
  return jnp.where(reaches_base, ~reached & ~is_pad, border)
