"""Checks the timesteps of a vector of environments against its specs."""

from collections.abc import Sequence
from typing import Any

import dm_env
import jax
import numpy as np

from ftwax import types
from ftwax.environments import (
  environment_faults,
  specified,
  validation,
  vector,
)


class ValidatedVector(specified.Specified, dm_env.Environment):
  """Checks every timestep of a vector and returns it unchanged.

  Each row must meet the demands of `validation.ValidatedEnvironment`; messages
  name the row.
  """

  def __init__(
    self, environments: vector.EnvironmentVector, name: str, first: int = 0
  ):
    """Takes ownership of a vector; `close` closes it.

    Args:
      environments: the vector to check.
      name: name of the environments in messages.
      first: index of the first environment in messages.

    Raises:
      ValueError: if agents cannot act on its specs.
    """
    super().__init__(types.make_environment_spec(environments))
    self._environments = environments
    self._name = name
    num_rows = environments.num_environments
    self._checker = validation.RowChecker(self._spec, num_rows, 1, name, first)
    # Typed Any, since jax's stubs hide the methods of tree structures.
    self._structure: Any = jax.tree.structure(self._spec.observations)
    self._leaves = [
      leaf._replace(shape=(num_rows, *leaf.shape))
      for leaf in validation.observation_leaves(self._spec)
    ]
    self._reward_shape = (num_rows, *self._spec.rewards.shape)

  @property
  def num_environments(self) -> int:
    """`E`, the number of rows."""
    return self._environments.num_environments

  def reset(self) -> dm_env.TimeStep:
    """Returns the first timesteps of a new episode in every row.

    Raises:
      InvalidTimestepError: if a row violates the specs.
    """
    self._checker.restart()
    return self._check(self._call('reset'))

  def step(self, action: types.ArrayTree) -> dm_env.TimeStep:
    """Steps each environment with its row of `action`, leaves [E, ...].

    Raises:
      InvalidTimestepError: if a row violates the specs.
      ValueError: if a leaf of `action` has another shape.
    """
    vector.action_leaves(self._spec, action, self.num_environments)
    return self._check(self._call('step', action))

  def step_rows(self, action: types.ArrayTree, rows: Sequence[int]) -> None:
    """Steps the environments of some rows and drops their timesteps."""
    self._call('step_rows', action, rows)

  def close(self) -> None:
    """Closes the vector."""
    self._call('close')

  def _call(self, method: str, *args: Any) -> Any:
    try:
      return getattr(self._environments, method)(*args)
    except (Exception, SystemExit) as error:
      environment_faults.fail(self._name, method, error)

  def _check(self, timestep: dm_env.TimeStep) -> dm_env.TimeStep:
    num_rows = self._reward_shape[0]
    self._check_shape('step_type', timestep.step_type, (num_rows,))
    self._check_shape('reward', timestep.reward, self._reward_shape)
    self._check_shape('discount', timestep.discount, (num_rows,))
    try:
      leaves = self._structure.flatten_up_to(timestep.observation)
    except (ValueError, TypeError):
      structure = jax.tree.structure(timestep.observation)
      validation.fail(
        self._name,
        'observation',
        f'structure {structure}',
        f'have the structure of its spec, {self._structure}',
        validation.CHANGE_SPEC,
      )
    for value, leaf in zip(leaves, self._leaves, strict=True):
      self._check_shape(leaf.name, value, leaf.shape, leaf.dtype)
    return self._checker.check(timestep)

  def _check_shape(
    self,
    field: str,
    value: Any,
    shape: tuple[int, ...],
    dtype: np.dtype[Any] | None = None,
  ) -> None:
    found = np.shape(value), getattr(value, 'dtype', type(value).__name__)
    if found[0] == shape and dtype in (None, found[1]):
      return
    expected = '' if dtype is None else f' and dtype {dtype}'
    validation.fail(
      self._name,
      field,
      f'shape {found[0]}, dtype {found[1]}',
      f'be of shape {shape}{expected}, with a row for each environment',
      validation.CHANGE_SPEC,
    )
