"""Compares runs: a table, and learning curves with means over seeds.

Runs that differ only in their seeds form one row. The interval is a 95%
confidence interval over seeds (Student's t). `ftwax report` with several runs
writes a page that shows them side by side.
"""

import argparse
import pathlib
import statistics
from collections.abc import Sequence
from typing import Any, NamedTuple

from ftwax.records import config_files, loggers, run_directory
from ftwax.reporting import comparison_curves, curves, drawing

# Fields that may differ between runs of one row.
_FREE = (
  'seed',
  'max_num_actor_steps',
  'replay_port',
  'expose',
  'environment_processes',
)

_CONFIDENCE = 0.95


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the arguments: the runs and the file of the figure."""
  parser.add_argument(
    'runs', metavar='RUN', nargs='+', help='directory of a run'
  )
  parser.add_argument(
    '--out',
    default='comparison.png',
    help='path of the figure (comparison.png)',
  )


class _Run(NamedTuple):
  """A run and its results.

  Attributes:
    directory: directory of the run.
    config: its recorded configuration.
    last: mean return of its last training episodes.
    steps: number of actor steps.
    seconds: duration of training.
  """

  directory: pathlib.Path
  config: Any
  last: float
  steps: int
  seconds: float


def run(arguments: argparse.Namespace) -> int:
  """Prints the table and draws the figure."""
  groups = _group([_read(pathlib.Path(name)) for name in arguments.runs])
  width = max(map(len, groups))
  print(
    f'{"":{width}}  runs  return, last {curves.WINDOW} episodes      steps'
    '  seconds'
  )
  for label, group in groups.items():
    last = _interval([one.last for one in group])
    print(
      f'{label:{width}}  {len(group):4}  {last:29}'
      f'{_mean(group, "steps"):12,.0f}  {_mean(group, "seconds"):7.0f}'
    )
  figure = comparison_curves.plot_comparison(
    {
      label: [one.directory for one in group] for label, group in groups.items()
    },
    'Training, and means over seeds',
  )
  path = pathlib.Path(arguments.out)
  path.write_bytes(drawing.to_png(figure))
  print(f'\nCurves: {path}')
  return 0


def _read(directory: pathlib.Path) -> _Run:
  try:
    config = run_directory.read_config(directory)
    rows = loggers.read_jsonl(loggers.log_path(directory, 'train'))
    last = curves.last_mean(curves.read_returns(directory, 'train'))
  except (OSError, ValueError, IndexError) as error:
    raise ValueError(
      f'run ({directory}) must be the directory of a run with a finished'
      f' episode, and cannot be read ({error}); give one below runs/.'
    ) from None
  seconds = rows[-1].get('seconds', float('nan'))
  return _Run(directory, config, last, rows[-1]['actor_steps'], seconds)


def _group(runs: Sequence[_Run]) -> dict[str, list[_Run]]:
  """Groups equal experiments; returns the groups by label."""
  groups: list[list[_Run]] = []
  for one in runs:
    for group in groups:
      if not _differences(group[0], one):
        group.append(one)
        break
    else:
      groups.append([one])
  return {
    _label(group[0], groups, index): group for index, group in enumerate(groups)
  }


def _label(first: _Run, groups: Sequence[Sequence[_Run]], index: int) -> str:
  """Returns the experiment's name and the fields that distinguish it."""
  name = str(first.config.get('name', first.directory))
  others = [
    group[0]
    for other, group in enumerate(groups)
    if other != index and group[0].config.get('name') == name
  ]
  changed: dict[str, Any] = {}
  for other in others:
    for key, _, value in _differences(other, first):
      changed.setdefault(key.removesuffix('.value'), value)
  parts = [f'{key}={value}' for key, value in changed.items()]
  return ' '.join([name, *parts[:2]])


def _differences(first: _Run, second: _Run) -> list[tuple[str, Any, Any]]:
  return [
    difference
    for difference in config_files.differences(first.config, second.config)
    if difference[0] not in _FREE
  ]


def _mean(group: Sequence[_Run], field: str) -> float:
  return statistics.mean(getattr(one, field) for one in group)


def _interval(values: Sequence[float]) -> str:
  """Formats the mean with the half-width of its confidence interval."""
  mean = statistics.mean(values)
  if len(values) < 2:
    return f'{mean:.3f}'
  import scipy.stats

  quantile = scipy.stats.t.ppf(0.5 + _CONFIDENCE / 2, len(values) - 1)
  half_width = quantile * statistics.stdev(values) / len(values) ** 0.5
  return f'{mean:.3f} ± {half_width:.3f}'
