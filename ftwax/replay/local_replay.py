"""An in-process queue, with replay for auxiliary tasks.

It is the equivalent of Reverb's tables for a single process, without a server:
trajectories wait on the host in the order in which they were written, and those
that auxiliary tasks replay are on the device, in a functional replay.
"""

import collections
import functools
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import numpy as np

from ftwax import types
from ftwax.replay import (
  auxiliary_replay,
  gatherer,
  replay_options,
  samples,
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
    self._queue: collections.deque[gatherer.Gathered] = collections.deque()
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
    parts = self._take_columns()
    fresh = jax.device_put(_join([part.trajectory for part in parts]))
    replay, prediction = None, None
    if self._auxiliary is not None:
      # Added first, so that the first batch has something to replay.
      self._auxiliary_state = self._auxiliary.add(
        self._auxiliary_state,
        fresh,
        np.concatenate([part.reward_class for part in parts], axis=1),
      )
      self._auxiliary_state, replay, prediction = self._auxiliary.sample(
        self._auxiliary_state
      )
    set_priorities = None
    if replay is not None and self._options.prioritized:
      set_priorities = functools.partial(self._set_priorities, replay.slots)
    sizes = [part.reward_class.shape[1] for part in parts]
    return samples.ReplaySample(
      types.LearnerBatch(fresh, replay, prediction),
      np.repeat([part.variables_steps for part in parts], sizes),
      np.repeat([part.written_at for part in parts], sizes),
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

  def _write(self, gathered: gatherer.Gathered) -> None:
    if self.queue_size > self._max_queue_size:
      raise ValueError(
        f'the queue holds {self.queue_size} trajectories and must not hold more'
        f' than max_queue_size ({self._max_queue_size}) when more are added;'
        ' let a learner take a step first, or raise max_queue_size.'
      )
    self._queue.append(gathered)

  def _take_columns(self) -> list[gatherer.Gathered]:
    """Takes the oldest B trajectories from the queue, in one or more parts."""
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
    return parts


def _columns(gathered: gatherer.Gathered, columns: slice) -> gatherer.Gathered:
  """Selects some of E trajectories."""
  trajectory = gathered.trajectory
  steps = trajectory._replace(recurrent_state=())
  return gathered._replace(
    trajectory=jax.tree.map(lambda leaf: leaf[:, columns], steps)._replace(
      recurrent_state=jax.tree.map(
        lambda leaf: leaf[columns], trajectory.recurrent_state
      )
    ),
    reward_class=gathered.reward_class[:, columns],
  )


def _join(parts: Sequence[types.Trajectory]) -> types.Trajectory:
  """Concatenates trajectories along the batch axis."""
  if len(parts) == 1:
    return parts[0]

  def join(axis: int, *trees: Any) -> Any:
    return jax.tree.map(lambda *leaves: np.concatenate(leaves, axis), *trees)

  states = [part.recurrent_state for part in parts]
  joined: types.Trajectory = join(
    1, *[part._replace(recurrent_state=()) for part in parts]
  )
  return joined._replace(recurrent_state=join(0, *states))
