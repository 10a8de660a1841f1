"""Target parameters, which follow those that learn."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from ftwax import parts, registry, types


@registry.register('target.periodic')
@dataclasses.dataclass(frozen=True)
class PeriodicTarget(parts.Part):
  """Copies the parameters every so many updates (Mnih et al., 2015).

  Attributes:
    period: updates between two copies.
  """

  period: parts.Integer = parts.scalar(100, low=1)

  def update(
    self, target_params: types.Params, params: types.Params, steps: types.Array
  ) -> types.Params:
    """Returns the target parameters after an update.

    Args:
      target_params: before the update.
      params: after the update.
      steps: int32 [], updates done with this one.
    """
    copies = steps % self.period == 0
    return jax.tree.map(
      lambda old, new: jnp.where(copies, new, old), target_params, params
    )


@registry.register('target.average')
@dataclasses.dataclass(frozen=True)
class AverageTarget(parts.Part):
  """Averages the parameters exponentially (Lillicrap et al., 2016).

  Attributes:
    rate: share of the new parameters in each update.
  """

  rate: parts.Scalar = parts.scalar(0.005, high=1.0)

  def update(
    self, target_params: types.Params, params: types.Params, steps: types.Array
  ) -> types.Params:
    """Returns the target parameters after an update; see `PeriodicTarget`."""
    del steps
    rate: Any = self.rate
    return jax.tree.map(
      lambda old, new: old + rate * (new - old), target_params, params
    )
