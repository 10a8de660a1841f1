"""Limits on the number of restarts of what fails.

The limits are those of ML-Agents' environments: ten in a life, one a minute.
"""

import math
import time
from collections.abc import Callable


class RestartsExceededError(RuntimeError):
  """Something failed too often."""


class RestartLimiter:
  """Counts the restarts of one thing."""

  def __init__(
    self,
    max_restarts: int = 10,
    period_s: float = 60.0,
    clock: Callable[[], float] = time.monotonic,
  ):
    """Starts with none.

    Args:
      max_restarts: in a life.
      period_s: within which one is allowed.
      clock: returns seconds.
    """
    self._max_restarts = max_restarts
    self._period_s = period_s
    self._clock = clock
    self._last_time = -math.inf
    self.num_restarts = 0

  def count(self, name: str, reason: object) -> None:
    """Counts a restart.

    Args:
      name: of what failed.
      reason: for which it failed.

    Raises:
      RestartsExceededError: it is one too many.
    """
    now = self._clock()
    seconds = now - self._last_time
    if self.num_restarts >= self._max_restarts:
      raise RestartsExceededError(
        f'{name} must fail no more than {self._max_restarts} times in a run,'
        f' and did once more: {reason}'
      )
    if seconds < self._period_s:
      raise RestartsExceededError(
        f'{name} must not fail twice within {self._period_s:g} s, and did after'
        f' {seconds:.0f} s: {reason}'
      )
    self.num_restarts += 1
    self._last_time = now
