"""Specs of environments, and checks that those of this package share."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from dm_env import specs

from ftwax import types


class Specified:
  """Returns the specs of an environment.

  Must precede `dm_env.Environment` among the base classes.
  """

  def __init__(self, spec: types.EnvironmentSpec):
    """Stores the spec of one environment or of one player."""
    self._spec = spec
    # Whether rows may be `types.ABSENT`.
    self.absences = spec.absences

  def observation_spec(self) -> types.SpecTree:
    """Returns the specs of the observation."""
    return self._spec.observations

  def action_spec(self) -> types.SpecTree:
    """Returns the specs of the action."""
    return self._spec.actions

  def reward_spec(self) -> types.SpecTree:
    """Returns the spec of the reward."""
    return self._spec.rewards

  def discount_spec(self) -> types.SpecTree:
    """Returns the spec of the discount."""
    return self._spec.discounts


def make_spec(
  observations: types.SpecTree,
  actions: types.SpecTree | int,
  reward_range: tuple[float, float] | None = None,
  num_events: int | None = None,
) -> types.EnvironmentSpec:
  """Makes the spec of an environment with a float32 reward and discount.

  Args:
    observations: specs of the observation.
    actions: specs of the action, or the number of choices of a discrete one.
    reward_range: smallest and largest reward; None for unbounded rewards.
    num_events: length of a vector reward; None for a scalar reward.

  Returns:
    The spec; discounts are scalars in [0, 1].
  """
  if isinstance(actions, int):
    actions = specs.DiscreteArray(actions, np.int32, 'action')
  shape = () if num_events is None else (num_events,)
  if reward_range is None:
    rewards = specs.Array(shape, np.float32, 'reward')
  else:
    rewards = specs.BoundedArray(shape, np.float32, *reward_range, 'reward')
  return types.EnvironmentSpec(
    observations=observations,
    actions=actions,
    rewards=rewards,
    discounts=specs.BoundedArray((), np.float32, 0, 1, 'discount'),
  )


def entries(observation: Any) -> dict[str, Any]:
  """Returns an observation as a dict, or one whose entry is 'observation'."""
  if isinstance(observation, Mapping):
    return dict(observation)
  return {'observation': observation}


def check_at_least(least: int, most: int = 2**20, **values: int) -> None:
  """Raises a ValueError that names the first value not between these."""
  for name, value in values.items():
    if value < least:
      raise ValueError(
        f'{name} ({value}) must be at least {least}; choose {least}.'
      )
    if value > most:
      raise ValueError(f'{name} ({value}) must be at most {most}; choose less.')
