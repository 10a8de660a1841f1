"""Reports faults of environments as errors of the user's code."""

import functools
import os
import re
import sysconfig
import traceback
from collections.abc import Sequence
from typing import NoReturn

from absl import logging

from ftwax import errors

_OWN = os.path.join(os.path.dirname(os.path.dirname(__file__)), '')

# Directories of installed packages and of Python's standard library.
_INSTALLED = tuple(
  os.path.join(sysconfig.get_path(name), '')
  for name in ('stdlib', 'purelib', 'platlib')
)

# Packages that this library's lines call on what an environment returns.
_ARRAYS = tuple(
  os.path.join(directory, package, '')
  for directory in _INSTALLED
  for package in ('numpy', 'jax', 'jaxlib')
)

_FRAMES_TOLD = 3

# The call of what makes an environment.
MAKE = 'environment'

# Steps of an episode after which it may have no end.
_LONG = 10_000
_FRAME = re.compile(r'File "(.*)", line (\d+), in (.*)')


class EnvironmentFault(errors.UserError):  # noqa: N818 Caused by the user.
  """An environment raised an error or returned invalid data."""


def fail(name: str, call: str, error: BaseException) -> NoReturn:
  """Raises an error of an environment as an EnvironmentFault.

  Also accepts `SystemExit`, which would otherwise end the run silently. Errors
  that this library raises on purpose or when an environment is made, such as
  those of its adapters, are reraised unchanged: they explain the remedy.

  Args:
    name: name of the environment.
    call: the method that was called, e.g. `step`, or `MAKE`.
    error: the error that it raised.
  """
  frames = traceback.extract_tb(error.__traceback__)
  is_own = _is_below(frames[-1], (_OWN,))
  is_meant = call == MAKE or (frames[-1].line or '').startswith('raise ')
  # A function in C, such as that of a name which makes no environment.
  is_own &= len(frames) > 1
  if isinstance(error, EnvironmentFault) or (is_own and is_meant):
    raise error
  raise EnvironmentFault(describe(name, call, error)) from error


def describe(name: str, call: str, error: BaseException) -> str:
  """Returns a line with the environment, its error and the user's frames.

  Args:
    name: name of the environment.
    call: the method that was called.
    error: the error that it raised.
  """
  lines = str(error).strip().splitlines() or ['']
  frames = list(traceback.extract_tb(error.__traceback__))
  text = lines[0]
  if 'Traceback (' in text:  # Raised by a JAX callback.
    text = lines[-1]
    matches = map(_FRAME.search, lines)
    frames = [
      traceback.FrameSummary(match[1], int(match[2]), match[3])
      for match in matches
      if match
    ]
  # The user's frames, innermost first, or else the last frame.
  users = [f for f in frames if not _is_below(f, (_OWN, *_INSTALLED))]
  told = (users[-_FRAMES_TOLD:] or frames[-1:])[::-1]
  remedy = 'fix the environment'
  if call == MAKE and len(frames) == 1:  # A function in C.
    remedy = 'name a class or function that makes an environment'
  elif package := _find_missing(error):
    remedy = f'install what it needs, as by `pip install {package}`'
  elif _is_adapter(frames):
    told = [frame for frame in frames if _is_below(frame, (_OWN,))][-1:]
    remedy = (
      'the adapter could not take what the environment returned: compare it'
      ' with the spaces and the interface of the environment, and report this'
      ' as a fault of ftwax if they agree'
    )
  places = ', from '.join(
    f'{frame.filename}:{frame.lineno} in {frame.name}' for frame in told
  )
  return (
    f'environment {name!r} raised'
    f' {type(error).__name__}{f" ({text})" if text else ""} in {call}, at'
    f' {places}; {remedy}.'
  )


def warn_of_endless(name: str, num_steps: int) -> None:
  """Warns once of each environment with an episode of 10,000 steps or more."""
  if num_steps >= _LONG:
    _warn_of_endless(name)


@functools.cache  # The warning is given once.
def _warn_of_endless(name: str) -> None:
  logging.warning(
    'environment %r has not ended an episode in %s steps; if it never does,'
    ' limit its steps, for example by gymnasium.wrappers.TimeLimit.',
    name,
    f'{_LONG:,}',
  )


def _find_missing(error: BaseException) -> str:
  """Returns the package that is missing, by a chain of errors; '' if none."""
  cause: BaseException | None = error
  found = ''
  while cause is not None:
    if isinstance(cause, ModuleNotFoundError) and cause.name:
      found = cause.name.partition('.')[0]
    elif type(cause).__name__ == 'DependencyNotInstalled':  # Of Gymnasium.
      command = re.search(r'pip install ["\']?([^"\'`]+)', str(cause))
      return command[1].strip() if command else found
    cause = cause.__cause__ or cause.__context__
  return found


def _is_adapter(frames: Sequence[traceback.FrameSummary]) -> bool:
  """Returns whether an error is of this library's line, or of arrays there."""
  for frame in reversed(frames):
    if not _is_below(frame, _ARRAYS):
      return _is_below(frame, (_OWN,))
  return False


def _is_below(
  frame: traceback.FrameSummary, directories: tuple[str, ...]
) -> bool:
  return frame.filename.startswith((*directories, '<frozen '))
