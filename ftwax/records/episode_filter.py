"""A filter that bounds the size of the training log."""

import math
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ftwax.records import log_values

if TYPE_CHECKING:
  from ftwax.records import loggers

# Values that count from the start of a run, or identify a part of it. Merged
# rows keep the last of these, while other numbers are averaged.
_LAST = ('actor_steps', 'episodes', 'learner_steps', 'seconds', 'actor')

_NUM_EPISODES = 'num_episodes'


class EpisodeFilter:
  """Merges rows of training episodes that follow each other too quickly.

  A fast environment ends hundreds of episodes per second, which would fill the
  disk. Merging loses no episode: `num_episodes` is summed, and other numbers
  are averaged over episodes, so that means over many rows do not change. Counts
  of the run and strings are those of the last row. A mean over a non-finite
  value is non-finite.
  """

  def __init__(
    self,
    to: 'loggers.Logger',
    min_seconds: float,
    num_unmerged: int = 1000,
    clock: Callable[[], float] = time.monotonic,
  ):
    """Wraps `to`.

    Args:
      to: the logger to write to.
      min_seconds: minimum number of seconds between two writes.
      num_unmerged: number of first rows that are never merged, so that the log
        of a short run has a row per episode.
      clock: returns seconds.
    """
    self._to = to
    self._min_seconds = min_seconds
    self._num_unmerged = num_unmerged
    self._clock = clock
    self._next_time = -math.inf
    self._merged = _Merged()

  def write(self, values: log_values.LoggingData) -> None:
    """Writes a row, or merges it with the next ones."""
    self._merged.add(log_values.to_plain(values))
    if self._num_unmerged:
      self._num_unmerged -= 1
    else:
      now = self._clock()
      if now < self._next_time:
        return
      self._next_time = now + self._min_seconds
    self._flush()

  def close(self) -> None:
    """Writes the pending rows and closes the logger."""
    if self._merged.num_rows:
      self._flush()
    self._to.close()

  def _flush(self) -> None:
    row = self._merged.row()
    self._merged = _Merged()
    self._to.write(row)


class _Merged:
  """Rows to be written as a single row."""

  def __init__(self) -> None:
    self.num_rows = 0
    self._last: dict[str, Any] = {}
    self._num_episodes = 0
    # Sums over episodes and numbers of episodes, by name. Lists are summed
    # elementwise.
    self._sums: dict[str, tuple[Any, int]] = {}

  def add(self, row: dict[str, Any]) -> None:
    """Adds a row of plain values."""
    num_episodes = row.get(_NUM_EPISODES, 1)
    self.num_rows += 1
    self._num_episodes += num_episodes
    self._last.update(row)
    for name, value in row.items():
      if name in _LAST or not isinstance(value, int | float | list):
        continue
      if isinstance(value, list):
        value = np.asarray(value, np.float64)
      total, num_before = self._sums.get(name, (0.0, 0))
      self._sums[name] = (
        total + num_episodes * value,
        num_before + num_episodes,
      )

  def row(self) -> dict[str, Any]:
    """Returns the merged row; a single row is unchanged."""
    if self.num_rows == 1:
      return self._last
    means = {
      name: total / max(num_episodes, 1)
      for name, (total, num_episodes) in self._sums.items()
    }
    return self._last | means | {_NUM_EPISODES: self._num_episodes}
