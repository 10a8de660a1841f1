"""Limits restarts of failing parts."""

import collections
import time
from collections.abc import Callable

# Consecutive identical failures after which restarting is pointless.
_MAX_SAME = 3


class RestartsExceededError(RuntimeError):
  """A part failed too often."""


class RestartLimiter:
  """Limits the rate of restarts of one part, or of several together."""

  def __init__(
    self,
    max_restarts: int,
    period_s: float,
    clock: Callable[[], float] = time.monotonic,
  ):
    """Starts without restarts.

    Args:
      max_restarts: number of restarts allowed within `period_s`.
      period_s: length of the period, in seconds.
      clock: returns the time in seconds.
    """
    self._max_restarts = max_restarts
    self._period_s = period_s
    self._clock = clock
    self._times: collections.deque[float] = collections.deque()
    self._error = ''
    self._num_same = 0
    self.num_restarts = 0

  def count(self, name: str, reason: object, error: str = '') -> None:
    """Counts a restart.

    Args:
      name: name of the part that failed.
      reason: reason of the failure.
      error: error that the part raised itself; the limit is exceeded if it is
        the same three times in a row. Empty if the part was killed from
        outside.

    Raises:
      RestartsExceededError: if the limit is exceeded.
    """
    now = self._clock()
    while self._times and now - self._times[0] >= self._period_s:
      self._times.popleft()
    if len(self._times) >= self._max_restarts:
      raise RestartsExceededError(
        f'{name} must not fail more than {self._max_restarts} times in'
        f' {self._period_s:g} s, but did: {reason}'
      )
    self._num_same = self._num_same + 1 if error == self._error else 1
    self._error = error
    if error and self._num_same >= _MAX_SAME:
      raise RestartsExceededError(
        f'{name} must not fail {_MAX_SAME} times in a row in the same way, but'
        f' did: {reason}'
      )
    self._times.append(now)
    self.num_restarts += 1
