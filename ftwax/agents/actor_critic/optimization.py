"""Optimizers and schedules, parts whose hyperparameters are data.

Each traced update makes its optimizer from the hyperparameters in the state, so
that changing one does not trigger a recompilation.
"""

import dataclasses
import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
import optax

from ftwax import hyperparameters as hyperparameters_lib
from ftwax import parts, registry, types


@dataclasses.dataclass(frozen=True, kw_only=True)
class Optimizer(parts.Part):
  """Base of the optimizers.

  Attributes:
    max_skipped_updates: number of consecutive updates with a non-finite
      gradient after which the learner raises an error.
  """

  max_skipped_updates: int = parts.option(25, low=1)

  def make(self) -> optax.GradientTransformation:
    """Returns what scales gradients, for a learning rate of one.

    It sees those of all parameters as one vector.
    """
    raise NotImplementedError


@registry.register('optimizer.adam')
@dataclasses.dataclass(frozen=True)
class Adam(Optimizer):
  """Adam.

  Attributes:
    epsilon: added to the root of the mean square; the default is that of common
      implementations of A2C and PPO.
  """

  epsilon: float = parts.option(1e-5, above=0)

  def make(self) -> optax.GradientTransformation:
    """Returns what scales gradients, for a learning rate of one."""
    return optax.scale_by_adam(eps=self.epsilon)


@registry.register('optimizer.rms_prop')
@dataclasses.dataclass(frozen=True)
class RMSProp(Optimizer):
  """RMSProp, as in the papers on A3C, IMPALA and FTW.

  Attributes:
    epsilon: added to the mean square, inside the square root.
    decay: decay of the moving mean square of gradients.
  """

  epsilon: parts.Scalar = 1e-3
  decay: float = parts.option(0.99, low=0, below=1)

  def make(self) -> optax.GradientTransformation:
    """Returns what scales gradients, for a learning rate of one."""
    epsilon: Any = self.epsilon
    return optax.scale_by_rms(decay=self.decay, eps=epsilon, eps_in_sqrt=True)


@registry.register('schedule.linear')
@dataclasses.dataclass(frozen=True)
class LinearDecay(parts.Part):
  """Anneals hyperparameters linearly.

  Attributes:
    steps: number of updates over which they are annealed; infinity keeps them
      constant.
    names: names of the hyperparameters, such as `learning_rate` or
      `tasks.pixel_control.cost`.
    to: the share of their values at which they end.
  """

  steps: parts.Scalar = parts.scalar(math.inf, low=1.0, unlimited=True)
  names: tuple[str, ...] = ('learning_rate',)
  to: float = parts.option(0.0, low=0, high=1)


# Points of a schedule between which it is interpolated.
_NUM_POINTS = 257


@registry.register('schedule.table')
@dataclasses.dataclass(frozen=True)
class Schedule(parts.Part):
  """Multiplies a hyperparameter by a factor that changes during training.

  The hyperparameter itself stays data, which a population may evolve.

  Attributes:
    hyperparameter: its name.
    num_updates: updates over which the factors are spread; after these, the
      last one stays.
    factors: at least two, at equal distances; linear in between.
  """

  hyperparameter: str = 'learning_rate'
  num_updates: float = parts.option(1.0, low=0)
  factors: tuple[float, ...] = parts.option((1.0, 1.0), entries=_NUM_POINTS)

  def __post_init__(self) -> None:
    """Checks the factors."""
    super().__post_init__()
    if len(self.factors) < 2 or not np.isfinite(self.factors).all():
      raise ValueError(
        f'factors ({self.factors}) of {self.hyperparameter} must be at least'
        ' two finite numbers; choose (1.0, 0.0) for a linear decay.'
      )

  def factor(self, steps: types.Array) -> types.Array:
    """Returns the factor after `steps` updates, float32 []."""
    position = steps / max(self.num_updates, 1.0) * (len(self.factors) - 1)
    points = np.arange(len(self.factors), dtype=np.float32)
    return jnp.interp(position, points, np.asarray(self.factors, np.float32))


def tabulate(
  name: str, schedule: optax.Schedule, num_steps: float, steps_per_update: float
) -> Schedule:
  """Makes a schedule of updates from one of environment steps.

  Args:
    name: name of the hyperparameter.
    schedule: returns the factor at a number of steps, as optax's schedules do.
    num_steps: steps after which the factor stays as it is.
    steps_per_update: steps of all members together between two updates.
  """
  at = np.linspace(0.0, num_steps, _NUM_POINTS, dtype=np.float32)
  factors = tuple(float(schedule(jnp.float32(steps))) for steps in at)
  return Schedule(name, num_steps / steps_per_update, factors)


# The optimizers by name.
NAMED: Mapping[str, Optimizer] = {'adam': Adam(), 'rms_prop': RMSProp()}

find = functools.partial(parts.find, 'optimizer', known=NAMED)


def make_optimizer(
  optimizer: str | Optimizer, max_gradient_norm: types.Array | float
) -> optax.GradientTransformation:
  """Makes an optimizer with a learning rate of one.

  The caller scales the updates by the learning rate. Gradients are clipped by
  their global norm before the optimizer sees them; the optimizer's updates are
  not clipped.

  Args:
    optimizer: a part, or its name.
    max_gradient_norm: the largest norm that is not clipped, traced or not.
  """

  def clip(gradients: optax.Updates, _: optax.Params | None) -> optax.Updates:
    # A factor, unlike optax's quotient, is fused with what scales gradients.
    norm = optax.tree.norm(gradients)
    factor = jnp.minimum(1.0, max_gradient_norm / norm)
    return optax.tree.scale(factor, gradients)

  return optax.chain(
    optax.stateless(clip),
    find(optimizer).make(),
    optax.scale(-1.0),
  )


def decay(
  schedule: LinearDecay,
  hyperparameters: types.Hyperparameters,
  steps: types.Array,
  schedules: Sequence[Schedule] = (),
) -> types.Hyperparameters:
  """Returns the hyperparameters after `steps` updates.

  Args:
    schedule: names the hyperparameters to anneal; the others stay constant.
    hyperparameters: values at the first update; the field `decay` has those of
      `schedule`.
    steps: int32 [], updates done.
    schedules: of other shapes, of hyperparameters by their names.
  """
  # Zero if the number of steps is infinite.
  fraction = steps / hyperparameters.decay.steps
  rest = 1.0 - (1.0 - schedule.to) * jnp.minimum(fraction, 1.0)
  hyperparameters = hyperparameters_lib.update(
    hyperparameters,
    {name: lambda value: value * rest for name in schedule.names},
  )
  for each in schedules:
    factor = each.factor(steps)
    hyperparameters = hyperparameters_lib.update(
      hyperparameters,
      {each.hyperparameter: lambda value, by=factor: value * by},
    )
  return hyperparameters
