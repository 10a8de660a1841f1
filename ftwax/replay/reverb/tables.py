"""Reverb tables of trajectories.

An item is one trajectory, written as one step whose columns are whole arrays
[T + 1, ...]: the price of a column is paid once a trajectory, not once a step.
Columns are a flat tuple, the leaves of a `Record` in the order of JAX. Items of
the other tables refer to the same columns, so frames are stored once.
"""

from typing import Any, NamedTuple

import dm_env
import jax
import numpy as np
import reverb
import tensorflow as tf

from ftwax import distributions, types
from ftwax.replay.reverb import reward_sequences

QUEUE = 'queue'
REPLAY = 'replay'
REWARD_PREDICTION_ZERO = 'reward_prediction_zero'
REWARD_PREDICTION_NONZERO = 'reward_prediction_nonzero'

# Class of `reward_sequences` that each table is for.
REWARD_PREDICTION = {
  REWARD_PREDICTION_NONZERO: reward_sequences.NONZERO,
  REWARD_PREDICTION_ZERO: reward_sequences.ZERO,
}


class Record(NamedTuple):
  """What a table holds: a trajectory and where it came from.

  Attributes:
    trajectory: without a batch axis.
    reward_class: int8 [T], see `reward_sequences.classify`.
    variables_steps: int64, learner steps of the policy that acted.
    written_at: float64, seconds since the epoch.
  """

  trajectory: types.Trajectory
  reward_class: Any
  variables_steps: Any
  written_at: Any


class ReplayOptions(NamedTuple):
  """How trajectories are kept, in the queue and beside it.

  Attributes:
    replay_capacity: trajectories in the table that is sampled uniformly; 0 for
      no such table.
    reward_prediction_capacity: sequences in each of the two tables for reward
      prediction, at the least; 0 for no such tables.
    sequences: which sequences there are.
    delta_encodes: whether frames are stored as differences; see `frames`.
  """

  replay_capacity: int = 0
  reward_prediction_capacity: int = 0
  sequences: reward_sequences.Sequences = reward_sequences.Sequences(3, 1)
  delta_encodes: bool = False


QUEUE_ALONE = ReplayOptions()


def make_template(
  environment_spec: types.EnvironmentSpec,
  recurrent_state: types.RecurrentState,
  sequence_length: int,
) -> Record:
  """Returns a record of zeros in the shapes and dtypes of real ones.

  Args:
    environment_spec: tells observations and actions.
    recurrent_state: state of the core, leaves [B, ...] of any B.
    sequence_length: T, transitions in a trajectory.

  Returns:
    A record of NumPy arrays.
  """
  timestep = dm_env.TimeStep(
    step_type=np.zeros(sequence_length + 1, np.int32),
    reward=np.zeros(
      (sequence_length + 1, *environment_spec.rewards.shape), np.float32
    ),
    discount=np.zeros(sequence_length + 1, np.float32),
    observation=types.zeros_like_spec(
      environment_spec.observations, (sequence_length + 1,)
    ),
  )
  trajectory = types.Trajectory(
    timestep=timestep,
    previous_action=distributions.no_action(
      environment_spec.actions, (sequence_length + 1,)
    ),
    logits=distributions.zero_logits(
      environment_spec.actions, (sequence_length,)
    ),
    recurrent_state=jax.tree.map(
      lambda leaf: np.zeros(leaf.shape[1:], leaf.dtype), recurrent_state
    ),
  )
  return Record(
    trajectory=trajectory,
    reward_class=np.zeros(sequence_length, np.int8),
    variables_steps=np.int64(0),
    written_at=np.float64(0.0),
  )


def make_signature(template: Any) -> tuple[tf.TensorSpec, ...]:
  """Returns the shape and dtype of each column."""
  return tuple(
    tf.TensorSpec(leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(template)
  )


def make_queue(name: str, max_size: int, template: Record) -> reverb.Table:
  """Makes a first-in first-out table in which each item is used once.

  Args:
    name: of the table.
    max_size: items it holds; an insert into a full queue waits.
    template: a record in the shapes of those to come.

  Returns:
    The table, to be given to a `reverb.Server`.
  """
  return reverb.Table.queue(
    name, max_size=max_size, signature=make_signature(template)
  )


def make_auxiliary_tables(
  options: ReplayOptions, template: Record
) -> list[reverb.Table]:
  """Makes the tables beside the queue; none of them ever blocks a writer.

  Args:
    options: which there are.
    template: a record in the shapes of those to come.

  Returns:
    The tables, in which the oldest items make room for new ones.
  """

  def make(name, sampler, capacity, record):
    return reverb.Table(
      name,
      sampler=sampler,
      remover=reverb.selectors.Fifo(),
      max_size=capacity,
      rate_limiter=reverb.rate_limiters.MinSize(1),
      signature=make_signature(record),
    )

  made = []
  if options.replay_capacity:
    uniform = reverb.selectors.Uniform()
    made.append(make(REPLAY, uniform, options.replay_capacity, template))
  if options.reward_prediction_capacity:
    # A trajectory is kept for at least one sequence.
    made.extend(
      make(
        name,
        reverb.selectors.Prioritized(priority_exponent=1.0),
        options.reward_prediction_capacity,
        reward_prediction_columns(template),
      )
      for name in REWARD_PREDICTION
    )
  return made


def reward_prediction_columns(record: Record) -> tuple[Any, ...]:
  """Returns what reward prediction reads of a record: references, in order."""
  timestep = record.trajectory.timestep
  return timestep.observation, timestep.reward, record.reward_class


class ReplayTimeoutError(TimeoutError):
  """An insert or a sample that did not come through in time."""


def timeout_error(
  client: reverb.Client, table: str, action: str, timeout_s: float
) -> ReplayTimeoutError:
  """Returns an error that names the table and tells its statistics."""
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
    'insert': 'see that a learner samples from it, or raise its max_size',
    'sample': 'see that actors insert into it',
  }[action]
  return ReplayTimeoutError(
    f'table {table!r} must {action} within {timeout_s:g} s and did not:'
    f' {statistics}; {remedy}.'
  )
