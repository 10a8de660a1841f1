"""Pixel control head for signals.

A cell of a signal [length, channels] consists of consecutive samples of one
channel. Cells are only neighbours along time: the head convolves over time, and
each channel has its own maps.
"""

from typing import Any

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np

from ftwax import types


class SignalControlHead(hk.Module):
  """Computes action values of changing each cell of a signal.

  A dueling head: two branches compute the value of a cell and the advantages of
  the actions (Wang et al., 2016, arXiv:1511.06581): Q = V + A - mean_a A. Each
  part of an action has its own advantages.
  """

  def __init__(
    self,
    num_actions: Any,
    grid_shape: tuple[int, int],
    num_features: int = 32,
    name: str | None = None,
  ):
    """Makes a head.

    Args:
      num_actions: number of choices of each part of the action, in the
        action's structure; see `distributions.num_actions`.
      grid_shape: number of cells along time, and of channels.
      num_features: channels of the hidden feature maps.
      name: name of the module.
    """
    super().__init__(name)
    self._num_actions = num_actions
    self._grid_shape = grid_shape
    self._num_features = num_features

  def __call__(self, features: types.Array) -> types.ArrayTree:
    """Maps features [B, num_features] to action values.

    Returns:
      [B, cells, channels, num_actions] for each part of the action.
    """
    num_cells, num_channels = self._grid_shape
    # The transposed convolution doubles the length; an odd one is cropped.
    half = -(-num_cells // 2)
    x = jax.nn.relu(hk.Linear(half * self._num_features)(features))
    x = x.reshape(-1, half, self._num_features)
    x = hk.Conv1DTranspose(self._num_features, 4, stride=2)(x)
    x = jax.nn.relu(x[:, :num_cells])
    sizes, structure = jax.tree.flatten(self._num_actions)
    # One convolution computes both branches of all channels.
    x = hk.Conv1D(num_channels * (1 + sum(sizes)), 4, name='values')(x)
    x = x.reshape(-1, num_cells, num_channels, 1 + sum(sizes))
    value, *parts = jnp.split(x, np.cumsum([1, *sizes[:-1]]), axis=-1)
    return jax.tree.unflatten(
      structure,
      [value + part - jnp.mean(part, -1, keepdims=True) for part in parts],
    )
