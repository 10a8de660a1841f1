"""Runs an experiment of ftwax, or one from your own file.

ftwax train catch --seed=1            `ftwax train catch --help` lists the flags
ftwax train my_file.py:build --help   runs a function that returns an
                                      ExperimentConfig; has the common flags
"""

import argparse

from ftwax.cli import experiment_files


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the arguments: the experiment and its flags."""
  parser.add_argument(
    'experiment',
    metavar='EXPERIMENT',
    help='a name listed by `ftwax list`, or FILE.py:FUNCTION',
  )
  parser.add_argument(
    'flags', nargs=argparse.REMAINDER, help='flags of the experiment'
  )


def run(arguments: argparse.Namespace) -> int:
  """Runs the experiment, which exits the program."""
  experiment_files.run(arguments.experiment, arguments.flags)
  return 0
