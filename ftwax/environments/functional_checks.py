"""Checks JAX environments before anything is compiled."""

from collections.abc import Callable
from typing import Any

import dm_env
import jax
import numpy as np

from ftwax.environments import environment_faults, functional


def check_shapes(
  made: functional.FunctionalEnvironment | functional.FunctionalGame,
) -> None:
  """Compares the results of reset and step with the spec and each other.

  Nothing is executed: shapes and dtypes come from abstract evaluation.

  Args:
    made: a single environment or game, not a vector.

  Raises:
    ValueError: if timesteps violate the spec, or the state or the timestep
      changes its structure, shape or dtype between steps.
  """
  axes: tuple[int, ...] = ()
  if isinstance(made, functional.FunctionalGame):
    axes = (len(made.teams),)
  key = jax.ShapeDtypeStruct((2,), np.uint32)
  state, timestep = _trace('reset', made.reset, key)

  def expect(leaf: Any, dtype: Any = None) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct((*axes, *leaf.shape), dtype or leaf.dtype)

  spec = made.spec
  scalar = jax.ShapeDtypeStruct((), np.float32)
  expected = dm_env.TimeStep(
    step_type=expect(scalar, np.int32),
    reward=expect(spec.rewards, np.float32),
    discount=expect(scalar),
    observation=jax.tree.map(expect, spec.observations),
  )
  _check_like(timestep, expected, 'its spec')
  action = jax.tree.map(lambda leaf: expect(leaf, np.int32), spec.actions)
  after = _trace('step', made.step, state, action)
  _check_like(after, (state, timestep), 'reset')


def _trace(call: str, function: Callable[..., Any], *args: Any) -> Any:
  """Returns the shapes and dtypes of the result of a user's function."""
  try:
    return jax.eval_shape(function, *args)
  except (Exception, SystemExit) as error:
    environment_faults.fail('in JAX', call, error)


def _check_like(tree: Any, expected: Any, source: str) -> None:
  """Raises a ValueError that names the first leaf that differs."""
  structure: Any = jax.tree.structure(expected)
  if jax.tree.structure(tree) != structure:
    raise ValueError(
      f'the tree that the environment returns ({jax.tree.structure(tree)}) must'
      f' have the structure of {source}, {structure}; return the same structure'
      ' at every step.'
    )
  pairs = zip(
    jax.tree.leaves_with_path(tree), jax.tree.leaves(expected), strict=True
  )
  for (path, leaf), demanded in pairs:
    if leaf.shape != demanded.shape or leaf.dtype != demanded.dtype:
      raise ValueError(
        f'{jax.tree_util.keystr(path)} of the environment (shape {leaf.shape},'
        f' dtype {leaf.dtype}) must be as in {source}, of shape'
        f' {demanded.shape} and dtype {demanded.dtype}; shapes and dtypes must'
        ' not change in an episode.'
      )
