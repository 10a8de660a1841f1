"""Follows runs in the browser, several side by side, also ended ones."""

import argparse

from ftwax.cli import play_command


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the runs and the address."""
  parser.add_argument(
    'runs',
    metavar='RUN',
    nargs='*',
    help='directory of a run; by default that below runs/ that began last',
  )
  parser.add_argument(
    '--end_with_input', action='store_true', help=argparse.SUPPRESS
  )
  play_command.add_server_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
  """Serves the page until Ctrl-C."""
  play_command.import_server().watch(
    arguments.runs,
    arguments.save_dir,
    arguments.host,
    arguments.port,
    arguments.end_with_input,
  )
  return 0
