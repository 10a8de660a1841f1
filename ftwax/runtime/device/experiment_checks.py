"""Checks of an experiment before anything is compiled."""

import jax
import jax.numpy as jnp

from ftwax.environments import compiled_games, functional, games


def check_not_traced() -> None:
  """Raises a RuntimeError inside another `jax.jit`, `vmap` or `grad`."""
  if isinstance(jnp.zeros(()), jax.core.Tracer):
    raise RuntimeError(
      'run_experiment must not be called inside a function that JAX traces, but'
      ' was; call it from plain Python, or compile the functions of'
      ' ftwax.runtime.device.loop into yours.'
    )


def check_one_process(environment_processes: int) -> None:
  """Raises a ValueError if environments are to step in separate processes."""
  if environment_processes:
    raise ValueError(
      f'environment_processes ({environment_processes}) must be 0 for'
      " runtime='device', which compiles environments together with the agent;"
      " leave it out, or choose runtime='local'."
    )


def check_game(made: object) -> functional.FunctionalGame:
  """Returns the environment or game as a game that can be compiled.

  Nothing is executed: shapes and dtypes come from abstract evaluation.

  Args:
    made: returned by the environment factory.

  Raises:
    TypeError: if it is neither a functional environment nor a functional game.
    ValueError: if it does not match its spec (see
      `compiled_games.check_shapes`), or its teams, events and actions are
      inconsistent.
  """
  if not isinstance(
    made, functional.FunctionalEnvironment | functional.FunctionalGame
  ):
    raise TypeError(
      'environment must make a functional.FunctionalEnvironment or'
      f" FunctionalGame for runtime='device', but made a {type(made).__name__};"
      " return one that is written in JAX, or choose runtime='local'."
    )
  compiled_games.check_shapes(made)
  if isinstance(made, functional.FunctionalEnvironment):
    made = functional.as_game(made)
  games.check_game(compiled_games.spec_of_compiled(made))
  return made
