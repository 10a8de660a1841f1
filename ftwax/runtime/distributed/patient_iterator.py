"""Iterates over batches and tracks which trajectories are learned from."""

import threading
import time
from collections.abc import Callable, Iterator

import numpy as np

from ftwax.replay import samples
from ftwax.replay.reverb import tables

# Seconds without a batch after which none is expected soon.
_IDLE_S = 0.05

# Maximum seconds that an actor waits for the learner.
_MAX_WAIT_S = 5.0


class Ended(Exception):  # noqa: N818 Control flow, not an error.
  """No more batches will come."""


class PatientIterator(Iterator[samples.ReplaySample]):
  """Polls for a batch with short timeouts and calls a function in between.

  It also tracks the progress of learning: a learner that asks for a batch has
  learned from the previous one.
  """

  def __init__(
    self,
    dataset: Iterator[samples.ReplaySample],
    timeout_s: float,
    on_idle: Callable[[], None],
  ):
    """Wraps a dataset.

    Args:
      dataset: raises ReplayTimeoutError after a short timeout and can be polled
        again.
      timeout_s: seconds without a batch after which that error is reraised.
      on_idle: called after each short timeout.
    """
    self._dataset = dataset
    self._timeout_s = timeout_s
    self._on_idle = on_idle
    # Times at which the newest trajectories were written, of the last batch
    # returned and of the last batch learned from.
    self._given = self._learned = 0.0
    self._idle_since: float | None = None
    self._changed = threading.Condition()

  def wait_until_learned(self, written_at: float) -> None:
    """Waits for trajectories to be learned from.

    Returns early if there are too few trajectories for a batch.

    Args:
      written_at: time at which they were written, as recorded in them.
    """
    start = time.monotonic()
    with self._changed:
      while self._learned < written_at:
        now = time.monotonic()
        idle_s = now - max(start, self._idle_since or now)
        if idle_s >= _IDLE_S or now - start >= _MAX_WAIT_S:
          break
        self._changed.wait(_IDLE_S)

  def __next__(self) -> samples.ReplaySample:
    """Returns the next batch."""
    with self._changed:
      self._learned, self._idle_since = self._given, time.monotonic()
      self._changed.notify_all()
    sample = self._wait()
    with self._changed:
      # The newest trajectory of each member's batch, of the slowest member.
      self._given = float(np.min(np.max(sample.written_at, axis=-1)))
      self._idle_since = None
    return sample

  def _wait(self) -> samples.ReplaySample:
    start = time.monotonic()
    while True:
      try:
        return next(self._dataset)
      except tables.ReplayTimeoutError as error:
        if time.monotonic() - start > self._timeout_s:
          raise tables.ReplayTimeoutError(
            f'{error} (No batch arrived for {self._timeout_s:g} s.)'
          ) from error
        self._on_idle()
