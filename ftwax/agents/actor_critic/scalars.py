"""The hyperparameters of the family, and how an agent adds its own.

They are NamedTuples of scalars, or of the priors of these: the names that all
agents have stand here once, and an agent that reads more extends them.
"""

import collections
import inspect
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from ftwax import hyperparameters


class Hyperparameters(NamedTuple):
  """Scalars that every agent of the family has, or their priors.

  Attributes:
    learning_rate: of the optimizer, at the first update.
    learning_rate_decay_steps: updates in which it falls to zero, linearly, and
      with it the others of `ActorCriticConfig.decayed_hyperparameters`.
    rms_prop_epsilon: added to the mean square under the root; not read by
      Adam.
    max_gradient_norm: gradients with a larger global norm are scaled to it.
    discount: multiplies the environment's.
    max_abs_reward: rewards are clipped to it in the loss.
    baseline_cost: weight of the value loss.
    entropy_cost: weight of the policy's entropy, which is maximized.
  """

  learning_rate: Any
  learning_rate_decay_steps: Any
  rms_prop_epsilon: Any
  max_gradient_norm: Any
  discount: Any
  max_abs_reward: Any
  baseline_cost: Any
  entropy_cost: Any


# What a value may be, both ends included, where not any from zero on.
BOUNDS: Mapping[str, tuple[float, float]] = {
  'learning_rate_decay_steps': (1.0, math.inf),
  'discount': (0.0, 1.0),
  'gae_lambda': (0.0, 1.0),
  'pixel_control_discount': (0.0, 1.0),
}


def extend(module: str, base: Any, **fields: str) -> Any:
  """Makes a NamedTuple of the fields of another and some more.

  Args:
    module: `__name__` of the module that binds it to `Hyperparameters`.
    base: the other.
    **fields: names that are added behind, each with what it means.

  Returns:
    The NamedTuple.
  """
  made = collections.namedtuple(  # type: ignore[misc]
    'Hyperparameters', (*base._fields, *fields), module=module
  )
  lines = (f'  {name}: {meaning}' for name, meaning in fields.items())
  made.__doc__ = '\n'.join((inspect.getdoc(base) or '', *lines))
  return made


def check_bounds(
  priors: Any, bounds: Mapping[str, tuple[float, float]]
) -> None:
  """Raises a ValueError if a prior gives values out of its bounds.

  Args:
    priors: by name.
    bounds: by name, both ends included; other values must not be negative.
  """
  for name, prior in priors._asdict().items():
    low, high = bounds.get(name, (0.0, math.inf))
    if isinstance(prior, hyperparameters.Constant):
      lowest = highest = prior.value
    elif hasattr(prior, 'low') and hasattr(prior, 'high'):
      lowest, highest = prior.low, prior.high
    else:
      continue  # Of a prior of the user's own, only he knows the range.
    if lowest < low or highest > high:
      raise ValueError(
        f'priors.{name} ({prior!r}) must lie in [{low:g}, {high:g}]; choose a'
        ' value or bounds inside.'
      )
