"""Samples batches from Reverb ahead of the learner.

A thread samples trajectories, stacks them to time-major batches, adds the data
of auxiliary tasks, and transfers them to the device while the learner works on
the previous batch.

The tables of auxiliary tasks may be empty at the start and, for rare rewards,
for a long time. Then a sampler returns zeros, marked as not live, and does not
wait.
"""

import queue
import threading
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
import numpy.typing as npt
import reverb

from ftwax import types
from ftwax.acme import columns as columns_lib
from ftwax.acme import native_log, tables
from ftwax.replay import replay_options, trajectories

# Seconds that the sampling thread waits for an item, or for space for a batch,
# before it checks whether to stop. The user's timeout applies in `__next__`.
_POLL_S = 0.2

# Seconds in which the thread usually ends, and that `close` waits after these
# if the server is alive.
_END_S = 0.5
_JOIN_S = 5.0

# Seconds within which a live server answers, an integer for Reverb.
_SERVER_S = 1


class SampleInfo(NamedTuple):
  """How a batch was sampled by priority.

  Attributes:
    keys: uint64 [B], keys of the items.
    probability: float32 [B], with which each was sampled.
    table_size: number of items from which the last was sampled.
  """

  keys: npt.NDArray[Any]
  probability: npt.NDArray[Any]
  table_size: int


class ReplaySample(NamedTuple):
  """A batch and the origin of its trajectories.

  Attributes:
    batch: on the device; leaves [T + 1, B, ...] or [T, B, ...], and [B, ...] in
      the recurrent state.
    variables_steps: int64 [B], learner steps of the behaviour policies.
    written_at: float64 [B], seconds since the epoch.
    info: how it was sampled; None for a batch of the queue.
  """

  batch: types.LearnerBatch
  variables_steps: npt.NDArray[Any]
  written_at: npt.NDArray[Any]
  info: SampleInfo | None = None


class TrajectoryIterator(Iterator[ReplaySample]):
  """Iterates over batches, prefetched to the device."""

  def __init__(
    self,
    client: reverb.Client,
    template: types.Trajectory,
    batch_size: int,
    timeout_s: float = 60.0,
    prefetch_size: int = 1,
    options: replay_options.ReplayOptions = replay_options.QUEUE_ALONE,
  ):
    """Starts sampling.

    Args:
      client: client of the server that holds the tables.
      template: see `trajectories.make_template`.
      batch_size: B, trajectories in a batch.
      timeout_s: time in seconds within which a batch must arrive.
      prefetch_size: number of batches to prefetch, at least 1.
      options: options of the tables other than the queue.
    """
    self._client = client
    self._timeout_s = timeout_s
    self._template = columns_lib.make_record(template)
    self._columns = columns_lib.make_template(template)
    self._table = tables.first_table(options)
    self._item = tables.sequence_columns(self._columns, options.prioritized)
    self._batch_size = batch_size
    self._options = options
    self._replay = None
    if options.replay_capacity:
      self._replay = TableSampler(client, tables.REPLAY, self._columns)
    self._reward_prediction = None
    if options.reward_prediction_capacity:
      self._reward_prediction = RewardPredictionSampler(
        client,
        template,
        batch_size,
        options.sequences.num_frames,
        options.delta_encodes,
      )
    self._batches: queue.Queue[ReplaySample | Exception] = queue.Queue(
      maxsize=prefetch_size
    )
    self._closed = threading.Event()
    self._thread = threading.Thread(
      target=self._run, name='sample_batches', daemon=True
    )
    self._thread.start()

  def __next__(self) -> ReplaySample:
    """Returns the next batch.

    Raises:
      ReplayTimeoutError: if no batch arrives in time.
      Exception: the exception that ended the sampling thread, if any.
    """
    try:
      sample = self._batches.get(timeout=self._timeout_s)
    except queue.Empty:
      raise tables.timeout_error(
        self._client, self._table, 'sample', self._timeout_s
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
      # Outlives samplers: a queue does not return an item a second time.
      items: list[reverb.ReplaySample] = []
      for item in self._items():
        items.append(item)
        if len(items) == self._batch_size:
          self._put(self._make_sample(items))
          items = []
    except Exception as error:  # noqa: BLE001 Raised in `__next__`.
      self._put(error)

  def _put(self, sample: ReplaySample | Exception) -> None:
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
      self._table,
      self._item,
      max_in_flight=1,
      timeout_s=_POLL_S,
    )
    while not self._closed.is_set():
      with native_log.filtered():
        iterator = dataset.as_numpy_iterator()
      for sample in iterator:
        yield sample
        if self._closed.is_set():
          return

  def _make_sample(self, items: list[reverb.ReplaySample]) -> ReplaySample:
    structure: Any = jax.tree.structure(self._item)
    # Of each trajectory of a sequence, the columns of all items.
    *burn_in, last = map(
      list,
      zip(*(structure.unflatten(item.data) for item in items), strict=True),
    )
    fresh = self._unpack(last)
    batch = types.LearnerBatch(
      trajectory=fresh.trajectory,
      burn_in=tuple(self._unpack(part).trajectory for part in burn_in),
      replay=self._sample_replay(),
      reward_prediction=(
        self._reward_prediction.sample() if self._reward_prediction else None
      ),
    )
    sample = ReplaySample(
      batch=jax.device_put(batch),
      variables_steps=fresh.variables_steps,
      written_at=fresh.written_at,
    )
    if self._options.prioritized is None:
      return sample
    infos = [item.info for item in items]
    return sample._replace(
      info=SampleInfo(
        np.array([info.key for info in infos], np.uint64),
        np.array([info.probability for info in infos], np.float32),
        int(infos[-1].table_size),
      )
    )

  def _sample_replay(self) -> types.ReplayBatch | None:
    if self._replay is None:
      return None
    items = self._replay.sample(self._batch_size)
    is_live = items is not None
    if items is None:
      items = [self._columns] * self._batch_size
    return types.ReplayBatch(self._unpack(items).trajectory, np.bool_(is_live))

  def _unpack(self, items: list[columns_lib.Columns]) -> trajectories.Record:
    if self._options.delta_encodes:
      items = [
        item._replace(observation=columns_lib.decode_frames(item.observation))
        for item in items
      ]
    return columns_lib.unpack(items, self._template)


def can_sample(client: reverb.Client, table: str) -> bool:
  """Returns whether a table holds any item."""
  info = client.server_info(timeout=10)[table]
  return bool(info.current_size > 0)


class TableSampler:
  """Samples items, with replacement, from a table that may be empty."""

  def __init__(self, client: reverb.Client, table: str, template: Any):
    """Makes a sampler.

    Args:
      client: client of the server that holds the table.
      table: name of the table.
      template: an item with the shapes and dtypes of those to read.
    """
    self._client = client
    self._table = table
    self._structure: Any = jax.tree.structure(template)
    self._template = template
    self._items: Iterator[Any] | None = None

  def sample(self, num_items: int) -> list[Any] | None:
    """Returns items in the structure of the template; None if it is empty."""
    if self._items is None:
      # Once filled, these tables never become empty again.
      if not can_sample(self._client, self._table):
        return None
      dataset = tables.make_dataset(
        self._client, self._table, self._template, num_items
      )
      self._items = iter(dataset.as_numpy_iterator())
    return [
      self._structure.unflatten(next(self._items).data)
      for _ in range(num_items)
    ]

  def close(self) -> None:
    """Stops sampling; call it before the server stops."""
    self._items = None


class RewardPredictionSampler:
  """Samples short sequences, half of them before a nonzero reward.

  If all rewards are of one class, all sequences are of that class.
  """

  def __init__(
    self,
    client: reverb.Client,
    template: types.Trajectory,
    batch_size: int,
    num_frames: int,
    is_delta_encoded: bool,
  ):
    """Makes a sampler.

    Args:
      client: client of the server that holds the two tables.
      template: see `trajectories.make_template`.
      batch_size: B, sequences in a batch.
      num_frames: observations in a sequence.
      is_delta_encoded: whether frames are delta-encoded; see `columns`.
    """
    columns = tables.reward_prediction_columns(
      columns_lib.make_template(template)
    )
    self._samplers = {
      name: TableSampler(client, name, columns)
      for name in tables.REWARD_PREDICTION
    }
    self._num_frames = num_frames
    self._is_delta_encoded = is_delta_encoded
    # Chooses a sequence within a trajectory.
    self._rng = np.random.default_rng(0)
    num_nonzero = -(-batch_size // 2)
    self._num_items = {
      tables.REWARD_PREDICTION_NONZERO: num_nonzero,
      tables.REWARD_PREDICTION_ZERO: batch_size - num_nonzero,
    }
    observation, reward, _ = columns
    self._zeros = types.RewardPredictionBatch(
      observation=jax.tree.map(
        lambda leaf: np.zeros(
          (num_frames, batch_size, *leaf.shape[1:]), leaf.dtype
        ),
        observation,
      ),
      reward=np.zeros((batch_size, *reward.shape[1:]), np.float32),
      is_live=np.bool_(False),
    )

  def sample(self) -> types.RewardPredictionBatch:
    """Returns a batch, which is live unless both tables are empty."""
    sequences: list[Any] = []
    for name, num_items in self._num_items.items():
      if num_items:
        sampled = self._sample_kind(name, num_items)
        if sampled is None:
          return self._zeros
        sequences += sampled
    observations, rewards = zip(*sequences, strict=True)
    return types.RewardPredictionBatch(
      observation=columns_lib.stack_sequences(observations),
      reward=np.stack(rewards),
      is_live=np.bool_(True),
    )

  def _sample_kind(self, name: str, num_items: int) -> list[Any] | None:
    """Returns sequences of the table's class, or else of the other one."""
    others = [other for other in tables.REWARD_PREDICTION if other != name]
    for table in (name, *others):
      items = self._samplers[table].sample(num_items)
      if items is not None:
        wanted = tables.REWARD_PREDICTION[table]
        return [self._choose(item, wanted) for item in items]
    return None

  def close(self) -> None:
    """Stops sampling; call it before the server stops."""
    for sampler in self._samplers.values():
      sampler.close()

  def _choose(self, item: Sequence[Any], wanted: int) -> tuple[Any, Any]:
    """Returns the frames of one of an item's sequences, and its reward."""
    observation, reward, reward_class = item
    if self._is_delta_encoded:
      observation = columns_lib.decode_frames(observation)
    end = self._rng.choice(np.flatnonzero(reward_class == wanted))
    # The class at `end` is that of the reward after it; see `classify`.
    begin = end + 1 - self._num_frames
    return (
      jax.tree.map(lambda leaf: leaf[begin : end + 1], observation),
      reward[end + 1],
    )
