"""Hyperparameters as data, and the priors that they are drawn from.

Hyperparameters are a NamedTuple of scalar arrays: leaves of the training
state, arguments of every loss. Their priors are a NamedTuple of the same type
whose leaves are `Prior`s. A prior says how a value is drawn, perturbed and
bounded (Jaderberg et al., 2017, arXiv:1711.09846, section 3.2: explore).

Every function takes one member's hyperparameters; a population is `vmap` over
keys and hyperparameters, with the priors closed over, since they are static.
"""

import dataclasses
import math
from typing import Any, Protocol

import jax
import jax.numpy as jnp

from ftwax import types


class Prior(Protocol):
  """How one hyperparameter is drawn, perturbed and bounded."""

  def sample(self, key: types.Key) -> types.Array:
    """Draws a value."""

  def perturb(
    self, key: types.Key, value: types.Array, factor: types.Array
  ) -> types.Array:
    """Explores from `value`, which `factor` may scale."""

  def clip(self, value: types.Array) -> types.Array:
    """Returns the value inside the bounds that is nearest to `value`."""


@dataclasses.dataclass(frozen=True)
class Constant:
  """A value that evolution never changes."""

  value: float

  def __post_init__(self):
    if math.isnan(self.value):
      raise ValueError(
        f'Constant value ({self.value}) must be a number; give one.'
      )

  def sample(self, key: types.Key) -> types.Array:
    """Returns the value."""
    del key
    return jnp.float32(self.value)

  def perturb(
    self, key: types.Key, value: types.Array, factor: types.Array
  ) -> types.Array:
    """Returns `value` as it is."""
    del key, factor
    return value

  def clip(self, value: types.Array) -> types.Array:
    """Returns `value` as it is: setting a constant by hand is allowed."""
    return value


@dataclasses.dataclass(frozen=True)
class Uniform:
  """Uniform on [low, high]; explored by scaling."""

  low: float
  high: float

  def __post_init__(self):
    _check_bounds(self)

  def sample(self, key: types.Key) -> types.Array:
    """Draws uniformly from [low, high]."""
    return jax.random.uniform(key, minval=self.low, maxval=self.high)

  def perturb(
    self, key: types.Key, value: types.Array, factor: types.Array
  ) -> types.Array:
    """Returns `factor * value`, clipped."""
    del key
    return self.clip(factor * value)

  def clip(self, value: types.Array) -> types.Array:
    """Clips to [low, high]."""
    return jnp.clip(value, self.low, self.high)


@dataclasses.dataclass(frozen=True)
class LogUniform:
  """Uniform in the logarithm on [low, high]; explored by scaling."""

  low: float
  high: float

  def __post_init__(self):
    _check_bounds(self)
    if self.low <= 0.0:
      raise ValueError(
        f'LogUniform low ({self.low}) must be above zero, since its logarithm'
        ' is drawn; choose a small positive number or use Uniform.'
      )

  def sample(self, key: types.Key) -> types.Array:
    """Draws log-uniformly from [low, high]."""
    log_value = jax.random.uniform(
      key, minval=math.log(self.low), maxval=math.log(self.high)
    )
    return self.clip(jnp.exp(log_value))

  def perturb(
    self, key: types.Key, value: types.Array, factor: types.Array
  ) -> types.Array:
    """Returns `factor * value`, clipped."""
    del key
    return self.clip(factor * value)

  def clip(self, value: types.Array) -> types.Array:
    """Clips to [low, high]."""
    return jnp.clip(value, self.low, self.high)


@dataclasses.dataclass(frozen=True)
class UniformInteger:
  """Uniform on the integers low..high, both included; explored by a redraw.

  Scaling an integer by 0.8 or 1.2 and rounding would leave small ones where
  they are, so exploring draws anew (Jaderberg et al., 2019: the period).
  """

  low: int
  high: int

  def __post_init__(self):
    _check_bounds(self)
    for name in ('low', 'high'):
      value = getattr(self, name)
      if int(value) != value:
        raise ValueError(
          f'UniformInteger {name} ({value}) must be an integer; round it or'
          ' use Uniform.'
        )

  def sample(self, key: types.Key) -> types.Array:
    """Draws an int32 uniformly from low..high."""
    return jax.random.randint(key, (), int(self.low), int(self.high) + 1)

  def perturb(
    self, key: types.Key, value: types.Array, factor: types.Array
  ) -> types.Array:
    """Draws anew."""
    del value, factor
    return self.sample(key)

  def clip(self, value: types.Array) -> types.Array:
    """Clips to low..high."""
    return jnp.clip(value, int(self.low), int(self.high))


def _check_bounds(prior: Any) -> None:
  name = type(prior).__name__
  if not (math.isfinite(prior.low) and math.isfinite(prior.high)):
    raise ValueError(
      f'{name} bounds ({prior.low}, {prior.high}) must be finite; give numbers.'
    )
  if prior.low > prior.high:
    raise ValueError(
      f'{name} low ({prior.low}) must not be above high ({prior.high}); swap'
      ' them.'
    )


def sample(key: types.Key, priors: Any) -> types.Hyperparameters:
  """Draws hyperparameters from `priors`, a key for each leaf.

  Args:
    key: key for the draws.
    priors: a pytree, usually a NamedTuple, whose leaves are priors.

  Returns:
    A pytree of the same structure with scalar arrays: float32, or int32 where
    the prior is of integers.
  """
  return jax.tree.map(
    lambda prior, leaf_key: prior.sample(leaf_key), priors, _keys(key, priors)
  )


def resample(
  key: types.Key,
  hyperparameters: types.Hyperparameters,
  priors: Any,
  probability: types.Array | float,
) -> types.Hyperparameters:
  """Draws each value anew from its prior with `probability`."""
  choice_key, sample_key = jax.random.split(key)

  def resample_leaf(prior, value, is_chosen, leaf_key):
    return jnp.where(is_chosen, prior.sample(leaf_key), value)

  return jax.tree.map(
    resample_leaf,
    priors,
    hyperparameters,
    _draw(choice_key, priors, probability),
    _keys(sample_key, priors),
  )


def perturb(
  key: types.Key,
  hyperparameters: types.Hyperparameters,
  priors: Any,
  probability: types.Array | float = 0.05,
  factors: tuple[float, float] = (0.8, 1.2),
) -> types.Hyperparameters:
  """Perturbs each value with `probability`, inside its bounds.

  The defaults are those of Jaderberg et al., 2019 (FTW).

  Args:
    key: key for the draws.
    hyperparameters: values to start from.
    priors: priors of the same structure.
    probability: that of each value being perturbed, alone of the others.
    factors: one of the two scales a value, with equal chance; integers are
      drawn anew instead and constants stay.

  Returns:
    The perturbed values.
  """
  choice_key, factor_key, prior_key = jax.random.split(key, 3)

  def perturb_leaf(prior, value, is_chosen, is_up, leaf_key):
    factor = jnp.where(is_up, factors[1], factors[0])
    return jnp.where(is_chosen, prior.perturb(leaf_key, value, factor), value)

  return jax.tree.map(
    perturb_leaf,
    priors,
    hyperparameters,
    _draw(choice_key, priors, probability),
    _draw(factor_key, priors, 0.5),
    _keys(prior_key, priors),
  )


def clip(
  hyperparameters: types.Hyperparameters, priors: Any
) -> types.Hyperparameters:
  """Moves each value inside the bounds of its prior."""
  return jax.tree.map(
    lambda prior, value: prior.clip(value), priors, hyperparameters
  )


def _keys(key: types.Key, priors: Any) -> Any:
  """Returns a key for each leaf, in the structure of `priors`."""
  leaves, structure = jax.tree.flatten(priors)
  return jax.tree.unflatten(structure, list(jax.random.split(key, len(leaves))))


def _draw(key: types.Key, priors: Any, probability: types.Array | float) -> Any:
  """Returns true with `probability` for each leaf, alone of the others.

  One draw for all of them: many small ones take long to compile.
  """
  leaves, structure = jax.tree.flatten(priors)
  chosen = jax.random.bernoulli(key, probability, (len(leaves),))
  return jax.tree.unflatten(structure, list(chosen))
