"""Follows runs in the browser, one or several, running or finished."""

import argparse
import importlib
from typing import Any

from ftwax.cli import past_runs


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the arguments: the runs and the address."""
  parser.add_argument(
    'runs',
    metavar='RUN',
    nargs='*',
    help='directory of a run; by default the newest one below runs/',
  )
  parser.add_argument(
    '--end_with_input', action='store_true', help=argparse.SUPPRESS
  )
  add_server_arguments(parser)


def add_server_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the arguments of the server: directory of saved games and address."""
  parser.add_argument(
    '--save_dir',
    default='runs/games',
    help='directory of saved games (runs/games)',
  )
  parser.add_argument(
    '--host',
    default='127.0.0.1',
    help='address to serve on (127.0.0.1); other machines need the token in the'
    ' printed link',
  )
  parser.add_argument(
    '--port',
    type=int,
    help='port; by default 8700, or any free one if that is taken',
  )


def import_server() -> Any:
  """Imports `web_server`.

  Raises:
    ValueError: if required packages are not installed.
  """
  try:
    return importlib.import_module('ftwax.web.web_server')
  except ImportError as error:
    raise ValueError(
      f'web pages need packages that are not installed ({error}); run `uv'
      " sync`, or `pip install -c constraints.txt -e '.[web]'`, in a clone."
    ) from None


def run(arguments: argparse.Namespace) -> int:
  """Serves the page until Ctrl-C."""
  import_server().watch(
    arguments.runs,
    arguments.save_dir,
    arguments.host,
    arguments.port,
    arguments.end_with_input,
    past_runs.find_game,
  )
  return 0
