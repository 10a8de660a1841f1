"""Plays against a population in the browser.

The source is a trained population included in the library, such as
capture_the_flag; the directory of a run; catch, without opponents; or
pettingzoo:NAME, such as pettingzoo:butterfly/cooperative_pong-v6.
"""

import argparse

from ftwax.cli import past_runs, watch_command


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the arguments: the source and the address."""
  parser.add_argument('source', nargs='?', default='capture_the_flag')
  parser.add_argument('--experiment', help=past_runs.EXPERIMENT_HELP)
  watch_command.add_server_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
  """Serves the game until Ctrl-C."""
  server = watch_command.import_server()
  playable = past_runs.find_game(arguments.source, arguments.experiment)
  server.play(playable, arguments.save_dir, arguments.host, arguments.port)
  return 0
