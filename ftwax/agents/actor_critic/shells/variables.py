"""Brings a learner's variables to an actor's device."""

import acme
import jax

from ftwax import types

# The one collection of variables that learners of the family offer.
POLICY = 'policy'


class VariableClient:
  """Holds the newest variables of a source."""

  def __init__(
    self, source: acme.VariableSource, device: jax.Device | None = None
  ):
    """Fetches the first variables.

    Args:
      source: usually a learner.
      device: where the variables are used; the first CPU unless given.
    """
    self._source = source
    self.device = device or jax.local_devices(backend='cpu')[0]
    self._params: types.Params = None
    self.update()

  def update(self) -> None:
    """Fetches the variables anew."""
    (variables,) = self._source.get_variables([POLICY])
    if variables.params is self._params:
      return  # A learner in this process has not stepped since.
    self._params = variables.params
    self.steps = int(variables.steps)
    self.variables: types.ActorVariables = jax.tree.map(self._put, variables)

  def _put(self, leaf):
    # `device_put` takes its time also for what is there already.
    if isinstance(leaf, jax.Array) and leaf.devices() == {self.device}:
      return leaf
    return jax.device_put(leaf, self.device)
