"""The 'rays' observation: what a player sees ahead of it, in first person.

`num_rays` rays leave the center of the player's cell, at equal angles over
`view_angle` degrees around its heading, from left to right. For each of
`features.CHANNELS` a ray has one number: the nearness, 1 / (1 + distance in
cells), of the first cell with that thing which it enters before the first wall,
or 0. Things in the player's own cell are at distance 0. Players and pads hide
nothing. Then come `features.SCALARS`; without `compass`, positions of flags and
stands that no ray hits are 0. The view of a player that waits is empty.

Which cells a ray enters, and where, depends on the heading alone, so tables
have it: Amanatides & Woo (1987, "A fast voxel traversal algorithm for ray
tracing"), done once.
"""

import functools
from typing import NamedTuple, TypeAlias

import jax.numpy as jnp
import numpy as np
from numpy import typing as npt

from ftwax import types
from ftwax.environments.capture_the_flag import features, maps, rules, views
from ftwax.environments.capture_the_flag import game_config as config_lib

_Config: TypeAlias = config_lib.CaptureTheFlagConfig

# Times of crossings that differ by less are those of one corner.
_SAME_TIME = 1e-9


class Ray(NamedTuple):
  """The cells that a ray enters, of which there are `n`, the nearest first.

  Attributes:
    ahead: int32 [n], cells ahead of the player.
    right: int32 [n], cells to its right.
    distance: float64 [n], where the ray enters each, in cells from its start.
  """

  ahead: npt.NDArray[np.int32]
  right: npt.NDArray[np.int32]
  distance: npt.NDArray[np.float64]


def angles(config: _Config) -> npt.NDArray[np.float64]:
  """Returns the angles of rays to the heading, in radians, [num_rays]."""
  share = (np.arange(config.num_rays) + 0.5) / config.num_rays - 0.5
  return np.deg2rad(config.view_angle) * share


def num_features(config: _Config) -> int:
  """Returns the length of the vector."""
  num_scalars = len(features.scalar_names(config))
  return len(features.CHANNELS) * config.num_rays + num_scalars


def observe(state: rules.State, config: _Config) -> types.Array:
  """Returns the observation of each player, float32 [P, num_features]."""
  things = views.locate(state, config)
  nearness = cast(state, config, things)
  in_view = jnp.any(nearness[:, -4:] > 0, axis=-1)
  parts = [nearness.reshape(config.num_players, -1)]
  parts += features.scalars(state, things, in_view, config)
  return jnp.concatenate([part.astype(jnp.float32) for part in parts], axis=1)


def cast(
  state: rules.State, config: _Config, things: views.Things | None = None
) -> types.Array:
  """Returns the nearness of what each ray hits.

  Args:
    state: positions and walls.
    config: config of the game.
    things: from `views.locate`; found from the state if None.

  Returns:
    float32 [P, num_channels, num_rays], in the order of `features.CHANNELS`.
  """
  offset = (things or views.locate(state, config)).offset  # [P, 2, K]
  cells, nearness = _walls(config)
  crossed = state.cell[:, None, None] + jnp.asarray(cells)[state.direction]
  # Beyond the border, cell numbers continue in another row, but that is later.
  tiles = jnp.take(state.map.tiles.reshape(-1), crossed, mode='clip')
  wall = jnp.max(jnp.where(tiles == maps.WALL, nearness, 0.0), axis=1)
  seen = jnp.asarray(_things(config))[_row(offset[:, 0], offset[:, 1], config)]
  is_there = (state.waiting == 0)[views.others(config)]
  is_there = jnp.pad(is_there, ((0, 0), (0, 4)), constant_values=True)
  is_seen = is_there[..., None] & (seen > wall[:, None])
  seen = jnp.where(is_seen, seen, 0.0)  # [P, K, num_rays]
  num_mates = config.team_size - 1
  players = [seen[:, :num_mates], seen[:, num_mates:-4]]
  channels = [
    wall,
    *(jnp.max(group, axis=1, initial=0.0) for group in players),
    *jnp.unstack(seen[:, -4:], axis=1),
  ]
  is_active = (state.waiting == 0)[:, None, None]
  return jnp.where(is_active, jnp.stack(channels, axis=1), 0.0)


def trace(angle: float, reach: int) -> Ray:
  """Returns the cells that a ray enters within `reach` cells on each axis.

  Args:
    angle: angle to the heading, in radians, less than a quarter turn to either
      side.
    reach: most cells ahead, and to the side.
  """
  # A border between cells is crossed at each half.
  halves = np.arange(reach + 1) + 0.5
  with np.errstate(divide='ignore'):
    times = np.concatenate(
      [halves / np.cos(angle), halves / np.abs(np.sin(angle))]
    )
  order = np.argsort(times, kind='stable')
  is_ahead, times = order <= reach, times[order]
  ahead: types.NumpyArray = np.cumsum(is_ahead)
  right: types.NumpyArray = np.cumsum(~is_ahead)
  # Through a corner, a ray enters the cell behind it alone.
  is_entered: types.NumpyArray = np.append(
    times[:-1] < times[1:] - _SAME_TIME, True
  )
  is_entered &= (ahead <= reach) & (right <= reach) & np.isfinite(times)
  right = right * int(np.sign(angle))
  return Ray(
    ahead[is_entered].astype(np.int32),
    right[is_entered].astype(np.int32),
    times[is_entered],
  )


def _reach(config: _Config) -> int:
  """Returns the number of cells to the farthest wall along an axis."""
  return max(config.height, config.width) - 2


@functools.lru_cache
def _walls(
  config: _Config,
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float32]]:
  """Returns the cells that rays enter, as far as there may be a map.

  Returns:
    What the n-th cell of a ray adds to the number of the player's cell, int32
    [4, n, num_rays] by direction, and its nearness, float32 [n, num_rays].
  """
  found = [trace(angle, _reach(config)) for angle in angles(config)]
  limits = np.array([config.height - 2, config.width - 2])
  longest = max(len(ray.ahead) for ray in found)
  cells = np.zeros((4, longest, len(found)), np.int32)
  nearness = np.zeros(cells.shape[1:], np.float32)
  is_inside = np.zeros(cells.shape, bool)
  for index, ray in enumerate(found):
    num_cells = len(ray.ahead)
    nearness[:num_cells, index] = 1 / (1 + ray.distance)
    for direction in range(4):
      ahead, right = maps.STEPS[direction], maps.STEPS[(direction + 1) % 4]
      offset = ray.ahead[:, None] * ahead + ray.right[:, None] * right
      cells[direction, :num_cells, index] = offset @ [config.width, 1]
      is_inside[direction, :num_cells, index] = (abs(offset) <= limits).all(1)
  # No ray of any player enters more cells before the border.
  longest = int(is_inside.sum(axis=1).max())
  return cells[:, :longest], nearness[:longest]


@functools.lru_cache
def _things(config: _Config) -> npt.NDArray[np.float32]:
  """Returns the nearness of things, float32 [num_rows, num_rays]; see `_row`.

  The last row is that of things which no ray can reach.
  """
  reach = _reach(config)
  table = np.zeros(
    ((reach + 1) * (2 * reach + 1) + 1, config.num_rays), np.float32
  )
  table[reach] = 1.0  # In the player's own cell.
  for index, angle in enumerate(angles(config)):
    ray = trace(angle, reach)
    rows = ray.ahead * (2 * reach + 1) + ray.right + reach
    table[rows, index] = 1 / (1 + ray.distance)
  return table


def _row(
  ahead: types.Array, right: types.Array, config: _Config
) -> types.Array:
  """Returns rows of `_things` for cells ahead and to the right, int32 [...]."""
  reach = _reach(config)
  row = ahead * (2 * reach + 1) + right + reach
  return jnp.where(ahead < 0, (reach + 1) * (2 * reach + 1), row)
