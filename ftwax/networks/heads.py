"""Policy and value heads on the features of a core.

The policy has a branch for each part of the action; parts are independent given
the features (Jaderberg et al., 2019, supplement: architecture of the agent,
whose branches have one hidden layer of 256 units). The standard deviations of
continuous parts do not depend on the features, as in Schulman et al., 2015
(arXiv:1502.05477).
"""

import dataclasses
import functools
import itertools
import math
from collections.abc import Sequence
from typing import Any

import haiku as hk
import jax
import jax.numpy as jnp

from ftwax import continuous, distributions, parts, registry, types
from ftwax.networks import deferred, noisy

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
    policy_layer: the layer of the core whose output the policy head reads, 0
      for the lowest, in cores of several layers such as `cores.StackedLSTM`;
      None for the features, the output of the last layer. With a skip
      connection, it reads the core's inputs beside it.
    value_layer: the same for the value head.
  """

  policy_hidden_sizes: tuple[int, ...] = parts.option((), low=1)
  value_hidden_sizes: tuple[int, ...] = parts.option((), low=1)
  noise: str | None = parts.option(None, choices=noisy.KINDS)
  policy_layer: int | None = parts.option(None, low=0)
  value_layer: int | None = parts.option(None, low=0)

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
    action_parts, structure = jax.tree.flatten(self._parts)
    counts = map(distributions.num_choices, action_parts)
    sizes = [
      part.shape[0] if count is None else count
      for part, count in zip(action_parts, counts, strict=True)
    ]
    w_init = hk.initializers.VarianceScaling(_LAST_LAYER_SCALE)
    outputs = _apply_branches(
      features, self._hidden_sizes, self._noise, sizes, w_init
    )
    return jax.tree.unflatten(
      structure, map(_to_distribution, action_parts, outputs)
    )


def _to_distribution(part: Any, x: types.Array) -> Any:
  """Returns the distribution of a part of an action, from [..., size]."""
  if distributions.num_choices(part) is not None:
    return x
  if isinstance(part, continuous.SimplexArray):
    return continuous.Dirichlet(x)
  return continuous.Normal(x, _LogScale()(x))


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
    (x,) = _apply_branches(features, self._hidden_sizes, self._noise, [1])
    return jnp.squeeze(x, axis=-1)


def _apply_branches(
  x: types.Array,
  hidden_sizes: Sequence[int],
  noise: str | None,
  sizes: Sequence[int],
  w_init: Any = None,
) -> list[types.Array]:
  """Returns the outputs of branches with hidden layers, [..., size] each.

  Args:
    x: [..., num_features].
    hidden_sizes: sizes of the hidden layers of each branch.
    noise: see `Heads`.
    sizes: numbers of outputs.
    w_init: initializer of the last layers, which does not apply to noisy ones.
  """
  if noise is not None:
    make = functools.partial(noisy.NoisyLinear, kind=noise)
    return [
      hk.Sequential(
        [
          *(f for n in hidden_sizes for f in (make(n), jax.nn.relu)),
          make(size),
        ]
      )(x)
      for size in sizes
    ]
  widths = x.shape[-1], *hidden_sizes
  branches = [
    [
      *(_parameters(*pair) for pair in itertools.pairwise(widths)),
      _parameters(widths[-1], size, w_init),
    ]
    for size in sizes
  ]
  # One layer for all branches, since each is a launch on a GPU.
  for index, layer in enumerate(zip(*branches, strict=True)):
    matrices, biases = zip(*layer, strict=True)
    if index == 0:
      x = jnp.dot(x, jnp.concatenate(matrices, axis=1))
    elif index == len(hidden_sizes):
      # Small, so that zeros between branches cost little.
      x = jnp.dot(x, jax.scipy.linalg.block_diag(*matrices))
    else:
      rows = jnp.split(x, len(sizes), axis=-1)
      x = jnp.concatenate(list(map(jnp.dot, rows, matrices)), axis=-1)
    x = x + jnp.broadcast_to(jnp.concatenate(biases), x.shape)
    x = jax.nn.relu(x) if index < len(hidden_sizes) else x
  return jnp.split(x, list(itertools.accumulate(sizes))[:-1], axis=-1)


def _parameters(
  num_inputs: int, num_outputs: int, w_init: Any = None
) -> deferred.Parameters:
  return deferred.Linear(
    num_outputs,
    w_init or hk.initializers.TruncatedNormal(1.0 / math.sqrt(num_inputs)),
  )(num_inputs)
