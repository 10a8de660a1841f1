"""Bounds on the values of hyperparameters, for priors and for users."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from ftwax import hyperparameters

# Smallest and largest allowed value, both inclusive, by name.
Bounds = Mapping[str, tuple[float, float]]

# Hyperparameters whose bounds differ from the default, zero and infinity.
BOUNDS: Bounds = {
  'learning_rate_decay_steps': (1.0, math.inf),
  'discount': (0.0, 1.0),
  'gae_lambda': (0.0, 1.0),
  'pixel_control_discount': (0.0, 1.0),
  'replay_priority_exponent': (0.0, 1.0),
  'replay_importance_exponent': (0.0, 1.0),
}


# Those that may be infinite, for no limit.
_UNLIMITED = (
  'learning_rate_decay_steps', 'max_gradient_norm', 'max_abs_reward',
  'value_clip',
)  # fmt: skip


def check_priors(
  priors: Mapping[str, hyperparameters.Prior], bounds: Bounds
) -> None:
  """Raises a ValueError if a prior can produce values out of bounds.

  Args:
    priors: by name.
    bounds: by name; zero and infinity for names not listed.
  """
  for name, prior in priors.items():
    low, high = bounds.get(name, (0.0, math.inf))
    if not hasattr(prior, 'limits'):
      continue  # The range of a custom prior is unknown.
    lowest, highest = prior.limits
    if not low <= lowest <= highest <= high:  # Also true for NaN.
      raise ValueError(
        f'{name} ({prior!r}) must lie in [{low:g}, {high:g}]; choose a'
        ' value or bounds inside.'
      )
    if math.isinf(highest) and name not in _UNLIMITED:
      raise ValueError(f'{name} ({prior!r}) must be finite; choose a number.')


def check_values(values: Mapping[str, Any], bounds: Bounds) -> None:
  """Raises a ValueError if a value is out of bounds or not a number.

  Args:
    values: numbers or arrays by name; for a population, [N, ...] each.
    bounds: by name; zero and infinity for names not listed.
  """
  for name, value in values.items():
    low, high = bounds.get(name, (0.0, math.inf))
    array = np.asarray(value)
    if not np.all((array >= low) & (array <= high)):  # Also true for NaN.
      raise ValueError(
        f'hyperparameters.{name} ({value}) must lie in [{low:g}, {high:g}];'
        ' choose a value inside.'
      )
