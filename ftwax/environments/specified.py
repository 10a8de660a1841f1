"""The constant part of an environment: its specs."""

from ftwax import types


class Specified:
  """Returns the specs of an environment.

  Must precede `dm_env.Environment` among the base classes.
  """

  def __init__(self, spec: types.EnvironmentSpec):
    """Stores the spec of one environment or of one player."""
    self._spec = spec

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
