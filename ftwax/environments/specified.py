"""The part of an environment that never changes: its specs."""

from ftwax import types


class Specified:
  """Answers for a spec; goes before `dm_env.Environment` among the bases."""

  def __init__(self, spec: types.EnvironmentSpec):
    """Takes the specs of one environment, or of one player."""
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
