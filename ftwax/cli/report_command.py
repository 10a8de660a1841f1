"""Draws the curves of runs, and writes the reports of populations.

Runs may be unfinished. Files are written into the directory of each run.
Several runs also get a page that shows them side by side.

ftwax report RUN --match 0 1 --match 0 tactician
                   first plays member 0 against member 1, and member 0 against
                   a script, so that the report shows these games; name a
                   player for each team, or for each seat
"""

import argparse
import pathlib

from ftwax.cli import past_runs
from ftwax.reporting import comparison, curves, history, report


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the arguments: the runs and matches to record."""
  parser.add_argument(
    'runs', metavar='RUN', nargs='+', help='directory of a run'
  )
  parser.add_argument(
    '--page',
    default='comparison.html',
    help='page that shows several runs side by side (comparison.html)',
  )
  parser.add_argument(
    '--match',
    nargs='+',
    action='append',
    default=[],
    metavar='PLAYER',
    help='record a game between these members or scripts; may be repeated',
  )
  parser.add_argument('--experiment', help=past_runs.EXPERIMENT_HELP)
  parser.add_argument(
    '--seed', type=int, default=0, help='random seed of the games (0)'
  )


def run(arguments: argparse.Namespace) -> int:
  """Writes the files and prints their paths."""
  for name in arguments.runs:
    directory = pathlib.Path(name)
    if not curves.can_plot(directory):
      raise ValueError(
        f'run ({name}) must be a directory with the log of a run, and has none;'
        ' give one below runs/ with a finished episode.'
      )
    if arguments.match:
      _record(arguments, name)
    print(curves.plot_curves(directory))
    population = history.find(directory)
    if population is not None and (
      population.ratings.shape[1] > 1 or arguments.match
    ):
      print(report.make_report(directory))
  if len(arguments.runs) > 1:
    runs = [comparison.read(name) for name in arguments.runs]
    print(comparison.write_page(runs, arguments.page))
  return 0


def _record(arguments: argparse.Namespace, run: str) -> None:
  """Plays and records the requested matches."""
  from ftwax.runtime import live_game  # Slow import.

  matches = [
    [f'member {name}' if name.isdecimal() else name for name in match]
    for match in arguments.match
  ]
  playable = past_runs.find_game(run, arguments.experiment)
  live_game.record_matches(playable, matches, run, arguments.seed)
