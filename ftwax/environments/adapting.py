"""Accepts Gymnasium environments where those of this library are expected."""

import functools
import sys
from collections.abc import Callable
from typing import Any

from ftwax.environments import extras


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


def make_factory(
  environment: str | type | Callable[[int], Any],
) -> Callable[[int], Any]:
  """Returns a function that makes an environment, given a seed.

  Args:
    environment: the name of a Gymnasium environment; a class, made without
      arguments; or a factory, which is returned unchanged.
  """
  if isinstance(environment, str):
    return functools.partial(adapt, environment)
  if isinstance(environment, type):
    return functools.partial(_make, environment)
  return environment


def _make(environment: type, seed: int) -> Any:
  return adapt(environment(), seed)
