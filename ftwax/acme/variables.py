"""A client that fetches a learner's variables to an actor's CPU."""

import operator
from collections.abc import Sequence
from typing import Any, Protocol

import jax
import numpy as np

from ftwax import types

# Name of the only collection of variables that learners of the family serve.
POLICY = 'policy'


class VariableSource(Protocol):
  """acme's variable source, usually a learner."""

  def get_variables(self, names: Sequence[str]) -> list[Any]:
    """Returns the variables of each name."""


class VariableClient:
  """Fetches variables from a source and holds the latest ones."""

  def __init__(self, source: VariableSource):
    """Makes a client and fetches the initial variables.

    Args:
      source: source of the variables, usually a learner; they are put on the
        first CPU.
    """
    self._source = source
    self._device = jax.local_devices(backend='cpu')[0]
    self._fetched: types.ActorVariables | None = None
    self.update()

  @property
  def sharding(self) -> jax.sharding.Sharding:
    """Sharding of the variables.

    A learner in this process may have placed them on a mesh of one device. JAX
    compiles a function of them again if its results come back as arguments,
    unless these were on the same mesh from the start.
    """
    return self.variables.steps.sharding

  def update(self) -> None:
    """Fetches the newest variables."""
    (variables,) = self._source.get_variables([POLICY])
    if self._fetched is not None and all(
      map(operator.is_, variables, self._fetched)
    ):
      return  # The same arrays: a learner in this process has not updated.
    self._fetched = variables
    self.steps = int(variables.steps)
    self.internal_rewards = np.asarray(variables.internal_rewards)
    self.variables: types.ActorVariables = jax.tree.map(self._put, variables)

  def _put(self, leaf: types.Array) -> types.Array:
    # `device_put` costs time even if the array is on the device already.
    if isinstance(leaf, jax.Array) and leaf.devices() == {self._device}:
      return leaf
    return jax.device_put(leaf, self._device)
