"""Errors that the user can fix, for which the message suffices."""

import contextlib
import functools
import os
import pathlib
import traceback
from collections.abc import Callable
from typing import ParamSpec, TypeVar

_Arguments = ParamSpec('_Arguments')
_Result = TypeVar('_Result')

_OWN = (os.path.join(pathlib.Path(__file__).parent, ''), contextlib.__file__)

# Variable of the environment; any value shows all frames.
TRACEBACK = 'FTWAX_TRACEBACK'


class UserError(RuntimeError):
  """Is due to the user's environment, records, machine or network."""


# Caused by the user's values, data, machine or ports; others are bugs.
EXPECTED = (UserError, ValueError, OSError, ArithmeticError, ImportError)


def shown_briefly(
  function: Callable[_Arguments, _Result],
) -> Callable[_Arguments, _Result]:
  """Returns a function whose expected errors have a short traceback.

  Frames of this library are left out if there are no others below the call.
  With `FTWAX_TRACEBACK=1` in the environment all are shown, as the last line of
  a short traceback says.

  Args:
    function: a function that users call.
  """

  @functools.wraps(function)
  def call(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
    try:
      return function(*args, **kwargs)
    except EXPECTED as error:
      if TRACEBACK in os.environ or not _is_raised_here(error):
        raise
      error = error.with_traceback(None)
      raise error  # FTWAX_TRACEBACK=1 shows the frames that are left out.

  return call


def _is_raised_here(error: BaseException) -> bool:
  """Returns whether all frames below the wrapper are of this library."""
  frames = traceback.extract_tb(error.__traceback__)[1:]
  return all(frame.filename.startswith(_OWN) for frame in frames)


def printable(text: str) -> str:
  """Returns a text of a record in which a terminal finds no commands.

  Letters of other scripts and ends of lines stay, and all else that would not
  be seen is escaped.
  """
  if text.isprintable():
    return text
  return ''.join(
    each
    if each.isprintable() or each in '\n\u3000'
    else each.encode('unicode_escape').decode('ascii')
    for each in text
  )
