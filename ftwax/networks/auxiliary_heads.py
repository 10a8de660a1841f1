"""Heads of auxiliary tasks: pixel control and reward prediction.

See Jaderberg et al., "Reinforcement learning with unsupervised auxiliary
tasks", 2017 (arXiv:1611.05397), sections 3.1 and 3.2. Default sizes are those
of the FTW agent (Jaderberg et al., 2019, arXiv:1807.01281, supplement,
architecture).
"""

import math
from typing import Any

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np

from ftwax import types
from ftwax.networks import convolutions

# Rows and columns of cells for FTW: 80x80 frames and 4x4 cells.
GRID_SHAPE = (20, 20)

NUM_REWARD_CLASSES = 3


class PixelControlHead(hk.Module):
  """Computes action values of changing each cell of an image or a signal.

  A dueling head: two branches compute the value of a cell and the advantages of
  the actions (Wang et al., 2016, arXiv:1511.06581): Q = V + A - mean_a A. Each
  part of an action has its own advantages.
  """

  def __init__(
    self,
    num_actions: Any,
    grid_shape: tuple[int, ...] = GRID_SHAPE,
    num_channels: int = 32,
    name: str | None = None,
  ):
    """Makes a head.

    Args:
      num_actions: number of choices of each part of the action, in the
        action's structure; see `distributions.num_actions`.
      grid_shape: rows and columns of cells, or (cells,) of a signal, for which
        all convolutions have one dimension.
      num_channels: channels of the hidden feature maps.
      name: name of the module.

    Raises:
      ValueError: if there is no cell or no channel.
    """
    super().__init__(name)
    if min(grid_shape) < 1 or num_channels < 1:
      raise ValueError(
        f'grid_shape ({grid_shape}) and num_channels ({num_channels}) of a'
        ' pixel control head must be at least 1; the FTW agent has'
        f' grid_shape={GRID_SHAPE} and num_channels=32.'
      )
    self._num_actions = num_actions
    self._grid_shape = tuple(grid_shape)
    self._num_channels = num_channels

  def __call__(self, features: types.Array) -> types.ArrayTree:
    """Maps features [B, num_features] to action values.

    Args:
      features: [B, num_features]; merge time into the batch before.

    Returns:
      [B, rows, columns, num_actions], or [B, cells, num_actions] of a signal,
      for each part of the action.
    """
    # `_enlarge` triples the sides; 20x20 starts from 7x7 and is cropped.
    small = [-(-side // 3) for side in self._grid_shape]
    channels = self._num_channels
    x = jax.nn.relu(hk.Linear(math.prod(small) * channels)(features))
    x = _enlarge(x.reshape(-1, *small, channels))  # [B, ..., channels]
    cells: Any = slice(None), *map(slice, self._grid_shape)
    x = jax.nn.relu(x[cells])
    # One convolution computes both branches.
    num_outputs = 1 + sum(jax.tree.leaves(self._num_actions))
    x = _convolve(x, num_outputs, 4, name='values')
    return _combine_branches(x, self._num_actions)


class RewardPredictionHead(hk.Module):
  """Predicts the sign of the next reward from consecutive frames."""

  def __init__(self, hidden_size: int = 128, name: str | None = None):
    super().__init__(name)
    self._hidden_size = hidden_size

  def __call__(self, embeddings: types.Array) -> types.Array:
    """Maps embeddings [num_frames, B, num_features] to logits [B, 3].

    Args:
      embeddings: the torso's embedding of each frame, in temporal order.

    Returns:
      Logits of a zero, a negative and a positive reward.
    """
    num_frames, batch_size, num_features = embeddings.shape
    x = jnp.moveaxis(embeddings, 0, 1)  # [B, num_frames, num_features]
    x = x.reshape(batch_size, num_frames * num_features)
    x = jax.nn.relu(hk.Linear(self._hidden_size)(x))
    return hk.Linear(NUM_REWARD_CLASSES)(x)


def _combine_branches(x: types.Array, num_actions: Any) -> types.ArrayTree:
  """Returns Q = V + A - mean_a A, [..., num_actions] for each part.

  Args:
    x: [..., 1 + num_actions of all parts], the value, then the advantages.
    num_actions: number of choices of each part of the action.
  """
  sizes, structure = jax.tree.flatten(num_actions)
  value, *parts = jnp.split(x, np.cumsum([1, *sizes[:-1]]), axis=-1)
  return jax.tree.unflatten(
    structure,
    [value + part - jnp.mean(part, -1, keepdims=True) for part in parts],
  )


def _enlarge(maps: types.Array) -> types.Array:
  """Triples the sides of feature maps [B, rows, columns, channels].

  Computes the FTW agent's 9x9 transposed convolution of stride 3 as a 3x3
  convolution on the small maps, whose channels are then rearranged (Shi et al.,
  2016, arXiv:1609.05158). This avoids multiplying by the zeros that the stride
  inserts. Maps of a signal are [B, cells, channels].
  """
  batch_size, *sides, channels = maps.shape
  factor = 3 ** len(sides)
  x = _convolve(maps, factor * channels, 3, name='enlarge')
  if len(sides) == 1:
    return x.reshape(batch_size, 3 * sides[0], channels)
  rows, columns = sides
  # Depth to space: 9 groups of channels become a block of 3 x 3.
  x = x.reshape(batch_size, rows, columns, 3, 3, channels)
  x = jnp.swapaxes(x, 2, 3)  # [B, rows, 3, columns, 3, channels]
  return x.reshape(batch_size, 3 * rows, 3 * columns, channels)


def _convolve(
  maps: types.Array, num_channels: int, kernel_size: int, name: str
) -> types.Array:
  """Convolves maps of a signal or of an image, [B, ..., channels]."""
  make: Any = hk.Conv1D if maps.ndim == 3 else convolutions.Conv2D
  convolved: types.Array = make(num_channels, kernel_size, name=name)(maps)
  return convolved
