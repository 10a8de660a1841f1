"""Steps several environments together and stacks their timesteps.

An actor selects actions for all its environments in one call of the network,
and steps them as one `VectorEnvironment`. Rows reset automatically: by dm_env's
contract, an environment whose last timestep was `LAST` ignores the next action
and returns a `FIRST` timestep. Each row is thus an endless stream of complete
episodes, `FIRST .. LAST, FIRST .. LAST`.
"""

import contextlib
import dataclasses
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

import dm_env
import jax
import numpy as np

from ftwax import types
from ftwax.environments import specified


class EnvironmentVector(Protocol):
  """`E` environments that are stepped by one call; see `VectorEnvironment`."""

  @property
  def num_environments(self) -> int:
    """`E`, the number of rows."""

  def observation_spec(self) -> types.SpecTree:
    """Returns the specs of one environment's observation."""

  def action_spec(self) -> types.SpecTree:
    """Returns the specs of one environment's action."""

  def reward_spec(self) -> types.SpecTree:
    """Returns the spec of one environment's reward."""

  def discount_spec(self) -> types.SpecTree:
    """Returns the spec of one environment's discount."""

  def reset(self) -> dm_env.TimeStep:
    """Returns the first timesteps of a new episode in every row."""

  def step(self, action: types.ArrayTree) -> dm_env.TimeStep:
    """Steps each environment, or resets it after `LAST`."""

  def step_rows(self, action: types.ArrayTree, rows: Sequence[int]) -> None:
    """Steps the environments of some rows and drops their timesteps."""

  def close(self) -> None:
    """Closes all environments."""


@dataclasses.dataclass(frozen=True)
class VectorFactory:
  """Marks an environment factory that makes a whole vector.

  Attributes:
    make: `(num_environments, seed) -> vector` with that number of rows, for
      example a `gymnasium_adapter.GymnasiumVectorEnvironment`.
  """

  make: Callable[[int, int], EnvironmentVector]

  def __call__(self, seed: int, num_environments: int = 1) -> EnvironmentVector:
    """Makes a vector.

    Raises:
      TypeError: if the result is not a vector.
      ValueError: if it has another number of rows.
    """
    made = self.make(num_environments, seed)
    num_rows = getattr(made, 'num_environments', None)
    if num_rows is None:
      raise TypeError(
        'VectorFactory.make must make a vector of environments, but made a'
        f' {type(made).__name__}; wrap it in a'
        ' gymnasium_adapter.GymnasiumVectorEnvironment, or give a function of a'
        ' seed, without VectorFactory.'
      )
    if num_rows != num_environments:
      made.close()
      raise ValueError(
        'VectorFactory.make must make the number of rows that it is called with'
        f' ({num_environments}), but made {num_rows}; pass its first argument'
        ' on to the vector.'
      )
    return made


class VectorEnvironment(specified.Specified, dm_env.Environment):
  """Steps `E` environments, one after another, as if they were one.

  Timesteps are stacked over environments:

  - `step_type` int32 [E];
  - `reward` float32 [E], or [E, num_events] for a vector reward, 0 at `FIRST`;
  - `discount` float32 [E], 1 at `FIRST`;
  - `observation` leaves [E, ...] with the dtypes of the observation spec.

  All arrays are new at each step; the caller may keep or modify them. Specs are
  those of a single environment, without the leading axis.

  Args:
    environments: environments with equal specs; `close` closes them.

  Raises:
    ValueError: if there are no environments or their specs differ.
  """

  def __init__(self, environments: Sequence[dm_env.Environment]):
    if not environments:
      raise ValueError(
        'environments must hold at least one environment, not 0; pass e.g.'
        ' [make_environment(seed) for seed in range(num_environments)].'
      )
    self._environments = tuple(environments)
    super().__init__(_common_spec(self._environments))
    # Typed Any, since jax's stubs hide the methods of tree structures.
    self._observation_structure: Any = jax.tree.structure(
      self._spec.observations
    )
    self._action_structure: Any = jax.tree.structure(self._spec.actions)
    self._is_single_array = jax.tree_util.treedef_is_leaf(
      self._observation_structure
    )
    self._is_single_action = jax.tree_util.treedef_is_leaf(
      self._action_structure
    )
    self._reward_shape = self._spec.rewards.shape
    self._leaf_specs = jax.tree.leaves(self._spec.observations)

  @property
  def num_environments(self) -> int:
    """`E`, the number of rows."""
    return len(self._environments)

  def reset(self) -> dm_env.TimeStep:
    """Returns the first timesteps of a new episode in every row."""
    return self._stack([env.reset() for env in self._environments])

  def step(self, action: types.ArrayTree) -> dm_env.TimeStep:
    """Steps each environment with its row of `action`.

    Args:
      action: leaves [E, ...], in the structure of the action spec. Rows whose
        last timestep was `LAST` are reset instead and ignore their action.

    Returns:
      The next timesteps, stacked.

    Raises:
      ValueError: if `action` has another structure or a leaf has another shape.
    """
    rows = self._action_rows(action)
    return self._stack(
      [env.step(row) for env, row in zip(self._environments, rows, strict=True)]
    )

  def step_rows(self, action: types.ArrayTree, rows: Sequence[int]) -> None:
    """Steps the environments of some rows and drops their timesteps.

    Args:
      action: leaves [E, ...].
      rows: rows whose last timestep was not `LAST`.
    """
    actions = list(self._action_rows(action))
    for row in rows:
      self._environments[row].step(actions[row])

  def close(self) -> None:
    """Closes all environments, even if closing one of them fails."""
    with contextlib.ExitStack() as stack:
      for environment in self._environments:
        stack.callback(environment.close)

  def _action_rows(self, action: types.ArrayTree) -> Iterable[Any]:
    leaves = action_leaves(self._spec, action, self.num_environments)
    if self._is_single_action:
      return leaves[0]
    return map(self._action_structure.unflatten, zip(*leaves, strict=True))

  def _stack(self, timesteps: Sequence[dm_env.TimeStep]) -> dm_env.TimeStep:
    num_rows = len(timesteps)
    step_type = np.empty(num_rows, np.int32)
    reward = np.zeros((num_rows, *self._reward_shape), np.float32)
    discount = np.ones(num_rows, np.float32)
    for row, timestep in enumerate(timesteps):
      step_type[row] = timestep.step_type
      if timestep.reward is not None:
        reward[row] = timestep.reward
      if timestep.discount is not None:
        discount[row] = timestep.discount
    observation = self._stack_observations(
      [timestep.observation for timestep in timesteps]
    )
    return dm_env.TimeStep(step_type, reward, discount, observation)

  def _stack_observations(self, rows: Sequence[Any]) -> types.ArrayTree:
    if self._is_single_array:
      return _stack_leaf(rows, self._leaf_specs[0])
    # Raises if the structure of a row differs.
    flatten = self._observation_structure.flatten_up_to
    columns = zip(*map(flatten, rows), strict=True)
    return self._observation_structure.unflatten(
      map(_stack_leaf, columns, self._leaf_specs)
    )


def action_leaves(
  spec: types.EnvironmentSpec, action: types.ArrayTree, num_rows: int
) -> list[types.NumpyArray]:
  """Returns the leaves of `action`; checks that their shapes are [E, ...]."""
  structure: Any = jax.tree.structure(spec.actions)
  leaves = [np.asarray(leaf) for leaf in structure.flatten_up_to(action)]
  for leaf, one in zip(leaves, jax.tree.leaves(spec.actions), strict=True):
    if leaf.shape != (num_rows, *one.shape):
      raise ValueError(
        f'each part of action (shape {leaf.shape}) must have the shape'
        f' {(num_rows, *one.shape)}; send one action for each environment.'
      )
  return leaves


def _stack_leaf(rows: Sequence[Any], spec: Any) -> types.NumpyArray:
  """Copies `rows` into one new array with the dtype of `spec`."""
  shape = spec.shape
  stacked = np.empty((len(rows), *shape), spec.dtype)
  for index, row in enumerate(rows):
    row = np.asarray(row)
    if row.shape != shape:
      raise ValueError(
        f'observation of environment {index} (shape {row.shape}) must have the'
        f' shape of its spec, {spec!r}; wrap it in ValidatedEnvironment to find'
        ' the error.'
      )
    stacked[index] = row
  return stacked


def _common_spec(
  environments: Sequence[dm_env.Environment],
) -> types.EnvironmentSpec:
  common = types.make_environment_spec(environments[0])
  for index, environment in enumerate(environments):
    spec = types.make_environment_spec(environment)
    for field, expected, value in zip(spec._fields, common, spec, strict=True):
      if not _is_same_spec(expected, value):
        raise ValueError(
          f'{field} of environment {index} ({value!r}) must equal those of'
          f' environment 0 ({expected!r}); vectors hold environments of one'
          ' kind, so make one for each kind.'
        )
  return common


def _is_same_spec(a: types.SpecTree, b: types.SpecTree) -> bool:
  a_leaves, a_structure = jax.tree.flatten(a)
  b_leaves, b_structure = jax.tree.flatten(b)
  same_structure = operator.eq(a_structure, b_structure)
  return same_structure and all(map(operator.eq, a_leaves, b_leaves))
