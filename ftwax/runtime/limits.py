"""Limits on the restarts of what fails."""

import collections
import time
from collections.abc import Callable

# Ends of the same kind, one after the other, that show that it will not do.
_MAX_SAME = 3


class RestartsExceededError(RuntimeError):
  """Something failed too often."""


class RestartLimiter:
  """Judges restarts by their rate: of one thing, or of many alike together."""

  def __init__(
    self,
    max_restarts: int,
    period_s: float,
    clock: Callable[[], float] = time.monotonic,
  ):
    """Starts with none.

    Args:
      max_restarts: allowed within `period_s`.
      period_s: seconds.
      clock: returns seconds.
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
      name: of what failed.
      reason: for which it failed.
      error: that it raised itself; the same one three times in a row is not
        waited out. Empty if it was ended from outside.

    Raises:
      RestartsExceededError: it is one too many.
    """
    now = self._clock()
    while self._times and now - self._times[0] >= self._period_s:
      self._times.popleft()
    if len(self._times) >= self._max_restarts:
      raise RestartsExceededError(
        f'{name} must fail no more than {self._max_restarts} times in'
        f' {self._period_s:g} s, and did once more: {reason}'
      )
    self._num_same = self._num_same + 1 if error == self._error else 1
    self._error = error
    if error and self._num_same >= _MAX_SAME:
      raise RestartsExceededError(
        f'{name} must not fail {_MAX_SAME} times in a row in the same way, and'
        f' did: {reason}'
      )
    self._times.append(now)
    self.num_restarts += 1
