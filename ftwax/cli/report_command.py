"""Draws the curves of runs and, of populations, writes their reports.

Runs may be unfinished. Files are written into the directory of each run.
"""

import argparse
import pathlib

from ftwax.records import game_files, loggers
from ftwax.reporting import curves, history, report


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the runs."""
  parser.add_argument(
    'runs', metavar='RUN', nargs='+', help='directory of a run'
  )


def run(arguments: argparse.Namespace) -> int:
  """Prints the path of each file."""
  for name in arguments.runs:
    directory = pathlib.Path(name)
    if not curves.can_plot(directory):
      raise ValueError(
        f'run ({name}) must be a directory with the log of a run, and has none;'
        ' give one below runs/ in which an episode has ended.'
      )
    print(curves.plot_curves(directory))
    spec = game_files.read(directory)
    if _is_population(directory):
      options = report.ReportOptions(
        title=directory.resolve().parent.name, event_names=spec.event_names
      )
      print(report.make_report(directory, options))
  return 0


def _is_population(directory: pathlib.Path) -> bool:
  if not loggers.log_path(directory, history.LABEL).exists():
    return False
  return history.read(directory).ratings.shape[1] > 1
