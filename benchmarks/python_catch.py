"""Catch in NumPy, to measure what environments in Python cost."""

import dm_env
import numpy as np
from dm_env import specs


class Catch(dm_env.Environment):
  """Catch in NumPy, stepped as an environment in Python is."""

  def __init__(self, seed: int):
    self._rng = np.random.default_rng(seed)
    self._x = self._y = self._paddle = 0

  def reset(self) -> dm_env.TimeStep:
    """Drops a ball."""
    self._x, self._y, self._paddle = int(self._rng.integers(5)), 0, 2
    return dm_env.restart(self._board())

  def step(self, action: int) -> dm_env.TimeStep:
    """Moves the paddle; the ball falls by one row."""
    if self._y == 9:
      return self.reset()
    self._y += 1
    self._paddle = min(max(self._paddle + int(action) - 1, 0), 4)
    if self._y < 9:
      return dm_env.transition(0.0, self._board())
    return dm_env.termination(
      1.0 if self._x == self._paddle else -1.0, self._board()
    )

  def observation_spec(self) -> specs.BoundedArray:
    """Returns the spec of a board."""
    return specs.BoundedArray((10, 5), np.float32, 0.0, 1.0, 'board')

  def action_spec(self) -> specs.DiscreteArray:
    """Returns the spec of the moves: left, stay, right."""
    return specs.DiscreteArray(3)

  def _board(self) -> np.ndarray:
    board = np.zeros((10, 5), np.float32)
    board[self._y, self._x] = board[9, self._paddle] = 1.0
    return board
