"""The layout of a record in the columns of a table's item.

An item is one trajectory, written as a single step whose columns are whole
arrays: the cost of a column, which is high however small it is, is paid once
per trajectory, not once per step. Only the data that tables for reward
prediction refer to have their own columns. Everything else, mostly the many
small arrays of a recurrent state, is one column of bytes.

Reverb compresses data byte by byte. If little changes from frame to frame,
their differences are mostly zeros and compress better than frames.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
import numpy.typing as npt

from ftwax import trees, types
from ftwax.replay import trajectories


class Columns(NamedTuple):
  """The columns in which a record is stored.

  Attributes:
    observation: the trajectory's observations, leaves [T + 1, ...].
    reward: float32 [T + 1, ...], the trajectory's rewards.
    reward_class: int8 [T], the record's.
    rest: uint8 [num_bytes], all other leaves of the record, concatenated.
  """

  observation: types.ArrayTree
  reward: npt.NDArray[Any]
  reward_class: npt.NDArray[Any]
  rest: npt.NDArray[Any]


def make_record(trajectory: types.Trajectory) -> trajectories.Record:
  """Returns a record of zeros, without a batch axis.

  Args:
    trajectory: see `trajectories.make_template`.
  """
  return trajectories.Record(
    trajectory=trajectory,
    reward_class=np.zeros(len(trajectory.timestep.reward) - 1, np.int8),
    variables_steps=np.int64(0),
    written_at=np.float64(0.0),
  )


def make_template(trajectory: types.Trajectory) -> Columns:
  """Returns the columns of that record."""
  batch = trees.map_axes(
    lambda axis, leaf: np.expand_dims(leaf, axis),
    trajectories.BATCH_AXES,
    make_record(trajectory),
  )
  return trees.take(pack(batch), 0)


def pack(records: trajectories.Record) -> Columns:
  """Converts records, leaves [T + 1, E, ...], to columns, [E, T + 1, ...]."""
  records = trajectories.swap_batch(records)
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


def unpack(
  items: Sequence[Columns], template: trajectories.Record
) -> trajectories.Record:
  """Converts the columns of B items to records, for a learner.

  Args:
    items: columns of each item.
    template: see `make_record`.

  Returns:
    Records, leaves [T + 1, B, ...].
  """
  rest = trajectories.swap_batch(
    _unpack_rest(np.stack([item.rest for item in items]), template)
  )
  timestep = rest.trajectory.timestep._replace(
    observation=stack_sequences([item.observation for item in items]),
    reward=stack_sequences([item.reward for item in items]),
  )
  return rest._replace(
    trajectory=rest.trajectory._replace(timestep=timestep),
    reward_class=stack_sequences([item.reward_class for item in items]),
  )


def stack_sequences(sequences: Sequence[types.ArrayTree]) -> types.ArrayTree:
  """Stacks B trees with leaves [T, ...] to one with leaves [T, B, ...]."""
  return jax.tree.map(lambda *leaves: np.stack(leaves, axis=1), *sequences)


def encode_frames(observation: types.ArrayTree) -> types.ArrayTree:
  """Replaces all frames but the first by differences, leaves [T, ...].

  Only uint8 arrays are encoded, whose differences wrap around without loss.
  """

  def encode(leaf: npt.NDArray[Any]) -> npt.NDArray[Any]:
    if leaf.dtype != np.uint8:
      return leaf
    return np.concatenate([leaf[:1], leaf[1:] - leaf[:-1]])

  return jax.tree.map(encode, observation)


def decode_frames(observation: types.ArrayTree) -> types.ArrayTree:
  """Inverts `encode_frames`."""

  def decode(leaf: npt.NDArray[Any]) -> npt.NDArray[Any]:
    if leaf.dtype != np.uint8:
      return leaf
    # Sums modulo 256 undo differences modulo 256.
    return np.cumsum(leaf, axis=0, dtype=np.uint8)

  return jax.tree.map(decode, observation)


def _rest(record: trajectories.Record) -> trajectories.Record:
  """Returns the parts of a record without a column of their own."""
  trajectory = record.trajectory
  timestep = trajectory.timestep._replace(observation=(), reward=())
  return record._replace(
    trajectory=trajectory._replace(timestep=timestep), reward_class=()
  )


def _unpack_rest(
  rest: npt.NDArray[Any], template: trajectories.Record
) -> trajectories.Record:
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
  return jax.tree.unflatten(structure, unpacked)
