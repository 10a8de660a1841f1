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
    self.update()

  def update(self) -> None:
    """Fetches the variables anew."""
    (variables,) = self._source.get_variables([POLICY])
    self.steps = int(variables.steps)
    self.variables: types.ActorVariables = jax.device_put(
      variables, self.device
    )
