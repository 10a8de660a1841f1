"""Reverb tables of trajectories.

An item is a flat tuple of columns, the leaves of `columns.Columns` in JAX's
order. Items of the other tables refer to those of the queue, so that
frames are stored once.

A table for reward prediction holds whole trajectories. The priority of each is
its number of sequences of the table's class, one of which is chosen after the
trajectory is sampled. All sequences are thus equally probable, and none is
stored twice.
"""

from typing import Any

import jax
import reverb
import tensorflow as tf

from ftwax import types
from ftwax.acme import columns as columns_lib
from ftwax.replay import replay_options, trajectories

QUEUE = 'queue'
REPLAY = 'replay'
REWARD_PREDICTION_ZERO = 'reward_prediction_zero'
REWARD_PREDICTION_NONZERO = 'reward_prediction_nonzero'

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


def make_auxiliary_tables(
  options: replay_options.ReplayOptions, template: types.Trajectory
) -> list[reverb.Table]:
  """Makes the tables other than the queue; none of them ever blocks a writer.

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
