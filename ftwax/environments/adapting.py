"""Environments of Gymnasium where those of this library are expected."""

import functools
import sys
from collections.abc import Callable
from typing import Any

from ftwax.environments import extras


def adapt(environment: Any, seed: int, **options: Any) -> Any:
  """Wraps an environment of Gymnasium; returns others as they are.

  Args:
    environment: any, or the name of one of Gymnasium.
    seed: for an environment of Gymnasium.
    **options: of `gymnasium.make`, for one that is named.
  """
  if isinstance(environment, str):
    with extras.required('gymnasium'):
      import gymnasium
    environment = gymnasium.make(environment, **options)
  library = sys.modules.get('gymnasium')  # It is there if this is one of it.
  if library is None or not isinstance(environment, library.Env):
    return environment
  from ftwax.environments import gymnasium_adapter

  return gymnasium_adapter.GymnasiumEnvironment(environment, seed)


def make_factory(
  environment: str | type | Callable[[int], Any],
) -> Callable[[int], Any]:
  """Returns what makes an environment, given a seed.

  Args:
    environment: the name of one of Gymnasium; a class, made without arguments;
      or a factory, which is returned as it is.
  """
  if isinstance(environment, str):
    return functools.partial(adapt, environment)
  if isinstance(environment, type):
    return functools.partial(_make, environment)
  return environment


def _make(environment: type, seed: int) -> Any:
  return adapt(environment(), seed)
