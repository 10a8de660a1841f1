"""Recorded games as sequences for a learner.

The learner draws sequences uniformly. They begin with the core's state zero,
which is right at the start of an episode; elsewhere `burn_in` of a task leaves
out the first steps.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from ftwax import trees, types


def make_sequences(
  streams: Sequence[types.Streams], template: types.Trajectory
) -> types.Trajectory:
  """Cuts streams into sequences, each of which begins where one ends.

  Args:
    streams: of the template's specs.
    template: a trajectory of zeros, leaves [T + 1, ...]; see
      `trajectories.make_template`.

  Returns:
    NumPy arrays [T + 1 or T, S, ...], without values; the recurrent state, [S,
    ...], is zero.

  Raises:
    ValueError: if no stream has T + 1 steps.
  """
  length = len(template.timestep.step_type) - 1
  starts = [
    (stream, np.arange(0, stream.shape[0] - length, length))
    for stream in streams
  ]
  num_sequences = sum(len(s) * stream.shape[1] for stream, s in starts)
  if not num_sequences:
    longest = max((stream.shape[0] for stream in streams), default=0)
    raise ValueError(
      f'demonstrations (streams of at most {longest} steps) must have a'
      f' sequence of sequence_length ({length}) + 1 steps; record longer games,'
      f' or choose sequence_length={max(1, longest - 1)}.'
    )

  def cut(leaf: types.NumpyArray, start: types.NumpyArray) -> types.NumpyArray:
    windows = leaf[start[None] + np.arange(length + 1)[:, None]]
    joined: types.NumpyArray = windows.reshape(length + 1, -1, *leaf.shape[2:])
    return joined

  parts = [
    jax.tree.map(lambda leaf, start=start: cut(leaf, start), stream)
    for stream, start in starts
    if len(start)
  ]
  joined: types.Streams = jax.tree.map(
    lambda *leaves: np.concatenate(leaves, axis=1), *parts
  )
  logits, state, seed = trees.map_axes(
    lambda axis, leaf: np.zeros(
      (*leaf.shape[:axis], num_sequences, *leaf.shape[axis:]), leaf.dtype
    ),
    (1, 0, 1),
    (template.logits, template.recurrent_state, template.seed),
  )
  return types.Trajectory(*joined, logits, state, seed)


def sample(
  key: types.Key, sequences: types.Trajectory, batch_size: int
) -> types.ReplayBatch:
  """Returns sequences drawn with replacement, leaves [T + 1 or T, B, ...]."""
  num_sequences = sequences.timestep.step_type.shape[1]
  rows = jax.random.randint(key, (batch_size,), 0, num_sequences)

  drawn: types.Trajectory = trees.map_axes(
    lambda axis, leaf: jnp.take(leaf, rows, axis),
    types.Trajectory(1, 1, 1, 0, 1, 1),
    sequences,
  )
  return types.ReplayBatch(drawn, jnp.bool_(True))
