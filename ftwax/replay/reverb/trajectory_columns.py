"""The records of tables, and their layout in the columns of an item.

An item is one trajectory, written as one step whose columns are whole arrays:
the price of a column, which is high however little it holds, is paid once a
trajectory, not once a step. Only what the tables for reward prediction refer to
has columns of its own. All the rest, most of it the many small arrays of a
recurrent state, is one column of bytes.
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
    trajectory: without a batch axis.
    reward_class: int8 [T], see `trajectories.classify`.
    variables_steps: int64, learner steps of the policy that acted.
    written_at: float64, seconds since the epoch.
  """

  trajectory: types.Trajectory
  reward_class: Any
  variables_steps: Any
  written_at: Any


class Columns(NamedTuple):
  """The columns that a record is stored in.

  Attributes:
    observation: of the trajectory, leaves [T + 1, ...].
    reward: of the trajectory.
    reward_class: of the record.
    rest: uint8 [num_bytes], all other leaves of the record, in a row.
  """

  observation: Any
  reward: Any
  reward_class: Any
  rest: Any


def make_template(trajectory: types.Trajectory) -> Record:
  """Returns a record of zeros in the shapes and dtypes of real ones.

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
  """Returns the columns of E records.

  Args:
    records: leaves [E, ...], each as that of one record.

  Returns:
    Columns, leaves [E, ...].
  """
  timestep = records.trajectory.timestep
  num_records = len(timestep.reward)
  rest = [
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
  """Returns B records, as a learner takes them.

  Args:
    items: their columns.
    template: a record in their shapes.

  Returns:
    Records whose trajectories have leaves [T + 1, B, ...] or [T, B, ...]; in
    the recurrent state and beside the trajectory leaves are [B, ...].
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
  """Returns the columns of one record."""
  one = pack(jax.tree.map(lambda leaf: np.asarray(leaf)[None], template))
  columns: Columns = jax.tree.map(lambda leaf: leaf[0], one)
  return columns


def stack_sequences(sequences: Sequence[types.ArrayTree]) -> types.ArrayTree:
  """Stacks B trees with leaves [T, ...] to one with leaves [T, B, ...]."""
  return jax.tree.map(lambda *leaves: np.stack(leaves, axis=1), *sequences)


def _rest(record: Record) -> Record:
  """Returns what of a record has no column of its own."""
  trajectory = record.trajectory
  timestep = trajectory.timestep._replace(observation=(), reward=())
  return record._replace(
    trajectory=trajectory._replace(timestep=timestep), reward_class=()
  )


def _unpack_rest(rest: npt.NDArray[Any], template: Record) -> Record:
  """Returns what lies in bytes [B, num_bytes], leaves [B, ...]."""
  leaves, structure = jax.tree.flatten(_rest(template))
  ends = np.cumsum([leaf.nbytes for leaf in leaves]).tolist()
  unpacked = [
    np.ascontiguousarray(rest[:, end - leaf.nbytes : end])
    .view(leaf.dtype)
    .reshape(len(rest), *leaf.shape)
    for leaf, end in zip(leaves, ends, strict=True)
  ]
  record: Record = jax.tree.unflatten(structure, unpacked)
  return record
