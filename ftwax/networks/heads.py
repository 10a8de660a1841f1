"""Policy and value heads, read from the features of a core.

The policy has a branch for each part of the action, independent given the
features (Jaderberg et al., 2019, supplement: architecture of the agent, whose
branches have one hidden layer of 256 units).
"""

from collections.abc import Sequence
from typing import Any

import haiku as hk
import jax
import jax.numpy as jnp

from ftwax import types

# Variance of the last layer relative to the usual: the first policy is near
# uniform, whatever the features.
_LAST_LAYER_SCALE = 1e-4


class PolicyHead(hk.Module):
  """Logits for each part of an action."""

  def __init__(
    self,
    num_actions: Any,
    hidden_sizes: Sequence[int] = (),
    name: str | None = None,
  ):
    """Makes a head.

    Args:
      num_actions: number of choices of each part, in the action's structure;
        see `distributions.num_actions`.
      hidden_sizes: sizes of the layers with ReLU before the last; each part
        has its own.
      name: name of the module.
    """
    super().__init__(name)
    self._num_actions = num_actions
    self._hidden_sizes = tuple(hidden_sizes)

  def __call__(self, features: types.Array) -> types.ArrayTree:
    """Maps features [..., num_features] to logits [..., num_actions]."""
    w_init = hk.initializers.VarianceScaling(_LAST_LAYER_SCALE)

    def branch(num_actions):
      x = _hidden_layers(features, self._hidden_sizes)
      return hk.Linear(num_actions, w_init=w_init)(x)

    return jax.tree.map(branch, self._num_actions)


class ValueHead(hk.Module):
  """One number: the expected return."""

  def __init__(self, hidden_sizes: Sequence[int] = (), name: str | None = None):
    super().__init__(name)
    self._hidden_sizes = tuple(hidden_sizes)

  def __call__(self, features: types.Array) -> types.Array:
    """Maps features [..., num_features] to values [...]."""
    x = _hidden_layers(features, self._hidden_sizes)
    return jnp.squeeze(hk.Linear(1)(x), axis=-1)


def _hidden_layers(x: types.Array, hidden_sizes: Sequence[int]) -> types.Array:
  for hidden_size in hidden_sizes:
    x = jax.nn.relu(hk.Linear(hidden_size)(x))
  return x
