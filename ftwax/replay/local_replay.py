"""An in-process queue, with replay for auxiliary tasks.

It is the equivalent of Reverb's tables for a single process, without a server:
trajectories wait on the host in the order in which they were written, and those
that auxiliary tasks replay are on the device, in a functional replay.
"""

import collections
import functools
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from ftwax import types
from ftwax.replay import (
  auxiliary_replay,
  gatherer,
  replay_options,
  samples,
  trajectories,
)


class LocalReplay(gatherer.TrajectoryGatherer, Iterator[samples.ReplaySample]):
  """Takes the timesteps of one agent's actors and yields its batches.

  It never waits and does not prefetch: a batch is made on request.
  """

  def __init__(
    self,
    template: types.Trajectory,
    num_environments: int,
    batch_size: int,
    max_queue_size: int,
    options: replay_options.ReplayOptions,
    auxiliary: auxiliary_replay.AuxiliaryReplay | None,
    key: types.Key,
  ):
    """Makes an empty replay.

    Args:
      template: a trajectory with the shapes and dtypes of those to write.
      num_environments: E, environments whose timesteps are gathered.
      batch_size: B, trajectories in a batch.
      max_queue_size: maximum number of queued trajectories when others are
        written.
      options: options of the replay for auxiliary tasks.
      auxiliary: functions of that replay, compiled or not, for B trajectories
        at a time; None without one.
      key: random key for sampling from it.
    """
    super().__init__(template, num_environments, options)
    self._batch_size = batch_size
    self._max_queue_size = max_queue_size
    self._auxiliary = auxiliary
    self._auxiliary_state: Any = auxiliary.init(key) if auxiliary else ()
    # Entries hold E trajectories each; `_num_taken` of the first entry have
    # been taken already.
    self._queue: collections.deque[trajectories.Record] = collections.deque()
    self._num_taken = 0

  @property
  def queue_size(self) -> int:
    """Number of queued trajectories."""
    return len(self._queue) * self._num_environments - self._num_taken

  def __next__(self) -> samples.ReplaySample:
    """Returns the next batch.

    Raises:
      ValueError: if fewer trajectories are queued than a batch needs.
    """
    if self.queue_size < self._batch_size:
      raise ValueError(
        f'the queue holds {self.queue_size} trajectories, but must hold'
        f' batch_size ({self._batch_size}) of them for an update; let an actor'
        ' add timesteps first.'
      )
    record = self._take()
    fresh = jax.device_put(record.trajectory)
    replay, prediction = None, None
    if self._auxiliary is not None:
      # Added first, so that the first batch has something to replay.
      self._auxiliary_state = self._auxiliary.add(
        self._auxiliary_state, fresh, record.reward_class
      )
      self._auxiliary_state, replay, prediction = self._auxiliary.sample(
        self._auxiliary_state
      )
    set_priorities = None
    if replay is not None and self._options.prioritized:
      set_priorities = functools.partial(self._set_priorities, replay.slots)
    return samples.ReplaySample(
      types.LearnerBatch(fresh, replay, prediction),
      record.variables_steps,
      record.written_at,
      set_priorities,
    )

  def _set_priorities(self, slots: Any, priorities: types.Array) -> None:
    assert self._auxiliary is not None
    self._auxiliary_state = self._auxiliary.update_priorities(
      self._auxiliary_state, slots, priorities
    )

  def save(self) -> Any:
    """Returns the replay for auxiliary tasks, a pytree, without the queue."""
    return self._auxiliary_state

  def restore(self, state: Any) -> None:
    """Replaces the replay for auxiliary tasks."""
    self._auxiliary_state = state

  def close(self) -> None:
    """Does nothing: there is neither a thread nor a server."""

  def insert(self, record: trajectories.Record) -> None:
    """Queues trajectories that were gathered elsewhere."""
    self._write(record)

  def _write(self, record: trajectories.Record) -> None:
    if self.queue_size > self._max_queue_size:
      raise ValueError(
        f'the queue holds {self.queue_size} trajectories and must not hold more'
        f' than max_queue_size ({self._max_queue_size}) when more are added;'
        ' let a learner take a step first, or raise max_queue_size.'
      )
    self._queue.append(record)

  def _take(self) -> trajectories.Record:
    """Takes the oldest B trajectories from the queue."""
    parts, missing = [], self._batch_size
    while missing:
      start = self._num_taken
      stop = min(self._num_environments, start + missing)
      parts.append(_columns(self._queue[0], slice(start, stop)))
      missing -= stop - start
      self._num_taken = stop
      if stop == self._num_environments:
        self._queue.popleft()
        self._num_taken = 0
    if len(parts) == 1:
      return parts[0]
    return trajectories.map_batch(
      lambda axis, *leaves: np.concatenate(leaves, axis), *parts
    )


def _columns(
  record: trajectories.Record, columns: slice
) -> trajectories.Record:
  """Selects some of E trajectories."""
  return trajectories.map_batch(
    lambda axis, leaf: leaf[:, columns] if axis else leaf[columns], record
  )
