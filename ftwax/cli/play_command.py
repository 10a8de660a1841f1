"""Plays against a population in the browser.

The source is a trained population that comes with the library, such as
capture_the_flag; the directory of a run of capture the flag or catch; catch,
alone; or pettingzoo:ID, such as pettingzoo:butterfly/cooperative_pong-v6.
"""

import argparse
import importlib
from typing import Any


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the source and the address."""
  parser.add_argument('source', nargs='?', default='capture_the_flag')
  add_server_arguments(parser)


def add_server_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds where games are saved, and the address."""
  parser.add_argument(
    '--save_dir', default='runs/games', help='where games are saved'
  )
  parser.add_argument(
    '--host',
    default='127.0.0.1',
    help='address to serve on; others than loopback need the token of the link',
  )
  parser.add_argument(
    '--port', type=int, default=8700, help='0 for any that is free'
  )


def import_server() -> Any:
  """Returns `web_server`.

  Raises:
    ValueError: if packages that it needs are not installed.
  """
  try:
    return importlib.import_module('ftwax.web.web_server')
  except ImportError as error:
    raise ValueError(
      f'pages need packages that must be installed ({error}); run `uv sync`, or'
      " `pip install -c constraints.txt -e '.[web]'`, in a clone."
    ) from None


def run(arguments: argparse.Namespace) -> int:
  """Serves the game until Ctrl-C."""
  web_server = import_server()
  playable = web_server.make_playable(arguments.source)
  web_server.play(playable, arguments.save_dir, arguments.host, arguments.port)
  return 0
