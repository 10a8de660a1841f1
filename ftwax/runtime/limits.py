"""Limits restarts of failing parts."""

import collections
import time


class RestartLimiter:
  """Limits the rate of restarts of one part, or of several together."""

  def __init__(
    self, max_restarts: int, period_s: float, error: type[Exception]
  ):
    """Starts without restarts.

    Args:
      max_restarts: number of restarts allowed within `period_s`.
      period_s: length of the period, in seconds.
      error: what to raise if the limit is exceeded.
    """
    self._max_restarts = max_restarts
    self._period_s = period_s
    self._error = error
    self._times: collections.deque[float] = collections.deque()
    self.num_restarts = 0

  def count(self, name: str, reason: Exception | str) -> None:
    """Counts a restart; raises an error if the limit is exceeded.

    Args:
      name: name of the part that failed.
      reason: reason of the failure.
    """
    now = time.monotonic()
    while self._times and now - self._times[0] >= self._period_s:
      self._times.popleft()
    if len(self._times) >= self._max_restarts:
      cause = reason if isinstance(reason, Exception) else None
      raise self._error(
        f'{name} must not fail more than {self._max_restarts} times in'
        f' {self._period_s:g} s, but did: {reason}'
      ) from cause
    self._times.append(now)
    self.num_restarts += 1
