"""Draws the curves of runs and, of populations, writes their reports.

Runs may be unfinished. Files are written into the directory of each run. With
several runs there is also a page with these side by side.
"""

import argparse
import pathlib

from ftwax.reporting import curves, history, report, run_comparison


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the runs."""
  parser.add_argument(
    'runs', metavar='RUN', nargs='+', help='directory of a run'
  )
  parser.add_argument(
    '--page',
    default='comparison.html',
    help='the page of several runs (comparison.html)',
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
    population = history.find(directory)
    if population is not None and population.ratings.shape[1] > 1:
      print(report.make_report(directory))
  if len(arguments.runs) > 1:
    print(run_comparison.compare_runs(arguments.runs, arguments.page))
  return 0
