"""Hyperparameters as data, and the priors that they are sampled from.

Hyperparameters are a tree of NamedTuples whose leaves are scalar arrays: part
of the training state, arguments of every update. It has the shape of the
agent's parts; see `ftwax.parts`. Their priors are a tree of the same structure
whose leaves are `Prior`s. A prior defines how a value is sampled, perturbed and
bounded (Jaderberg et al., 2017, arXiv:1711.09846, section 3.2: explore). The
range for sampling, `low` to `high`, and the range for exploring, `bounds`, may
differ; by default they are the same.

Every function takes one member's hyperparameters. For a population, use `vmap`
over keys and hyperparameters and close over the priors, which are static.
"""

import abc
import collections
import dataclasses
import functools
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import optax

from ftwax import suggestions, types

# Hyperparameters, or any other pytree in the structure of its priors.
_Values = TypeVar('_Values')


class Prior(Protocol):
  """Samples, perturbs and bounds one hyperparameter."""

  def sample(self, key: types.Key) -> types.Array:
    """Samples a value, float32 or int32 []."""

  def perturb(
    self, key: types.Key, value: types.Array, factor: types.Array
  ) -> types.Array:
    """Explores from `value`, for instance by scaling it by `factor`."""

  def clip(self, value: types.Array) -> types.Array:
    """Clips `value` to the bounds."""


# A pytree whose leaves are priors, with the structure of the corresponding
# `types.Hyperparameters`.
Priors = Any

_LARGEST = float(np.finfo(np.float32).max)

# Lowest and highest value that a hyperparameter may take, both inclusive.
Bounds = tuple[float, float]


@dataclasses.dataclass(frozen=True)
class Constant:
  """A value that evolution never changes; `Initial` is one that it may change.

  Attributes:
    value: any number, including infinities.
  """

  value: float

  def __post_init__(self) -> None:
    if not (math.isinf(self.value) or _is_float32(self.value)):
      raise ValueError(
        f'Constant value ({self.value}) must be infinite or in the range of'
        ' float32; choose such a number.'
      )

  def sample(self, key: types.Key) -> types.Array:
    """Returns the value."""
    del key
    return jnp.asarray(self.value, jnp.float32)

  def perturb(
    self, key: types.Key, value: types.Array, factor: types.Array
  ) -> types.Array:
    """Returns `value` unchanged."""
    del key, factor
    return value

  def clip(self, value: types.Array) -> types.Array:
    """Returns `value` unchanged: users may set a constant to another value."""
    return value

  @property
  def limits(self) -> Bounds:
    """The value, twice."""
    return self.value, self.value


class _Scaled(abc.ABC):
  """A prior that explores by scaling, within bounds."""

  @property
  @abc.abstractmethod
  def limits(self) -> Bounds:
    """Lowest and highest value that the prior allows."""

  def perturb(
    self, key: types.Key, value: types.Array, factor: types.Array
  ) -> types.Array:
    """Returns `factor * value`, clipped to the bounds."""
    del key
    return self.clip(factor * value)

  def clip(self, value: types.Array) -> types.Array:
    """Clips to the bounds."""
    return jnp.clip(value, *self.limits)


@dataclasses.dataclass(frozen=True)
class Initial(_Scaled):
  """The same initial value for all members, explored by scaling.

  Resampling returns the initial value.

  Attributes:
    value: initial value.
    bounds: lowest and highest value that exploring may reach.
  """

  value: float
  bounds: Bounds

  def __post_init__(self) -> None:
    _check_range('Initial', (self.value, self.value), self.bounds)

  def sample(self, key: types.Key) -> types.Array:
    """Returns the value."""
    del key
    return jnp.asarray(self.value, jnp.float32)

  @property
  def limits(self) -> Bounds:
    """Lowest and highest value that the prior allows."""
    return self.bounds


@dataclasses.dataclass(frozen=True)
class _Interval(_Scaled):
  """Values in an interval, explored by scaling; see `Uniform`."""

  low: float
  high: float
  bounds: Bounds | None = None

  def __post_init__(self) -> None:
    _check_range(type(self).__name__, (self.low, self.high), self.bounds)

  @property
  def limits(self) -> Bounds:
    """Lowest and highest value that the prior allows."""
    return self.bounds or (self.low, self.high)

  def at(self, fraction: types.Array) -> types.Array:
    """Returns the value below which a fraction of all samples lies."""
    value = self.low + (self.high - self.low) * fraction
    # Rounding may leave the interval.
    return jnp.clip(value, self.low, self.high)

  def sample(self, key: types.Key) -> types.Array:
    """Samples from [low, high]."""
    return self.at(jax.random.uniform(key))


@dataclasses.dataclass(frozen=True)
class Uniform(_Interval):
  """Uniform on [low, high]; explored by scaling.

  Attributes:
    low: lowest sampled value.
    high: highest sampled value.
    bounds: lowest and highest value that exploring may reach; None for
      (low, high).
  """


@dataclasses.dataclass(frozen=True)
class LogUniform(_Interval):
  """Log-uniform on [low, high]; explored by scaling.

  Attributes:
    low: lowest sampled value, above zero.
    high: highest sampled value.
    bounds: lowest and highest value that exploring may reach; None for
      (low, high).
  """

  def __post_init__(self) -> None:
    super().__post_init__()
    if self.low <= 0.0:
      raise ValueError(
        f'LogUniform low ({self.low}) must be above zero, since its logarithm'
        ' is drawn; choose a small positive number or use Uniform.'
      )

  def at(self, fraction: types.Array) -> types.Array:
    """Returns the value below which a fraction of all samples lies."""
    low, high = math.log(self.low), math.log(self.high)
    value = jnp.exp(low + (high - low) * fraction)
    return jnp.clip(value, self.low, self.high)


@dataclasses.dataclass(frozen=True)
class UniformInteger(_Scaled):
  """Uniform on the integers low..high, both inclusive; explored by resampling.

  Scaling a small integer by 0.8 or 1.2 and rounding would often not change it,
  so exploring resamples (Jaderberg et al., 2019: the period). It therefore has
  no separate bounds.

  Attributes:
    low: lowest value.
    high: highest value.
  """

  low: int
  high: int

  def __post_init__(self) -> None:
    _check_range('UniformInteger', (self.low, self.high), None)
    for name, value in (('low', self.low), ('high', self.high)):
      if int(value) != value:
        raise ValueError(
          f'UniformInteger {name} ({value}) must be an integer; round it or'
          ' use Uniform.'
        )

  def sample(self, key: types.Key) -> types.Array:
    """Samples an int32 uniformly from low..high."""
    if self.low == self.high:
      return jnp.int32(self.low)
    return jax.random.randint(key, (), int(self.low), int(self.high) + 1)

  def perturb(
    self, key: types.Key, value: types.Array, factor: types.Array
  ) -> types.Array:
    """Resamples the value."""
    del value, factor
    return self.sample(key)

  @property
  def limits(self) -> tuple[int, int]:
    """Lowest and highest value that the prior allows."""
    return int(self.low), int(self.high)


# A hyperparameter of a part: in a config a number, which is fixed, or a prior;
# in a part with values an array [], which is what its code reads.
if TYPE_CHECKING:
  Scalar = Any
  Integer = Any
else:
  Scalar = float | Prior
  Integer = int | Prior


def as_prior(value: Scalar, is_integer: bool = False) -> Prior:
  """Returns a prior; that of a number has this value alone."""
  if not isinstance(value, int | float | np.number):
    return value
  if is_integer:
    return UniformInteger(value, value)  # type: ignore[arg-type]
  return Constant(float(value))


def make_tree(entries: Mapping[str, Any]) -> Any:
  """Makes a NamedTuple of hyperparameters, of their priors, or of branches.

  Equal names give the same type, in other processes too.
  """
  return _make_type(tuple(entries))(*entries.values())


@functools.cache
def _make_type(names: tuple[str, ...]) -> Callable[..., Any]:
  make: Any = collections.namedtuple
  kind = make('Hyperparameters', names)
  kind.__reduce__ = lambda values: (_of_names, (names, tuple(values)))
  return kind


def _of_names(names: tuple[str, ...], values: tuple[Any, ...]) -> Any:
  return _make_type(names)(*values)


def name(path: Any) -> str:
  """Returns the name of a hyperparameter, its dotted path in the agent.

  Args:
    path: of a leaf in a tree, as `jax.tree.leaves_with_path` has it.
  """
  return jax.tree_util.keystr(path, simple=True, separator='.')


def names(hyperparameters: Any) -> list[str]:
  """Returns the names of all hyperparameters of a tree, in their order."""
  return [name(path) for path, _ in jax.tree.leaves_with_path(hyperparameters)]


def update(hyperparameters: _Values, changes: Mapping[str, Any]) -> _Values:
  """Returns a copy in which functions have changed some of the values.

  Args:
    hyperparameters: a tree of values.
    changes: functions from a value to the new one, by name.

  Raises:
    ValueError: if there is no such hyperparameter.
  """
  known = names(hyperparameters)
  for changed in changes:
    if changed not in known:
      raise ValueError(
        f'{changed} must be a hyperparameter of the agent'
        f'{suggestions.suggest(changed, known)}'
      )
  return jax.tree_util.tree_map_with_path(
    lambda path, value: changes.get(name(path), lambda x: x)(value),
    hyperparameters,
  )


def _is_float32(value: float) -> bool:
  """Returns whether a number is in the range of float32; False for NaN."""
  return abs(value) <= _LARGEST


def _check_range(name: str, drawn: Bounds, bounds: Bounds | None) -> None:
  """Raises a ValueError unless low <= high and both are within the bounds."""
  low, high = drawn
  for ends in (drawn, bounds or drawn):
    if not all(map(_is_float32, ends)):
      raise ValueError(
        f'{name} bounds {tuple(ends)} must be finite as float32; choose such'
        ' numbers.'
      )
  if low > high:
    raise ValueError(
      f'{name} low ({low}) must not be above high ({high}); swap them.'
    )
  if bounds is not None and not bounds[0] <= low <= high <= bounds[1]:
    raise ValueError(
      f'{name} bounds {tuple(bounds)} must contain the range of the prior,'
      f' [{low}, {high}]; choose wider bounds.'
    )


def sample(key: types.Key, priors: Priors) -> types.ArrayTree:
  """Samples hyperparameters from `priors`, with one key per leaf.

  Args:
    key: random key.
    priors: see `Priors`.

  Returns:
    A pytree of the same structure with scalar arrays: float32, or int32 where
    the prior is over integers.
  """
  leaves, structure = jax.tree.flatten(priors)
  keys = jax.random.split(key, len(leaves))
  # A single draw covers all intervals: many small ones are slow to compile.
  fractions = jax.vmap(jax.random.uniform)(keys)
  values = [
    prior.at(fraction)
    if getattr(type(prior), 'sample', None) is _Interval.sample
    else prior.sample(leaf_key)
    for prior, leaf_key, fraction in zip(leaves, keys, fractions, strict=True)
  ]
  return jax.tree.unflatten(structure, values)


def resample(
  key: types.Key,
  hyperparameters: _Values,
  priors: Priors,
  probability: types.Array | float,
) -> _Values:
  """Resamples each value from its prior with the given probability."""
  choice_key, sample_key = jax.random.split(key)
  return jax.tree.map(
    jnp.where,
    _draw(choice_key, priors, probability),
    sample(sample_key, priors),
    hyperparameters,
  )


def perturb(
  key: types.Key,
  hyperparameters: _Values,
  priors: Priors,
  probability: types.Array | float = 0.05,
  factors: tuple[float, float] = (0.8, 1.2),
) -> _Values:
  """Perturbs each value with the given probability, within its bounds.

  The defaults are those of Jaderberg et al., 2019 (FTW).

  Args:
    key: random key.
    hyperparameters: values to start from.
    priors: priors of the same structure.
    probability: probability of perturbing a value, independently of the others.
    factors: a perturbed value is scaled by one of the two with equal
      probability; integers are resampled instead, and constants stay unchanged.

  Returns:
    The perturbed values.
  """
  choice_key, factor_key, prior_key = jax.random.split(key, 3)

  def perturb_leaf(
    prior: Prior,
    value: types.Array,
    is_chosen: types.Array,
    is_up: types.Array,
    leaf_key: types.Key,
  ) -> types.Array:
    factor = jnp.where(is_up, factors[1], factors[0])
    return jnp.where(is_chosen, prior.perturb(leaf_key, value, factor), value)

  return jax.tree.map(
    perturb_leaf,
    priors,
    hyperparameters,
    _draw(choice_key, priors, probability),
    _draw(factor_key, priors, 0.5),
    optax.tree.split_key_like(prior_key, priors),
  )


def clip(hyperparameters: _Values, priors: Priors) -> _Values:
  """Clips each value to the bounds of its prior."""
  return jax.tree.map(
    lambda prior, value: prior.clip(value), priors, hyperparameters
  )


def _draw(
  key: types.Key, priors: Priors, probability: types.Array | float
) -> types.ArrayTree:
  """Samples a bool for each leaf, independently true with `probability`.

  A single draw covers all leaves; see `sample`.
  """
  leaves, structure = jax.tree.flatten(priors)
  chosen = jax.random.bernoulli(key, probability, (len(leaves),))
  return jax.tree.unflatten(structure, list(chosen))
