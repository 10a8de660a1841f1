"""Renders board environments as images, in JAX."""

import jax.numpy as jnp
import numpy as np
from dm_env import specs

from ftwax import types
from ftwax.environments import functional

_NUM_CHANNELS = 3


def make(
  environment: functional.FunctionalEnvironment, size: int = 84
) -> functional.FunctionalEnvironment:
  """Renders the board that an environment observes as an image.

  Each square of the board becomes a block of gray pixels, from black for 0 to
  white for 1. Blocks are as large as the image allows, and the board is
  centered.

  Args:
    environment: environment whose observation is [rows, columns], with values
      in [0, 1].
    size: height and width of the image, in pixels.

  Returns:
    The same environment with observations uint8 [size, size, 3].

  Raises:
    ValueError: if the observation is not a board or has more squares than the
      image has pixels on a side.
  """
  shape = environment.spec.observations.shape
  if len(shape) != 2 or max(shape) > size:
    raise ValueError(
      f'observations (shape {shape}) must be two-dimensional with at most'
      f' {size} squares on each side; choose a larger size.'
    )
  block = [size // side for side in shape]
  margins = [
    size - side * length for side, length in zip(shape, block, strict=True)
  ]
  padding = [(margin // 2, margin - margin // 2) for margin in margins]

  def render(board: types.Array) -> types.Array:
    frame = (255 * board).astype(jnp.uint8)
    for axis, length in enumerate(block):
      frame = jnp.repeat(frame, length, axis)
    frame = jnp.pad(frame, padding)[..., None]
    return jnp.broadcast_to(frame, (size, size, _NUM_CHANNELS))

  frames = specs.BoundedArray(
    (size, size, _NUM_CHANNELS), np.uint8, 0, 255, 'frame'
  )
  return functional.see(environment, render, frames)
