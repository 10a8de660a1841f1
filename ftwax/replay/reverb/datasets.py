"""Samples batches from Reverb ahead of the learner.

A thread samples trajectories, stacks them to time-major batches, adds the data
of auxiliary tasks, and transfers them to the device while the learner works on
the previous batch.
"""

import queue
import threading
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import reverb

from ftwax import types
from ftwax.replay import replay_options, samples
from ftwax.replay.reverb import (
  auxiliary_samplers,
  frames,
  native_log,
  tables,
  trajectory_columns,
)

# Seconds that the sampling thread waits for an item, or for space for a batch,
# before it checks whether to stop. The user's timeout applies in `__next__`.
_POLL_S = 0.2

# Seconds in which the thread usually ends, and that `close` waits after these
# if the server is alive.
_END_S = 0.5
_JOIN_S = 5.0

# Seconds within which a live server answers, an integer for Reverb.
_SERVER_S = 1


class TrajectoryIterator(Iterator[samples.ReplaySample]):
  """Iterates over batches, prefetched to the device."""

  def __init__(
    self,
    client: reverb.Client,
    template: trajectory_columns.Record,
    batch_size: int,
    timeout_s: float,
    prefetch_size: int,
    options: replay_options.ReplayOptions = replay_options.QUEUE_ALONE,
    device: jax.Device | None = None,
  ):
    """Starts sampling.

    Args:
      client: client of the server that holds the tables.
      template: a record with the shapes and dtypes of those to read.
      batch_size: B, trajectories in a batch.
      timeout_s: time in seconds within which a batch must arrive.
      prefetch_size: number of batches to prefetch, at least 1.
      options: options of the tables other than the queue.
      device: device of the batches; None for the default device.
    """
    self._client = client
    self._timeout_s = timeout_s
    self._template = template
    self._columns = trajectory_columns.make_columns_template(template)
    self._batch_size = batch_size
    self._device = device
    self._options = options
    self._replay = None
    if options.replay_capacity:
      self._replay = auxiliary_samplers.TableSampler(
        client, tables.REPLAY, self._columns
      )
    self._reward_prediction = None
    if options.reward_prediction_capacity:
      self._reward_prediction = auxiliary_samplers.RewardPredictionSampler(
        client,
        template,
        batch_size,
        options.sequences.num_frames,
        options.delta_encodes,
      )
    self._batches: queue.Queue[samples.ReplaySample | Exception] = queue.Queue(
      maxsize=prefetch_size
    )
    self._closed = threading.Event()
    self._thread = threading.Thread(
      target=self._run, name='sample_batches', daemon=True
    )
    self._thread.start()

  def __next__(self) -> samples.ReplaySample:
    """Returns the next batch.

    Raises:
      ReplayTimeoutError: if no batch arrives in time.
      Exception: the exception that ended the sampling thread, if any.
    """
    try:
      sample = self._batches.get(timeout=self._timeout_s)
    except queue.Empty:
      raise tables.timeout_error(
        self._client, tables.QUEUE, 'sample', self._timeout_s
      ) from None
    if isinstance(sample, Exception):
      raise sample
    return sample

  def close(self) -> None:
    """Stops the sampling thread; call it before the server stops.

    A sampler whose server is gone never returns; its thread is abandoned.
    """
    self._closed.set()
    self._thread.join(timeout=_END_S)
    if self._thread.is_alive() and self._is_server_alive():
      self._thread.join(timeout=_JOIN_S)
    for sampler in (self._replay, self._reward_prediction):
      if sampler is not None:
        sampler.close()

  def _is_server_alive(self) -> bool:
    try:
      self._client.server_info(timeout=_SERVER_S)
    except Exception:  # noqa: BLE001 Reverb raises several kinds.
      return False
    return True

  def _run(self) -> None:
    try:
      structure: Any = jax.tree.structure(self._columns)
      # Outlives samplers: a queue does not return an item a second time.
      items: list[trajectory_columns.Columns] = []
      for item in self._items():
        items.append(structure.unflatten(item))
        if len(items) == self._batch_size:
          self._put(self._make_sample(items))
          items = []
    except Exception as error:  # noqa: BLE001 Raised in `__next__`.
      self._put(error)

  def _put(self, sample: samples.ReplaySample | Exception) -> None:
    while not self._closed.is_set():
      try:
        self._batches.put(sample, timeout=_POLL_S)
        return
      except queue.Full:
        continue

  def _items(self) -> Iterator[Any]:
    """Yields items until closed; an idle sampler ends and is remade.

    Only one item is in flight: a sampler that times out drops the items that it
    has fetched ahead, which a queue does not return again.
    """
    dataset = tables.make_dataset(
      self._client,
      tables.QUEUE,
      self._columns,
      max_in_flight=1,
      timeout_s=_POLL_S,
    )
    while not self._closed.is_set():
      with native_log.filtered():
        iterator = dataset.as_numpy_iterator()
      for sample in iterator:
        yield sample.data
        if self._closed.is_set():
          return

  def _make_sample(
    self, items: list[trajectory_columns.Columns]
  ) -> samples.ReplaySample:
    fresh = self._unpack(items)
    batch = types.LearnerBatch(
      trajectory=fresh.trajectory,
      replay=self._sample_replay(),
      reward_prediction=(
        self._reward_prediction.sample() if self._reward_prediction else None
      ),
    )
    return samples.ReplaySample(
      batch=jax.device_put(batch, self._device),
      variables_steps=fresh.variables_steps,
      written_at=fresh.written_at,
    )

  def _sample_replay(self) -> types.ReplayBatch | None:
    if self._replay is None:
      return None
    items = self._replay.sample(self._batch_size)
    is_live = items is not None
    if items is None:
      items = [self._columns] * self._batch_size
    return types.ReplayBatch(self._unpack(items).trajectory, np.bool_(is_live))

  def _unpack(
    self, items: list[trajectory_columns.Columns]
  ) -> trajectory_columns.Record:
    if self._options.delta_encodes:
      items = [
        item._replace(observation=frames.decode(item.observation))
        for item in items
      ]
    return trajectory_columns.unpack(items, self._template)
