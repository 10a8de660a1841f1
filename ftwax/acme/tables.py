"""Reverb tables of trajectories.

An item is a flat tuple of columns, the leaves of `columns.Columns` in JAX's
order. Items of the other tables refer to those of the queue, so that
frames are stored once.

A table for reward prediction holds whole trajectories. The priority of each is
its number of sequences of the table's class, one of which is chosen after the
trajectory is sampled. All sequences are thus equally probable, and none is
stored twice.
"""

import collections
from typing import Any

import jax
import numpy as np
import numpy.typing as npt
import reverb
import tensorflow as tf

from ftwax import types
from ftwax.acme import columns as columns_lib
from ftwax.acme import native_log
from ftwax.replay import replay_options, trajectories

QUEUE = 'queue'
REPLAY = 'replay'
LARGEST_PRIORITY = 'largest_priority'
REWARD_PREDICTION_ZERO = 'reward_prediction_zero'
REWARD_PREDICTION_NONZERO = 'reward_prediction_nonzero'

# Seconds within which a live server answers, an integer for Reverb.
_ANSWER_S = 10

# Reward class of each table; see `trajectories`.
REWARD_PREDICTION = {
  REWARD_PREDICTION_NONZERO: trajectories.NONZERO,
  REWARD_PREDICTION_ZERO: trajectories.ZERO,
}


def make_signature(template: Any) -> tuple[tf.TensorSpec, ...]:
  """Returns the shape and dtype of each column."""
  return tuple(
    tf.TensorSpec(leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(template)
  )


def make_queue(
  name: str, max_size: int, template: types.Trajectory
) -> reverb.Table:
  """Makes a first-in first-out table in which each item is used once.

  Args:
    name: name of the table.
    max_size: maximum number of items; an insert into a full queue waits.
    template: see `trajectories.make_template`.

  Returns:
    The table, for a `reverb.Server`.
  """
  return reverb.Table.queue(
    name,
    max_size=max_size,
    signature=make_signature(columns_lib.make_template(template)),
  )


def make_prioritized_tables(
  options: replay_options.Prioritized,
  template: types.Trajectory,
  rate_limiter: reverb.rate_limiters.RateLimiter,
) -> list[reverb.Table]:
  """Makes the tables of an agent that learns by priority, in place of a queue.

  An item of the first is a trajectory with those before it. The sampling
  exponent of a Reverb table is fixed, and that of an agent may evolve:
  priorities have it applied, and the table's is one.

  The second holds nothing but one item, with the priority of new trajectories.

  Args:
    options: sizes.
    template: see `trajectories.make_template`.
    rate_limiter: when to insert and to sample.

  Returns:
    The tables.
  """
  first_in_first_out = reverb.selectors.Fifo
  return [
    reverb.Table(
      REPLAY,
      sampler=reverb.selectors.Prioritized(priority_exponent=1.0),
      remover=first_in_first_out(),
      max_size=options.capacity,
      max_times_sampled=0,
      rate_limiter=rate_limiter,
      signature=make_signature(
        sequence_columns(columns_lib.make_template(template), options)
      ),
    ),
    reverb.Table(
      LARGEST_PRIORITY,
      sampler=first_in_first_out(),
      remover=first_in_first_out(),
      max_size=1,
      max_times_sampled=0,
      rate_limiter=reverb.rate_limiters.MinSize(1),
    ),
  ]


def sequence_columns(
  columns: columns_lib.Columns, options: replay_options.Prioritized | None
) -> tuple[columns_lib.Columns, ...]:
  """Returns the columns of an item: of its burn-in, and of its trajectory.

  Args:
    columns: of a trajectory.
    options: how long burn-ins are; None for an item of the queue.
  """
  return (columns,) * (1 + (options.burn_in if options else 0))


def first_table(options: replay_options.ReplayOptions) -> str:
  """Returns the name of the table that the agent itself learns from."""
  return REPLAY if options.prioritized else QUEUE


class Priorities:
  """The priorities of a table's items."""

  def __init__(
    self, client: reverb.Client, options: replay_options.Prioritized
  ):
    """Takes the client of the server, and the size of the table."""
    self._client = client
    self._capacity = options.capacity
    self._recent: collections.deque[float] = collections.deque()
    self._largest = 0.0

  def update(
    self, keys: npt.NDArray[Any], priorities: npt.NDArray[Any]
  ) -> None:
    """Sets the priorities of items, and those that new items will have.

    New items get the largest priority of as many samples as the table has
    items. Priorities that are not finite are skipped, and so are items that the
    table holds no more.

    Args:
      keys: uint64 [B].
      priorities: float32 [B].
    """
    is_set = np.isfinite(priorities)
    updates = dict(
      zip(keys[is_set].tolist(), priorities[is_set].tolist(), strict=True)
    )
    if not updates:
      return
    self._client.mutate_priorities(REPLAY, updates=updates)
    self._recent.append(max(updates.values()))
    while len(self._recent) * len(keys) > max(self._capacity, len(keys)):
      self._recent.popleft()
    largest = max(self._recent)
    if largest != self._largest:
      self._client.insert([np.int8(0)], {LARGEST_PRIORITY: largest})
      self._largest = largest


class LargestPriority:
  """Reads the priority of new trajectories."""

  def __init__(self, client: reverb.Client):
    """Takes the client of the server."""
    self._client = client
    self._num_set = 0
    self._value = 1.0

  def read(self) -> float:
    """Returns the priority; one before any was learned.

    This asks the server once, and a second time where the priority is new.
    """
    info = self._client.server_info(timeout=_ANSWER_S)[LARGEST_PRIORITY]
    num_set = info.rate_limiter_info.insert_stats.completed
    if num_set != self._num_set:
      self._value = self._sample() if info.current_size else 1.0
      self._num_set = num_set
    return self._value

  def _sample(self) -> float:
    with native_log.filtered():
      (steps,) = self._client.sample(LARGEST_PRIORITY)
    return float(steps[0].info.priority)


def make_auxiliary_tables(
  options: replay_options.ReplayOptions, template: types.Trajectory
) -> list[reverb.Table]:
  """Makes the tables of auxiliary tasks; none of them ever blocks a writer.

  Args:
    options: which tables to make.
    template: see `trajectories.make_template`.

  Returns:
    The tables, in which new items replace the oldest.
  """
  columns = columns_lib.make_template(template)

  def make(name: str, sampler: Any, capacity: int, template: Any) -> Any:
    return reverb.Table(
      name,
      sampler=sampler,
      remover=reverb.selectors.Fifo(),
      max_size=capacity,
      rate_limiter=reverb.rate_limiters.MinSize(1),
      signature=make_signature(template),
    )

  tables = []
  if options.replay_capacity:
    uniform = reverb.selectors.Uniform()
    tables.append(make(REPLAY, uniform, options.replay_capacity, columns))
  if options.reward_prediction_capacity:
    # Each trajectory has at least one sequence, so this capacity suffices.
    tables.extend(
      make(
        name,
        reverb.selectors.Prioritized(priority_exponent=1.0),
        options.reward_prediction_capacity,
        reward_prediction_columns(columns),
      )
      for name in REWARD_PREDICTION
    )
  return tables


def reward_prediction_columns(
  columns: columns_lib.Columns,
) -> tuple[Any, ...]:
  """Returns observation, reward and reward class, for reward prediction."""
  return columns[:3]


def make_dataset(
  client: reverb.Client,
  table: str,
  template: Any,
  max_in_flight: int,
  timeout_s: float | None = None,
) -> reverb.TrajectoryDataset:
  """Makes a dataset of the items of a table, in the order of their sampling.

  Args:
    client: client of the server that holds the table.
    table: name of the table.
    template: an item with the shapes and dtypes of those to read.
    max_in_flight: number of items fetched ahead.
    timeout_s: seconds without an item after which an iterator ends; None waits
      forever.
  """
  signature = make_signature(template)
  return reverb.TrajectoryDataset(
    server_address=client.server_address,
    table=table,
    dtypes=tuple(spec.dtype for spec in signature),
    shapes=tuple(spec.shape for spec in signature),
    max_in_flight_samples_per_worker=max_in_flight,
    num_workers_per_iterator=1,
    rate_limiter_timeout_ms=-1 if timeout_s is None else int(1000 * timeout_s),
  )


class ReplayTimeoutError(TimeoutError):
  """Raised if an insert into a table or a sample from it takes too long."""


def timeout_error(
  client: reverb.Client, table: str, action: str, timeout_s: float
) -> ReplayTimeoutError:
  """Makes an error with the name and the statistics of a table."""
  try:
    info = client.server_info(timeout=5)[table]
    statistics = (
      f'it holds {info.current_size} of {info.max_size} items, after'
      f' {info.rate_limiter_info.insert_stats.completed} inserts and'
      f' {info.rate_limiter_info.sample_stats.completed} samples'
    )
  except Exception as error:  # noqa: BLE001 The server may be gone as well.
    statistics = f'its server does not answer ({type(error).__name__})'
  remedy = {
    'insert': 'check that a learner samples from it, or raise its max_size',
    'sample': 'check that actors insert into it',
  }[action]
  return ReplayTimeoutError(
    f'table {table!r} must {action} within {timeout_s:g} s and did not:'
    f' {statistics}; {remedy}.'
  )
