"""Runs an experiment, by its name or in a file of your own.

ftwax train catch --seed=1            the flags of `ftwax train catch --help`
ftwax train my_file.py:build --help   a function that returns an
                                      ExperimentConfig, with all common flags
"""

import argparse

from ftwax.cli import experiment_files


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the arguments: the experiment and its flags."""
  parser.add_argument(
    'experiment',
    metavar='EXPERIMENT',
    help='a name of `ftwax list`, or FILE:FUNCTION',
  )
  parser.add_argument(
    'flags', nargs=argparse.REMAINDER, help='flags of the experiment'
  )


def run(arguments: argparse.Namespace) -> int:
  """Runs the experiment, which exits the program."""
  experiment_files.run(arguments.experiment, arguments.flags)
  return 0
