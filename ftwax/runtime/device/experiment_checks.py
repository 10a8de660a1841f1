"""What can be told of a bad experiment before anything is compiled."""

from typing import Any

import jax
import jax.numpy as jnp

from ftwax.environments import functional, functional_checks


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
    ValueError: see `functional_checks.check_shapes`.
  """
  _check_type(environment, functional.FunctionalEnvironment)
  functional_checks.check_shapes(environment)
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
  functional_checks.check_shapes(game)
  return game


def _check_type(made: Any, kind: type) -> None:
  if not isinstance(made, kind):
    raise TypeError(
      f'environment_factory must make a functional.{kind.__name__} for'
      f" runtime='device', and made a {type(made).__name__}; give one that is"
      " written in JAX, or choose runtime='local'."
    )
