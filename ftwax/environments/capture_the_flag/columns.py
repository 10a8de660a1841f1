"""The 'columns' observation: the rays of a player as a picture.

Each ray is a column of pixels, and what it hits is a strip around the horizon,
as high as it is near, darker the farther. Walls are as high as a cell is wide;
players, flags and stands are lower, and hide what is behind them. The own team
is blue and the opponents are red. While a cue tells that a game is reversed,
pictures are negatives.
"""

from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from ftwax import types
from ftwax.environments.capture_the_flag import game_config as config_lib
from ftwax.environments.capture_the_flag import rays, rules

_Config: TypeAlias = config_lib.CaptureTheFlagConfig


class _Strip(NamedTuple):
  """A strip: its color, and its top and bottom as fractions of a wall's height.

  Fractions count from the horizon up; a wall is from -0.5 to 0.5.
  """

  color: tuple[int, int, int]
  top: float
  bottom: float


# In the order of `features.CHANNELS`.
_STRIPS = {
  'wall': _Strip((150, 146, 158), 0.5, -0.5),
  'teammates': _Strip((28, 74, 190), 0.2, -0.5),
  'opponents': _Strip((190, 38, 30), 0.2, -0.5),
  'own_flag': _Strip((70, 130, 255), 0.45, 0.2),
  'enemy_flag': _Strip((255, 90, 70), 0.45, 0.2),
  'own_stand': _Strip((96, 128, 196), -0.4, -0.5),
  'enemy_stand': _Strip((196, 104, 96), -0.4, -0.5),
}
_SKY, _FLOOR = (206, 216, 226), (198, 190, 172)

# At least the number of strips, sky and floor.
_NUM_CODES = 16

# Nearness is told apart in so many steps.
_NEARNESS_STEPS = 2**20

# Distance in cells at which a color has half of its light.
_HALF_LIGHT = 12.0


def shape(config: _Config) -> tuple[int, int, int]:
  """Returns the shape of a picture."""
  return (2 * config.num_rays // 3, config.num_rays, 3)


def observe(state: rules.State, config: _Config) -> types.Array:
  """Draws what each player sees, uint8 [P, height, num_rays, 3].

  Pictures are black for players that wait on their pads.
  """
  image = draw(rays.cast(state, config), config)
  is_active = (state.waiting == 0)[:, None, None, None]
  image = jnp.where(is_active, image, 0)
  if config.cue_steps:
    image = jnp.where(rules.cue(state) < 0, 255 - image, image)
  return image


def look(
  state: rules.State, seat: types.Array, config: _Config, height: int
) -> types.Array:
  """Draws what a player sees in the colors of the map, for films.

  Args:
    state: state of one game.
    seat: seat of the player, int32 [].
    config: config of the game; its number of rays does not matter.
    height: height of the picture, in pixels.

  Returns:
    uint8 [height, width, 3].
  """
  # Pixels of a picture with more columns than a config has rays are larger.
  scale = -(-3 * height // (2 * config_lib.MAX_RAYS))
  rows = -(-height // scale)
  config = config.replace(num_rays=-(-3 * rows // 2))
  near = rays.cast(state, config)[seat]
  # Team 0 is blue on the map, whoever looks.
  swapped = near[np.array([0, 2, 1, 4, 3, 6, 5])]
  is_second = jnp.asarray(rules.team_of_players(config))[seat] == 1
  image = draw(jnp.where(is_second, swapped, near)[None], config)[0]
  return image.repeat(scale, 0).repeat(scale, 1)[:height]


def draw(nearness: types.Array, config: _Config) -> types.Array:
  """Draws rays.

  Args:
    nearness: from `rays.cast`, [P, num_channels, num_rays].
    config: config of the game.

  Returns:
    uint8 [P, height, num_rays, 3].
  """
  height, width, _ = shape(config)
  distance = 1 / jnp.maximum(nearness, 1e-3) - 1
  # As far as a screen is, along the heading: straight walls look straight.
  depth = distance * np.cos(rays.angles(config))[None, None]
  size = width / np.deg2rad(config.view_angle) / jnp.maximum(depth, 1e-3)
  keys = _keys(nearness)
  # Without barriers XLA computes what belongs to a ray for each of its pixels.
  size, keys = jax.lax.optimization_barrier((size, keys))
  # Heights above the horizon in pixels, [1, height, 1].
  pixel = (height / 2 - 0.5 - np.arange(height, dtype=np.float32))[
    None, :, None
  ]
  # The nearest strip in each pixel; sky and floor, the last two, behind all.
  key = jnp.where(pixel > 0, len(_STRIPS), len(_STRIPS) + 1)
  for index, strip in enumerate(_STRIPS.values()):
    high = size[:, index, None]
    is_here = (pixel < strip.top * high) & (pixel > strip.bottom * high)
    key = jnp.maximum(key, jnp.where(is_here, keys[:, index, None], 0))
  colors = np.array([strip.color for strip in _STRIPS.values()])
  light = _HALF_LIGHT / (_HALF_LIGHT + distance)
  shades = light[..., None] * colors[None, :, None]  # [P, channels, width, 3]
  ground = np.array([_SKY, _FLOOR])[None, :, None]
  ground = np.broadcast_to(ground, (len(nearness), 2, width, 3))
  shades = jnp.concatenate([shades, ground], axis=1).astype(jnp.uint8)
  shades, code = jax.lax.optimization_barrier((shades, key % _NUM_CODES))
  return jnp.take_along_axis(shades, code[..., None], axis=1)


def _keys(nearness: types.Array) -> types.Array:
  """Returns integers that are larger the nearer, with their strip as rest."""
  # No thing hides its own cell.
  nearness = jnp.where(nearness < 1, nearness, 0.0)
  steps = jnp.round(nearness * _NEARNESS_STEPS).astype(jnp.int32)
  return steps * _NUM_CODES + np.arange(len(_STRIPS))[None, :, None]
