"""Batches for a learner that others ask how far it is."""

import threading
import time
from collections.abc import Callable, Iterator

import numpy as np

from ftwax.replay import samples
from ftwax.replay.reverb import tables

# Seconds without a batch after which none is expected soon.
_IDLE_S = 0.05

# Seconds that an actor waits for the learner at the most.
_MAX_WAIT_S = 5.0


class Ended(Exception):  # noqa: N818 It is no error.
  """No batch will come."""


class PatientIterator(Iterator[samples.ReplaySample]):
  """Waits for a batch in short spells, and calls a function between them.

  It knows how far learning is: a learner that asks for a batch has learned from
  the last one.
  """

  def __init__(
    self,
    dataset: Iterator[samples.ReplaySample],
    timeout_s: float,
    on_idle: Callable[[], None],
  ):
    """Wraps a dataset.

    Args:
      dataset: raises ReplayTimeoutError after a spell, and may be asked again.
      timeout_s: after which that error is let through.
      on_idle: called after each spell.
    """
    self._dataset = dataset
    self._timeout_s = timeout_s
    self._on_idle = on_idle
    # When the newest trajectories of the batch given last were written, and of
    # the last one that was learned from.
    self._given = self._learned = 0.0
    self._idle_since: float | None = None
    self._changed = threading.Condition()

  def wait_until_learned(self, written_at: float) -> None:
    """Waits until trajectories are learned from, or too few for a batch.

    Args:
      written_at: when they were written, as they themselves tell.
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
      # The newest of a batch, and of members the one that is behind.
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
            f'{error} (No batch came for {self._timeout_s:g} s.)'
          ) from error
        self._on_idle()
