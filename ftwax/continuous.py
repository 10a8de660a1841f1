"""Continuous parts of an action: vectors of numbers, and points on a simplex.

A network describes such a part by a distribution with its parameters, a pytree
node, and a discrete part by an array of logits. The type of a leaf in a tree of
logits therefore determines the type of the part.
"""

import math
from typing import Any, NamedTuple, TypeGuard

import dm_env
import jax
import jax.numpy as jnp
import numpy as np

from ftwax import shapes, types

_LOG_TWO_PI = math.log(2.0 * math.pi)

# Larger bounds only say that there is none; half of them is no scale.
_MAX_BOUND = 1e6


class SimplexArray(dm_env.specs.BoundedArray):
  """Spec of a point on a simplex: non-negative numbers that sum to one.

  An example is a portfolio, as in the continuous actions of BTGym's agents.
  """

  def __init__(self, num_shares: int, name: str | None = None):
    """Makes the spec of float32 [num_shares].

    Raises:
      ValueError: if there are fewer than two shares.
    """
    if num_shares < 2:
      raise ValueError(
        f'num_shares ({num_shares}) must be at least 2, since they add up to'
        ' one; choose 2.'
      )
    super().__init__((num_shares,), np.float32, 0.0, 1.0, name)

  def validate(self, value: types.NumpyArray) -> types.NumpyArray:
    """Raises a ValueError unless `value` is on the simplex, up to rounding."""
    value = super().validate(value)
    total = float(np.sum(value, dtype=np.float64))
    if abs(total - 1.0) > 1e-4:
      raise ValueError(
        f'{self.name or "action"} ({value}) must add up to 1, not {total}; '
        'divide it by its sum.'
      )
    return value

  def replace(self, **kwargs: Any) -> 'SimplexArray':
    """Returns a copy with another `num_shares` or `name`."""
    return SimplexArray(
      **{'num_shares': self.shape[0], 'name': self.name, **kwargs}
    )

  def __reduce__(self) -> tuple[type, tuple[Any, ...]]:
    return SimplexArray, (self.shape[0], self.name)


class Normal(NamedTuple):
  """A vector of independent normal variables; see `Dirichlet` for methods.

  Attributes:
    loc: float32 [..., n], means.
    log_scale: float32 [..., n], logarithms of standard deviations.
  """

  loc: types.Array
  log_scale: types.Array

  def sample(self, key: types.Key) -> types.Array:
    """Samples float32 [..., n]."""
    noise = jax.random.normal(key, self.loc.shape, self.loc.dtype)
    return self.loc + jnp.exp(self.log_scale) * noise

  def mode(self) -> types.Array:
    """Returns the mean."""
    return self.loc

  def log_prob(self, value: types.Array) -> types.Array:
    """Returns the log-density [...] of `value` [..., n]."""
    shapes.check(
      'log_prob',
      loc=(self.loc, '... n'),
      log_scale=(self.log_scale, '... n'),
      value=(value, '... n'),
    )
    z = (value - self.loc) * jnp.exp(-self.log_scale)
    log_densities = -0.5 * (jnp.square(z) + _LOG_TWO_PI) - self.log_scale
    return jnp.sum(log_densities, axis=-1)

  def entropy(self) -> types.Array:
    """Returns the differential entropy [...]."""
    return jnp.sum(self.log_scale + 0.5 * (1.0 + _LOG_TWO_PI), axis=-1)

  def kl_divergence(self, other: 'Normal') -> types.Array:
    """Returns KL(self || other) [...]."""
    shapes.check(
      'kl_divergence', loc=(self.loc, '...'), other=(other.loc, '...')
    )
    log_ratio = self.log_scale - other.log_scale
    distance = (self.loc - other.loc) * jnp.exp(-other.log_scale)
    squares = jnp.exp(2.0 * log_ratio) + jnp.square(distance)
    return jnp.sum(0.5 * (squares - 1.0) - log_ratio, axis=-1)


class Dirichlet(NamedTuple):
  """A Dirichlet distribution with concentrations 1 + softplus(logits).

  Concentrations above one keep the density bounded and its mode in the
  interior, so that no share collapses to zero. (BTGym samples the softmax of
  normal variables and then treats the point as labels of a categorical policy,
  which is not the density of the action; this one is.)

  Attributes:
    logits: float32 [..., n].
  """

  logits: types.Array

  @property
  def concentration(self) -> types.Array:
    """Concentrations, float32 [..., n], above one."""
    return 1.0 + jax.nn.softplus(self.logits)

  def sample(self, key: types.Key) -> types.Array:
    """Samples float32 [..., n], which sums to one."""
    return jax.random.dirichlet(key, self.concentration)

  def mode(self) -> types.Array:
    """Returns the mode [..., n]."""
    excess = jax.nn.softplus(self.logits)
    return excess / jnp.sum(excess, axis=-1, keepdims=True)

  def log_prob(self, value: types.Array) -> types.Array:
    """Returns the log-density [...] of `value` [..., n].

    The density is over all shares but one, which the others determine.
    """
    shapes.check('log_prob', logits=(self.logits, '...'), value=(value, '...'))
    # A sampled share may underflow to zero, whose logarithm is not finite.
    smallest = np.finfo(value.dtype).tiny
    log_value = jnp.log(jnp.maximum(value, smallest))
    excess = jax.nn.softplus(self.logits)
    return jnp.sum(excess * log_value, axis=-1) - self._log_normalizer()

  def entropy(self) -> types.Array:
    """Returns the differential entropy [...]."""
    concentration = self.concentration
    log_means = _mean_log(concentration)
    excess = concentration - 1.0
    return self._log_normalizer() - jnp.sum(excess * log_means, axis=-1)

  def kl_divergence(self, other: 'Dirichlet') -> types.Array:
    """Returns KL(self || other) [...]."""
    shapes.check(
      'kl_divergence', logits=(self.logits, '...'), other=(other.logits, '...')
    )
    change = self.concentration - other.concentration
    log_means = _mean_log(self.concentration)
    return (
      other._log_normalizer()
      - self._log_normalizer()
      + jnp.sum(change * log_means, axis=-1)
    )

  def _log_normalizer(self) -> types.Array:
    concentration = self.concentration
    total = jnp.sum(concentration, axis=-1)
    log_gammas = jax.lax.lgamma(concentration)
    return jnp.sum(log_gammas, axis=-1) - jax.lax.lgamma(total)


def _mean_log(concentration: types.Array) -> types.Array:
  """Returns the expected logarithms of a Dirichlet's shares, [..., n]."""
  total = jnp.sum(concentration, axis=-1, keepdims=True)
  return jax.lax.digamma(concentration) - jax.lax.digamma(total)


def is_part(node: object) -> TypeGuard[Normal | Dirichlet]:
  """Returns whether a node of a tree of logits is a continuous part."""
  return isinstance(node, Normal | Dirichlet)


def is_spec(spec: object) -> bool:
  """Returns whether `spec` describes a continuous part: floats [n]."""
  return (
    isinstance(spec, dm_env.specs.Array)
    and np.issubdtype(spec.dtype, np.floating)
    and len(spec.shape) == 1
    and spec.shape[0] > 0
  )


def make_zero(
  spec: dm_env.specs.Array, prefix: tuple[int, ...]
) -> Normal | Dirichlet:
  """Returns the part for `spec` with parameters [*prefix, n] of zero."""
  zeros: Any = np.zeros((*prefix, *spec.shape), np.float32)
  if isinstance(spec, SimplexArray):
    return Dirichlet(zeros)
  return Normal(zeros, zeros.copy())


def to_environment(
  spec: dm_env.specs.Array, action: types.Array
) -> types.Array:
  """Maps a sampled vector into the bounds of `spec`.

  For entries bounded on both sides, [-1, 1] is scaled to the bounds and
  clipped. Other entries are not scaled, only clipped to a one-sided bound. See
  `is_bound` for what counts as a bound.
  Probabilities are always those of the sample before this mapping.
  """
  if isinstance(spec, SimplexArray) or not hasattr(spec, 'minimum'):
    return action.astype(spec.dtype)
  middle, half, low, high = _scale(spec, action.ndim)
  return jnp.clip(middle + half * action, low, high).astype(spec.dtype)


def from_environment(
  spec: dm_env.specs.Array, action: types.Array
) -> types.Array:
  """Returns a vector that `to_environment` maps to `action`, float32 [..., n].

  Args:
    spec: spec of the action.
    action: [..., n], within the bounds of `spec`.

  Returns:
    The vector; zero in entries whose bounds coincide.
  """
  action = action.astype(jnp.float32)
  if isinstance(spec, SimplexArray) or not hasattr(spec, 'minimum'):
    return action
  middle, half, _, _ = _scale(spec, action.ndim)
  return (action - middle) / np.where(half == 0.0, 1.0, half)


def is_bound(values: Any) -> types.NumpyArray:
  """Returns where a minimum or maximum is a bound: at most 1e6 in size."""
  return np.abs(np.float64(values)) <= _MAX_BOUND


def _scale(spec: Any, rank: int) -> list[types.NumpyArray]:
  """Returns midpoint, half-width, minimum and maximum of each entry.

  Args:
    spec: spec of a vector with bounds.
    rank: number of axes of the action; the arrays are [1, ..., n] with as many,
      since ranks are not promoted.
  """
  minimum, maximum = (
    np.broadcast_to(np.float64(x), spec.shape)
    for x in (spec.minimum, spec.maximum)
  )
  bounded = is_bound(minimum) & is_bound(maximum)
  # With bounds of -1 and 1, the scaling below changes nothing.
  begin, end = np.where(bounded, (minimum, maximum), [[-1.0], [1.0]])
  # Halved first, since the difference of large bounds may overflow.
  middle, half = 0.5 * begin + 0.5 * end, 0.5 * end - 0.5 * begin
  shape = (1,) * (rank - 1) + spec.shape
  return [
    x.astype(np.float32).reshape(shape)
    for x in (middle, half, minimum, maximum)
  ]
