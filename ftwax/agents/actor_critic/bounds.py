"""Bounds of hyperparameters: what a prior may give and a user may set."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from ftwax import hyperparameters

# Least and greatest value by name, both included.
Bounds = Mapping[str, tuple[float, float]]

# Of the hyperparameters whose bounds are not zero and infinity.
BOUNDS: Bounds = {
  'learning_rate_decay_steps': (1.0, math.inf),
  'discount': (0.0, 1.0),
  'gae_lambda': (0.0, 1.0),
  'pixel_control_discount': (0.0, 1.0),
  'replay_priority_exponent': (0.0, 1.0),
  'replay_importance_exponent': (0.0, 1.0),
}


def check_priors(
  priors: Mapping[str, hyperparameters.Prior], bounds: Bounds
) -> None:
  """Raises a ValueError if a prior gives values out of bounds.

  Args:
    priors: by name.
    bounds: by name; zero and infinity for names that are not there.
  """
  for name, prior in priors.items():
    low, high = bounds.get(name, (0.0, math.inf))
    if not hasattr(prior, 'limits'):
      continue  # The range of a user's own prior is not known.
    lowest, highest = prior.limits
    if not low <= lowest <= highest <= high:  # Of a NaN, too.
      raise ValueError(
        f'priors.{name} ({prior!r}) must lie in [{low:g}, {high:g}]; choose a'
        ' value or bounds inside.'
      )


def check_values(values: Mapping[str, Any], bounds: Bounds) -> None:
  """Raises a ValueError if a value is out of bounds or not a number.

  Args:
    values: numbers or arrays by name; of a population, of all its members.
    bounds: by name; zero and infinity for names that are not there.
  """
  for name, value in values.items():
    low, high = bounds.get(name, (0.0, math.inf))
    array = np.asarray(value)
    if not np.all((array >= low) & (array <= high)):  # False of a NaN.
      raise ValueError(
        f'hyperparameters.{name} ({value}) must lie in [{low:g}, {high:g}];'
        ' choose a value inside.'
      )
