"""Faults of environments, told as what they are: errors of the user's code."""

import os
import re
import sysconfig
import traceback
from collections.abc import Sequence
from typing import NoReturn

import ftwax

_OWN = os.path.join(os.path.dirname(ftwax.__file__), '')

# Where installed packages and Python's own modules are.
_INSTALLED = tuple(
  os.path.join(sysconfig.get_path(name), '')
  for name in ('stdlib', 'purelib', 'platlib')
)

_FRAMES_TOLD = 3
_FRAME = re.compile(r'File "(.*)", line (\d+), in (.*)')


class EnvironmentFault(RuntimeError):  # noqa: N818 It is the user's error.
  """An environment raised an error, or sent what it must not."""


def fail(name: str, call: str, error: BaseException) -> NoReturn:
  """Raises what came out of an environment as an EnvironmentFault.

  `SystemExit` may be given, too: it would end the run in silence.

  Args:
    name: of the environment.
    call: what was called, e.g. `step`.
    error: that came out of it; raised as it is if it is a fault already.
  """
  if isinstance(error, EnvironmentFault):
    raise error
  raise EnvironmentFault(describe(name, call, error)) from error


def fail_to_make(name: str, error: BaseException) -> NoReturn:
  """Raises what came out of a factory.

  Errors of this library, such as those of its adapters, name thing and remedy.
  """
  frames = traceback.extract_tb(error.__traceback__)
  if isinstance(error, Exception) and _is_below(frames[-1], (_OWN,)):
    raise error
  fail(name, 'environment_factory', error)


def describe(name: str, call: str, error: BaseException) -> str:
  """Returns one line: the environment, what it did, and the user's frames.

  Args:
    name: of the environment.
    call: what was called.
    error: that came out of it.
  """
  lines = str(error).strip().splitlines() or ['']
  frames = list(traceback.extract_tb(error.__traceback__))
  text = lines[0]
  if 'Traceback (' in text:  # What a callback of JAX raised.
    text = lines[-1]
    matches = map(_FRAME.search, lines)
    frames = [
      traceback.FrameSummary(match[1], int(match[2]), match[3])
      for match in matches
      if match
    ]
  frames = _user_frames(frames)
  places = ', from '.join(
    f'{frame.filename}:{frame.lineno} in {frame.name}' for frame in frames
  )
  return (
    f'environment {name!r} raised {type(error).__name__}'
    f'{f" ({text})" if text else ""} in {call}, at {places}; correct the'
    ' environment.'
  )


def _user_frames(
  frames: Sequence[traceback.FrameSummary],
) -> list[traceback.FrameSummary]:
  """Returns the user's frames or else the last one, innermost first."""
  own = [frame for frame in frames if not _is_below(frame, (_OWN, *_INSTALLED))]
  return list(reversed(own[-_FRAMES_TOLD:] or frames[-1:]))


def _is_below(
  frame: traceback.FrameSummary, directories: tuple[str, ...]
) -> bool:
  return frame.filename.startswith((*directories, '<frozen '))
