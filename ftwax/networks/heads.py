"""Policy and value heads, read from the features of a core.

The policy has a branch for each part of the action, independent given the
features (Jaderberg et al., 2019, supplement: architecture of the agent, whose
branches have one hidden layer of 256 units). The standard deviations of a
vector do not depend on the features, as in Schulman et al., 2015
(arXiv:1502.05477).
"""

import math
from collections.abc import Sequence
from typing import Any

import haiku as hk
import jax
import jax.numpy as jnp

from ftwax import continuous, distributions, types

# Variance of the last layer relative to the usual: the first policy is near
# uniform, whatever the features.
_LAST_LAYER_SCALE = 1e-4

# Of a standard deviation at first: that of the uniform distribution over the
# bounds of a part, which are -1 and 1 to the policy.
_LOG_SCALE = -0.5 * math.log(3.0)


class PolicyHead(hk.Module):
  """What the policy says of each part of an action; see `distributions`."""

  def __init__(
    self,
    parts: Any,
    hidden_sizes: Sequence[int] = (),
    name: str | None = None,
  ):
    """Makes a head.

    Args:
      parts: spec of each part, or its number of choices, in the action's
        structure.
      hidden_sizes: sizes of the layers with ReLU before the last; each part
        has its own.
      name: name of the module.
    """
    super().__init__(name)
    self._parts = parts
    self._hidden_sizes = tuple(hidden_sizes)

  def __call__(self, features: types.Array) -> types.ArrayTree:
    """Maps features [..., num_features] to logits, leaves [..., size]."""
    w_init = hk.initializers.VarianceScaling(_LAST_LAYER_SCALE)

    def branch(part):
      num_choices = distributions.num_choices(part)
      size = part.shape[0] if num_choices is None else num_choices
      x = _hidden_layers(features, self._hidden_sizes)
      x = hk.Linear(size, w_init=w_init)(x)
      if num_choices is not None:
        return x
      if isinstance(part, continuous.SimplexArray):
        return continuous.Dirichlet(x)
      return continuous.Normal(x, _LogScale()(x))

    return jax.tree.map(branch, self._parts)


class _LogScale(hk.Module):
  """Logarithms of standard deviations that depend on nothing."""

  def __call__(self, like: types.Array) -> types.Array:
    """Returns float32 [..., n] in the shape of `like`."""
    log_scale = hk.get_parameter(
      'log_scale', like.shape[-1:], init=hk.initializers.Constant(_LOG_SCALE)
    )
    return jnp.broadcast_to(log_scale, like.shape)


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
