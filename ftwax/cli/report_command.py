"""Writes the reports of runs, and compares several.

Runs may be unfinished; damaged records are named, and left out. A report is
written into the directory of its run. Several runs are also compared, in a
table and a page: finished ones that differ in nothing but their seeds form a
row, with a 95% interval of the mean over seeds.

ftwax report RUN --match 0 1 --match 0 tactician
                   first plays member 0 against member 1, and member 0 against
                   a script, so that the report shows these games; name a
                   player for each team, or for each seat
"""

import dataclasses
import pathlib

from ftwax.cli import flags, sources


@dataclasses.dataclass(frozen=True)
class Options:
  """Flags of `ftwax report`."""

  runs: tuple[str, ...] = flags.argument('Directories of runs.')
  page: str = flags.flag(
    'comparison.html', 'Page that shows several runs side by side.'
  )
  match: tuple[tuple[str, ...], ...] = flags.flag(
    (), 'Record a game between these members or scripts; may be repeated.'
  )
  experiment: str | None = flags.flag(None, sources.EXPERIMENT_HELP)
  seed: int = flags.flag(0, 'Random seed of the games.')


def run(options: Options) -> int:
  """Writes the files and prints their paths."""
  flags.check_seed(options)
  names = [sources.find_run(name) for name in options.runs]
  # Slow imports: a wrong path or flag fails before them.
  from ftwax.records import files
  from ftwax.reporting import comparison, curves, history, report

  for name in names:
    directory = pathlib.Path(name)
    if not curves.can_plot(directory):
      raise ValueError(
        f'run ({name}) must be a directory with the log of a run, and has none;'
        ' give one below runs/ with a finished episode.'
      )
    scripts = _record(options, name)
    if files.read_or_warn(history.find, directory) is not None:
      print(report.make_report(directory, scripts=scripts))
    elif len(names) == 1:
      print(f'{name} has no log of its members, and thus no report.')
  if len(names) > 1:
    found = [files.read_or_warn(comparison.read, name) for name in names]
    runs = [run for run in found if run is not None]
    if len(runs) > 1:
      rows = comparison.group(runs)
      print(comparison.format_table(comparison.make_table(rows)))
      print(comparison.write_page(rows, options.page))
  return 0


def _record(options: Options, run: str) -> list[pathlib.Path]:
  """Plays and records the requested matches; returns the game's script."""
  if not options.match and options.experiment is None:
    return []
  from ftwax.cli import past_runs  # Slow imports.
  from ftwax.inference import live_game
  from ftwax.runtime import devices

  matches = [
    [f'member {name}' if name.isdecimal() else name for name in match]
    for match in options.match
  ]
  devices.keep_compiled_functions()
  playable = past_runs.find_game(run, options.experiment)
  live_game.record_matches(playable, matches, run, options.seed)
  return [playable.page.script]
