"""Policy and value heads on the features of a core.

The policy has a branch for each part of the action; parts are independent given
the features (Jaderberg et al., 2019, supplement: architecture of the agent,
whose branches have one hidden layer of 256 units). The standard deviations of
continuous parts do not depend on the features, as in Schulman et al., 2015
(arXiv:1502.05477).
"""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import haiku as hk
import jax
import jax.numpy as jnp

from ftwax import continuous, distributions, parts, registry, types
from ftwax.networks import noisy

# Scale of the last layer's initial variance: small, so that the initial policy
# is nearly uniform for all features.
_LAST_LAYER_SCALE = 1e-4

# Initial logarithm of the standard deviation: that of a uniform distribution
# over the bounds of a part, which the policy sees as -1 and 1.
_LOG_SCALE = -0.5 * math.log(3.0)


@registry.register('heads')
@dataclasses.dataclass(frozen=True)
class Heads(parts.Part):
  """Options of the policy and value heads.

  Attributes:
    policy_hidden_sizes: hidden layer sizes of each branch of the policy head.
    value_hidden_sizes: hidden layer sizes of the value head.
    noise: kind of parameter noise of all their layers, one of `noisy.KINDS`,
      sampled at each call that has a key; None for plain layers.
  """

  policy_hidden_sizes: tuple[int, ...] = parts.option((), low=1)
  value_hidden_sizes: tuple[int, ...] = parts.option((), low=1)
  noise: str | None = parts.option(None, choices=noisy.KINDS)

  def with_size(self, size: int) -> 'Heads':
    """Returns a copy with `size` units in each hidden layer."""
    return self.replace(
      policy_hidden_sizes=(size,) * len(self.policy_hidden_sizes),
      value_hidden_sizes=(size,) * len(self.value_hidden_sizes),
    )


class PolicyHead(hk.Module):
  """Maps features to a distribution for each part of an action.

  See `distributions` for the parameters of each kind of part.
  """

  def __init__(
    self,
    action_parts: Any,
    hidden_sizes: Sequence[int] = (),
    noise: str | None = None,
    name: str | None = None,
  ):
    """Makes a head.

    Args:
      action_parts: spec of each part, or its number of choices, in the action's
        structure.
      hidden_sizes: sizes of the hidden layers, which have ReLUs; each part has
        its own layers.
      noise: see `Heads`.
      name: name of the module.
    """
    super().__init__(name)
    self._parts = action_parts
    self._hidden_sizes = tuple(hidden_sizes)
    self._noise = noise

  def __call__(self, features: types.Array) -> types.ArrayTree:
    """Maps features [..., num_features] to logits, leaves [..., size]."""
    w_init = hk.initializers.VarianceScaling(_LAST_LAYER_SCALE)

    def branch(part: Any) -> Any:
      num_choices = distributions.num_choices(part)
      size = part.shape[0] if num_choices is None else num_choices
      x = _hidden_layers(features, self._hidden_sizes, self._noise)
      x = _make_linear(size, self._noise, w_init)(x)  # [..., size]
      if num_choices is not None:
        return x
      if isinstance(part, continuous.SimplexArray):
        return continuous.Dirichlet(x)
      return continuous.Normal(x, _LogScale()(x))

    return jax.tree.map(branch, self._parts)


class _LogScale(hk.Module):
  """Learned log standard deviations, the same for all features."""

  def __call__(self, like: types.Array) -> types.Array:
    """Returns float32 [..., n] in the shape of `like`."""
    log_scale = hk.get_parameter(
      'log_scale', like.shape[-1:], init=hk.initializers.Constant(_LOG_SCALE)
    )
    return jnp.broadcast_to(log_scale, like.shape)


class ValueHead(hk.Module):
  """Maps features to the expected return."""

  def __init__(
    self,
    hidden_sizes: Sequence[int] = (),
    noise: str | None = None,
    name: str | None = None,
  ):
    super().__init__(name)
    self._hidden_sizes = tuple(hidden_sizes)
    self._noise = noise

  def __call__(self, features: types.Array) -> types.Array:
    """Maps features [..., num_features] to values [...]."""
    x = _hidden_layers(features, self._hidden_sizes, self._noise)
    return jnp.squeeze(_make_linear(1, self._noise)(x), axis=-1)


def _hidden_layers(
  x: types.Array, hidden_sizes: Sequence[int], noise: str | None
) -> types.Array:
  for hidden_size in hidden_sizes:
    x = jax.nn.relu(_make_linear(hidden_size, noise)(x))
  return x


def _make_linear(
  size: int,
  noise: str | None,
  w_init: hk.initializers.Initializer | None = None,
) -> Callable[[types.Array], types.Array]:
  """Makes a layer; `w_init` does not apply to a noisy one."""
  if noise is None:
    return hk.Linear(size, w_init=w_init)
  return noisy.NoisyLinear(size, noise)
