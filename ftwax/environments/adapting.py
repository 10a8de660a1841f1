"""Accepts Gymnasium environments where those of this library are expected."""

import functools
import inspect
import sys
from collections.abc import Callable
from typing import Any

from ftwax.environments import extras, functional

_IN_JAX = (functional.FunctionalEnvironment, functional.FunctionalGame)

# Anything that `make_factory` accepts.
Environment = (
  str
  | type
  | Callable[[int], Any]
  | functional.FunctionalEnvironment
  | functional.FunctionalGame
)


def adapt(environment: Any, seed: int, **options: Any) -> Any:
  """Wraps a Gymnasium environment; returns other environments unchanged.

  Args:
    environment: an environment, or the name of a Gymnasium environment.
    seed: seed of a Gymnasium environment.
    **options: options of `gymnasium.make`, if a name is given.
  """
  if isinstance(environment, str):
    with extras.required('gymnasium'):
      import gymnasium
    environment = gymnasium.make(environment, **options)
  library = sys.modules.get('gymnasium')  # Imported if any of its classes is.
  if library is None or not isinstance(environment, library.Env):
    return environment
  from ftwax.environments import gymnasium_adapter

  return gymnasium_adapter.GymnasiumEnvironment(environment, seed)


def make_factory(environment: Environment) -> Callable[..., Any]:
  """Returns a function that makes an environment or a game, given a seed.

  Args:
    environment: the name of a Gymnasium environment; a class, made with the
      seed if its constructor takes a `seed`, else without arguments; a
      factory, which is returned unchanged; or a JAX environment or game, which
      is returned for every seed.

  Raises:
    TypeError: if `environment` is something else.
  """
  if isinstance(environment, str):
    return functools.partial(adapt, environment)
  if isinstance(environment, type):
    takes_seed = 'seed' in inspect.signature(environment).parameters
    return functools.partial(_make, environment, takes_seed)
  if isinstance(environment, _IN_JAX):
    return functools.partial(_get, environment)
  if not callable(environment):
    raise TypeError(
      f'environment ({environment!r}) must be the name of a Gymnasium'
      ' environment, a class, a function of a seed, or a JAX environment or'
      " game; choose 'CartPole-v1'."
    )
  return environment


def describe(environment: Environment) -> str:
  """Returns the name of an environment for the name of an experiment."""
  if isinstance(environment, str):
    return environment
  return getattr(environment, '__name__', 'environment')


def _make(environment: type, takes_seed: bool, seed: int) -> Any:
  return adapt(environment(seed=seed) if takes_seed else environment(), seed)


def _get(environment: Any, seed: int) -> Any:
  del seed
  return environment
