"""Records of tables, and their layout in the columns of an item.

An item is one trajectory, written as a single step whose columns are whole
arrays: the cost of a column, which is high however small it is, is paid once
per trajectory, not once per step. Only the data that tables for reward
prediction refer to have their own columns. Everything else, mostly the many
small arrays of a recurrent state, is one column of bytes.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
import numpy.typing as npt

from ftwax import types


class Record(NamedTuple):
  """An item of a table: a trajectory and its origin.

  Attributes:
    trajectory: a trajectory without a batch axis.
    reward_class: int8 [T], see `trajectories.classify`.
    variables_steps: int64 [], learner steps of the behaviour policy.
    written_at: float64 [], seconds since the epoch.
  """

  trajectory: types.Trajectory
  reward_class: Any
  variables_steps: Any
  written_at: Any


class Columns(NamedTuple):
  """The columns in which a record is stored.

  Attributes:
    observation: the trajectory's observations, leaves [T + 1, ...].
    reward: float32 [T + 1, ...], the trajectory's rewards.
    reward_class: int8 [T], the record's.
    rest: uint8 [num_bytes], all other leaves of the record, concatenated.
  """

  observation: Any
  reward: Any
  reward_class: Any
  rest: Any


def make_template(trajectory: types.Trajectory) -> Record:
  """Returns a record of zeros with the shapes and dtypes of real ones.

  Args:
    trajectory: see `trajectories.make_template`.
  """
  return Record(
    trajectory=trajectory,
    reward_class=np.zeros(len(trajectory.timestep.reward) - 1, np.int8),
    variables_steps=np.int64(0),
    written_at=np.float64(0.0),
  )


def pack(records: Record) -> Columns:
  """Converts E records to columns.

  Args:
    records: leaves [E, ...].

  Returns:
    Columns, leaves [E, ...].
  """
  timestep = records.trajectory.timestep
  num_records = len(timestep.reward)
  rest = [  # [E, num_bytes] each.
    np.ascontiguousarray(leaf).reshape(num_records, -1).view(np.uint8)
    for leaf in jax.tree.leaves(_rest(records))
  ]
  return Columns(
    timestep.observation,
    timestep.reward,
    records.reward_class,
    np.concatenate(rest, axis=1),
  )


def unpack(items: Sequence[Columns], template: Record) -> Record:
  """Converts the columns of B items to records, for a learner.

  Args:
    items: columns of each item.
    template: a record with their shapes and dtypes.

  Returns:
    Records whose trajectories have leaves [T + 1, B, ...] or [T, B, ...]; the
    recurrent state and the other fields have leaves [B, ...].
  """
  rest = _unpack_rest(np.stack([item.rest for item in items]), template)
  trajectory = jax.tree.map(
    lambda leaf: leaf.swapaxes(0, 1),
    rest.trajectory._replace(recurrent_state=()),
  )
  timestep = trajectory.timestep._replace(
    observation=stack_sequences([item.observation for item in items]),
    reward=stack_sequences([item.reward for item in items]),
  )
  return rest._replace(
    trajectory=trajectory._replace(
      timestep=timestep, recurrent_state=rest.trajectory.recurrent_state
    ),
    reward_class=np.stack([item.reward_class for item in items]),
  )


def make_columns_template(template: Record) -> Columns:
  """Returns the columns of a single record."""
  one = pack(jax.tree.map(lambda leaf: np.asarray(leaf)[None], template))
  columns: Columns = jax.tree.map(lambda leaf: leaf[0], one)
  return columns


def stack_sequences(sequences: Sequence[types.ArrayTree]) -> types.ArrayTree:
  """Stacks B trees with leaves [T, ...] to one with leaves [T, B, ...]."""
  return jax.tree.map(lambda *leaves: np.stack(leaves, axis=1), *sequences)


def _rest(record: Record) -> Record:
  """Returns the parts of a record without a column of their own."""
  trajectory = record.trajectory
  timestep = trajectory.timestep._replace(observation=(), reward=())
  return record._replace(
    trajectory=trajectory._replace(timestep=timestep), reward_class=()
  )


def _unpack_rest(rest: npt.NDArray[Any], template: Record) -> Record:
  """Converts bytes [B, num_bytes] to the leaves of records, [B, ...]."""
  leaves, structure = jax.tree.flatten(_rest(template))
  ends = np.cumsum([leaf.nbytes for leaf in leaves]).tolist()
  unpacked = [
    # A copy, since a view with another dtype needs contiguous, aligned bytes.
    np.ascontiguousarray(rest[:, end - leaf.nbytes : end])
    .view(leaf.dtype)
    .reshape(len(rest), *leaf.shape)
    for leaf, end in zip(leaves, ends, strict=True)
  ]
  record: Record = jax.tree.unflatten(structure, unpacked)
  return record
