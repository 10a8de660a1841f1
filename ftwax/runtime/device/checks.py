"""What can be told of a bad experiment before anything is compiled."""

from typing import Any

import dm_env
import jax
import jax.numpy as jnp
import numpy as np

from ftwax.environments import functional


def check_not_traced() -> None:
  """Raises a RuntimeError inside another `jax.jit`, `vmap` or `grad`."""
  if isinstance(jnp.zeros(()), jax.core.Tracer):
    raise RuntimeError(
      'run_experiment must not be called inside a function that JAX traces,'
      ' and is; call it as plain Python, or compile the functions of'
      ' ftwax.runtime.device.loop into yours.'
    )


def check_environment(
  environment: Any,
) -> functional.FunctionalEnvironment:
  """Returns `environment` if it is one that can be compiled.

  Nothing is run: shapes and dtypes are read off its functions.

  Args:
    environment: what the factory made.

  Returns:
    The same.

  Raises:
    TypeError: if it is no `FunctionalEnvironment`.
    ValueError: if its timesteps are off its spec, or if its state or timestep
      changes its structure, shape or dtype from step to step.
  """
  _check_type(environment, functional.FunctionalEnvironment)
  _check_shapes(environment, ())
  return environment


def check_game(game: Any) -> functional.FunctionalGame:
  """Returns `game` if it can be compiled, or the game that it stands for.

  Args:
    game: what the factory made: a game, or an environment of one player.

  Returns:
    The game.

  Raises:
    TypeError: if it is neither.
    ValueError: as in `check_environment`.
  """
  if isinstance(game, functional.FunctionalEnvironment):
    return functional.as_game(check_environment(game))
  _check_type(game, functional.FunctionalGame)
  _check_shapes(game, (len(game.teams),))
  return game


def _check_type(made: Any, kind: type) -> None:
  if not isinstance(made, kind):
    raise TypeError(
      f'environment_factory must make a functional.{kind.__name__} for'
      f" runtime='device', and made a {type(made).__name__}; give one that is"
      " written in JAX, or choose runtime='local'."
    )


def _check_shapes(made: Any, axes: tuple[int, ...]) -> None:
  """Compares what reset and step return; `axes` stand before the spec's."""
  key = jax.ShapeDtypeStruct((2,), np.uint32)
  state, timestep = jax.eval_shape(made.reset, key)

  def expect(leaf, dtype=None):
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
  after = jax.eval_shape(made.step, state, action)
  _check_like(after, (state, timestep), 'reset')


def _check_like(tree: Any, expected: Any, source: str) -> None:
  """Raises a ValueError that names the first leaf that differs."""
  structure: Any = jax.tree.structure(expected)
  if jax.tree.structure(tree) != structure:
    raise ValueError(
      f'what the environment returns ({jax.tree.structure(tree)}) must have the'
      f' structure that {source} tells, {structure}; return the same at every'
      ' step.'
    )
  pairs = zip(
    jax.tree.leaves_with_path(tree), jax.tree.leaves(expected), strict=True
  )
  for (path, leaf), demanded in pairs:
    if leaf.shape != demanded.shape or leaf.dtype != demanded.dtype:
      raise ValueError(
        f'{jax.tree_util.keystr(path)} of the environment (shape {leaf.shape},'
        f' dtype {leaf.dtype}) must be as {source} tells, of shape'
        f' {demanded.shape} and dtype {demanded.dtype}; shapes and dtypes must'
        ' not change in an episode.'
      )
