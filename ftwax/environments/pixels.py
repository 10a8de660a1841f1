"""Boards shown as frames in JAX, for agents that look."""

import jax.numpy as jnp
import numpy as np
from dm_env import specs

from ftwax.environments import functional

_NUM_CHANNELS = 3


def make(
  environment: functional.FunctionalEnvironment, size: int = 84
) -> functional.FunctionalEnvironment:
  """Shows an environment's board [rows, columns] as a frame of pixels.

  Each square becomes a block of pixels, as large as the frame allows, in the
  middle of the frame: white where the board is 1, black where it is 0.

  Args:
    environment: its observation is one board, between 0 and 1.
    size: height and width of the frame.

  Returns:
    The same environment; its observation is uint8 [size, size, 3].

  Raises:
    ValueError: if the observation is no board or does not fit the frame.
  """
  shape = environment.spec.observations.shape
  if len(shape) != 2 or max(shape) > size:
    raise ValueError(
      f'observations (shape {shape}) must be of a board of at most {size}'
      ' squares on each side; choose a larger size.'
    )
  block = [size // side for side in shape]
  margins = [
    size - side * length for side, length in zip(shape, block, strict=True)
  ]
  padding = [(margin // 2, margin - margin // 2) for margin in margins]

  def show(timestep):
    frame = (255 * timestep.observation).astype(jnp.uint8)
    for axis, length in enumerate(block):
      frame = jnp.repeat(frame, length, axis)
    frame = jnp.pad(frame, padding)[..., None]
    return timestep._replace(
      observation=jnp.broadcast_to(frame, (size, size, _NUM_CHANNELS))
    )

  def reset(key):
    state, timestep = environment.reset(key)
    return state, show(timestep)

  def step(state, action):
    state, timestep = environment.step(state, action)
    return state, show(timestep)

  frames = specs.BoundedArray(
    (size, size, _NUM_CHANNELS), np.uint8, 0, 255, 'frame'
  )
  return functional.FunctionalEnvironment(
    environment.spec._replace(observations=frames), reset, step
  )
