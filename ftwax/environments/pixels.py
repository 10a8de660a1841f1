"""Boards shown as frames, for agents that look."""

from typing import Any

import dm_env
import numpy as np

from ftwax import types


class PixelBoard(dm_env.Environment):
  """Shows an environment's board [rows, columns] as a frame of pixels.

  Each square becomes a block of pixels, as large as the frame allows, in the
  middle of the frame: white where the board is 1, black where it is 0.

  Args:
    environment: its observation is one board, between 0 and 1.
    size: height and width of the frame.

  Raises:
    ValueError: if the observation is no board or does not fit the frame.
  """

  def __init__(self, environment: dm_env.Environment, size: int = 84):
    self._environment = environment
    self._size = size
    shape: tuple[int, ...] = environment.observation_spec().shape
    if len(shape) != 2 or max(shape) > size:
      raise ValueError(
        f'observation_spec (shape {shape}) must be of a board of at most'
        f' {size} squares on each side; choose a larger size.'
      )
    self._block = tuple(size // side for side in shape)
    self._corner = tuple(
      (size - side * block) // 2
      for side, block in zip(shape, self._block, strict=True)
    )

  def observation_spec(self) -> types.SpecTree:
    """Returns the spec of the frame, uint8 [size, size, 3]."""
    return dm_env.specs.BoundedArray(
      (self._size, self._size, 3), np.uint8, 0, 255, 'frame'
    )

  def action_spec(self) -> types.SpecTree:
    """Returns the specs of the action."""
    return self._environment.action_spec()

  def reward_spec(self) -> types.SpecTree:
    """Returns the spec of the reward."""
    return self._environment.reward_spec()

  def discount_spec(self) -> types.SpecTree:
    """Returns the spec of the discount."""
    return self._environment.discount_spec()

  def reset(self) -> dm_env.TimeStep:
    """Returns the first timestep of a new episode."""
    return self._show(self._environment.reset())

  def step(self, action: Any) -> dm_env.TimeStep:
    """Returns the next timestep."""
    return self._show(self._environment.step(action))

  def close(self) -> None:
    """Closes the environment."""
    self._environment.close()

  def _show(self, timestep: dm_env.TimeStep) -> dm_env.TimeStep:
    board = (255 * np.asarray(timestep.observation)).astype(np.uint8)
    blocks = np.kron(board, np.ones(self._block, np.uint8))
    frame = np.zeros((self._size, self._size, 3), np.uint8)
    top, left = self._corner
    height, width = blocks.shape
    frame[top : top + height, left : left + width] = blocks[..., None]
    return timestep._replace(observation=frame)
