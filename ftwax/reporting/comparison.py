"""Comparisons of runs: a table, learning curves, and a page.

A row of a comparison holds the runs of one experiment, one for each seed.
Intervals are 95% confidence intervals over seeds (Student's t).
"""

import hashlib
import json
import os
import pathlib
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import matplotlib.axes
import matplotlib.figure
import numpy as np

from ftwax import types
from ftwax.records import (
  config_files,
  files,
  loggers,
  run_directory,
  tournament_files,
)
from ftwax.reporting import (
  curves,
  drawing,
  evaluation_curves,
  page,
  population_figures,
  run_facts,
)
from ftwax.reporting import history as history_lib

# Fields that may differ between runs of one row.
_FREE = (
  'seed',
  'max_num_actor_steps',
  'replay_port',
  'expose',
  'environment_processes',
)

_CONFIDENCE = 0.95

# Points on a curve; each is the mean over an interval of steps.
_NUM_POINTS = 40

# With more differences than this, nobody would read the table.
_MAX_DIFFERENCES = 40


class Run(NamedTuple):
  """A run and its results in training.

  Attributes:
    directory: directory of the run.
    config: its recorded configuration.
    last: mean return of the last episodes; see `recent_episodes`.
    whole: mean return of all episodes, which reflects the speed of learning.
    steps: number of actor steps.
    seconds: duration of training.
  """

  directory: pathlib.Path
  config: Mapping[str, Any]
  last: float
  whole: float
  steps: int
  seconds: float


Rows = Mapping[str, Sequence[Run]]


def read(run_dir: str | os.PathLike[str]) -> Run:
  """Reads the results of a run, finished or not.

  Raises:
    ValueError: if it is not the directory of a run that has ended an episode.
  """
  directory = pathlib.Path(run_dir)
  try:
    config = run_directory.read_config(directory)
    row = loggers.read_jsonl(loggers.log_path(directory, 'train'))[-1]
    episodes = curves.read_returns(directory, 'train')
    last = curves.last_mean(episodes)
    steps, seconds = int(row['actor_steps']), float(row.get('seconds', 'nan'))
  except (OSError, ValueError, LookupError, TypeError) as error:
    raise ValueError(
      f'run ({directory}) must be the directory of a run with a finished'
      f' episode, and cannot be read ({error}); give one below runs/.'
    ) from None
  whole = np.average(episodes.returns, weights=episodes.num_episodes)
  return Run(directory, config, last, float(whole), steps, seconds)


def group(runs: Sequence[Run]) -> dict[str, list[Run]]:
  """Returns rows of runs that differ only in their seeds.

  The name of a row is that of the experiment, with the first fields that
  distinguish it from rows of the same name.
  """
  groups: list[list[Run]] = []
  for run in runs:
    for row in groups:
      if not _differences(row[0], run):
        row.append(run)
        break
    else:
      groups.append([run])
  first = [row[0] for row in groups]
  return {_label(row[0], first): row for row in groups}


def variant(config: Mapping[str, Any]) -> str:
  """Returns a digest that is equal for runs that differ in their seeds."""
  fields = {name: v for name, v in config.items() if name not in _FREE}
  text = json.dumps(fields, sort_keys=True)
  return hashlib.sha256(text.encode()).hexdigest()[:16]


def make_table(rows: Rows) -> list[list[str]]:
  """Returns the cells of a table: a line of names, then one for each row.

  The last column has the return of each run, if a row has several.
  """
  table = [
    ['', 'runs', 'return, last episodes']
    + ['return, all episodes', 'steps', 'seconds']
    + ['each run'] * any(len(runs) > 1 for runs in rows.values())
  ]
  for name, runs in rows.items():
    steps, seconds = (
      f'{statistics.mean(getattr(run, field) for run in runs):,.0f}'
      for field in ('steps', 'seconds')
    )
    last = format_interval([run.last for run in runs])
    whole = format_interval([run.whole for run in runs])
    each = ' '.join(f'{run.last:.3f}' for run in runs)
    line = [name, str(len(runs)), last, whole, steps, seconds, each]
    table.append(line[: len(table[0])])
  return table


def format_table(table: Sequence[Sequence[str]]) -> str:
  """Returns a table as text."""
  widths = [max(map(len, column)) for column in zip(*table, strict=True)]
  return '\n'.join(
    '  '.join(
      [line[0].ljust(widths[0])]
      + [c.rjust(w) for c, w in zip(line[1:], widths[1:], strict=True)]
    )
    for line in table
  )


def plot(rows: Rows, title: str) -> matplotlib.figure.Figure:
  """Plots the training return of each run, and the mean of each row."""
  figure, axes = make_axes('episode return')
  episodes = {
    name: [curves.read_returns(run.directory, 'train') for run in runs]
    for name, runs in rows.items()
  }
  last_step = max(run.steps[-1] for row in episodes.values() for run in row)
  edges = np.linspace(0.0, last_step, _NUM_POINTS + 1)
  steps = (edges[:-1] + edges[1:]) / 2  # [_NUM_POINTS]
  for index, (name, row) in enumerate(episodes.items()):
    color = drawing.member_color(index)
    # [len(row), _NUM_POINTS], NaN where no episode ended.
    means = np.array([curves.mean_by_step(run, edges) for run in row])
    for mean in means if len(row) > 1 else ():
      known = np.isfinite(mean)
      axes.plot(
        steps[known], mean[known], color=color, linewidth=0.8, alpha=0.4
      )
    # No mean where a seed is missing, since it would jump there.
    known = np.all(np.isfinite(means), axis=0)
    label = name if len(row) == 1 else f'{name}, mean of {len(row)}'
    mean = means[:, known].mean(axis=0)
    axes.plot(steps[known], mean, color=color, linewidth=2.0, label=label)
  axes.set_title(title, loc='left', fontsize=10)
  axes.legend(fontsize=8, frameon=False)
  return figure


def write_page(
  runs: Sequence[Run],
  path: str | os.PathLike[str],
  title: str = 'Runs side by side',
) -> pathlib.Path:
  """Writes a page that shows runs side by side.

  Args:
    runs: two or more runs.
    path: path of the page.
    title: title of the page.

  Returns:
    The path of the page.

  Raises:
    ValueError: if there are fewer than two runs.
  """
  if len(runs) < 2:
    raise ValueError(
      f'runs ({len(runs)}) must be two or more for a comparison; add one, or'
      ' make the report of one run.'
    )
  names = _names([run.directory.resolve() for run in runs])
  rows = {name: [run] for name, run in zip(names, runs, strict=True)}
  families = {
    name if len(family) == 1 else f'{name}, mean of {len(family)}': family
    for name, family in group(runs).items()
  }
  _, _, *results = map(list, zip(*make_table(rows), strict=True))
  facts = [_facts(run.directory) for run in runs]
  results += [
    [fact, *(run.get(fact, '') for run in facts)]
    for fact in dict.fromkeys(fact for run in facts for fact in run)
  ]
  body = [
    page.heading('Results'),
    page.columns(['', *names], results),
    *page.charts(
      'Returns in training',
      'Mean return of the episodes that ended in each interval of steps. Runs'
      ' that differ in their seeds alone share a line, with the 95% confidence'
      ' interval of their mean.',
      [_returns_figure(families)],
    ),
    *_elo_section(families),
    page.heading('Differences of the configurations'),
    *_list_differences([run.config for run in runs], names),
  ]
  path = pathlib.Path(path)
  path.parent.mkdir(parents=True, exist_ok=True)
  files.write_atomically(path, page.render(title, body))
  return path


def _differences(first: Run, second: Run) -> list[tuple[str, Any, Any]]:
  """Returns (key, first, second) for each field that distinguishes runs."""
  return [
    difference
    for difference in config_files.differences(first.config, second.config)
    if difference[0] not in _FREE
  ]


def _label(run: Run, others: Sequence[Run]) -> str:
  name = str(run.config.get('name', run.directory))
  changed: dict[str, Any] = {}
  for other in others:
    if other.config.get('name') != run.config.get('name'):
      continue
    for key, _, value in _differences(other, run):
      changed.setdefault(key.removesuffix('.value'), value)
  parts = [f'{key}={value}' for key, value in changed.items()]
  return ' '.join([name, *parts[:2]])


def format_interval(values: Sequence[float]) -> str:
  """Formats the mean with the half-width of its confidence interval."""
  mean = statistics.mean(values)
  if len(values) < 2:
    return f'{mean:.3f}'
  return f'{mean:.3f} ± {half_width(np.array(values)):.3f}'


def half_width(values: types.Floats) -> Any:
  """Returns half the width of the interval of the mean over the first axis."""
  import scipy.stats  # Slow.

  quantile = scipy.stats.t.ppf(0.5 + _CONFIDENCE / 2, len(values) - 1)
  return quantile * values.std(axis=0, ddof=1) / len(values) ** 0.5


def make_axes(
  label: str,
) -> tuple[matplotlib.figure.Figure, matplotlib.axes.Axes]:
  """Makes a figure with axes over environment steps."""
  figure = drawing.make_figure(9.0, 3.6)
  axes = figure.subplots()
  drawing.style_games(axes)
  axes.set_xlabel('environment steps', fontsize=9)
  axes.set_ylabel(label, fontsize=9)
  return figure, axes


def _names(directories: Sequence[pathlib.Path]) -> list[str]:
  """Returns names that differ: directories without what all paths share."""
  common = os.path.commonpath(directories)
  for names in (
    [directory.name for directory in directories],
    [os.path.relpath(directory, common) for directory in directories],
  ):
    if len(set(names)) == len(names):
      return names
  return [f'{index + 1}: {d.name}' for index, d in enumerate(directories)]


def _facts(directory: pathlib.Path) -> dict[str, str]:
  """Returns what a run's column has besides its returns, by name."""
  facts = {'experiment': run_facts.read_title(directory)}
  tournament = files.read_or_warn(tournament_files.read, directory)
  if tournament is not None:
    for name, score in tournament_files.member_scores(tournament).items():
      facts[f'score against {drawing.readable(name)}'] = f'{score:.2f}'
  evaluations = files.read_or_warn(evaluation_curves.read, directory)
  if evaluations is not None:
    anchor = drawing.readable(evaluations.opponents[0])
    facts[f'Elo above {anchor}, last evaluation'] = (
      f'{evaluations.elo[-1].mean():.0f}'
    )
  history = files.read_or_warn(history_lib.find, directory)
  if history is not None:
    facts['members'] = str(history.ratings.shape[1])
    more = run_facts.read(directory, history)
    # The table has steps and seconds.
    facts |= {
      name: fact
      for name, fact in more.items()
      if name not in ('environment steps', 'duration')
    }
  return facts


def _returns_figure(families: Rows) -> dict[str, Any]:
  episodes = {
    name: [curves.read_returns(run.directory, 'train') for run in runs]
    for name, runs in families.items()
  }
  last_step = max(run.steps[-1] for row in episodes.values() for run in row)
  edges = np.linspace(0.0, last_step, _NUM_POINTS + 1)
  steps = (edges[:-1] + edges[1:]) / 2
  values = {
    name: np.array([curves.mean_by_step(run, edges) for run in row])
    for name, row in episodes.items()
  }
  return _figure('return', {name: (steps, v) for name, v in values.items()})


def _elo_section(families: Rows) -> list[str]:
  """Returns a section on the strength of members; nothing without games."""
  rated, anchor = {}, ''
  for name, runs in families.items():
    found = [
      evaluations
      for run in runs
      if (
        evaluations := files.read_or_warn(evaluation_curves.read, run.directory)
      )
    ]
    if not found:
      continue
    anchor = drawing.readable(found[0].opponents[0])
    steps = found[0].steps
    means = [
      np.interp(steps, run.steps, run.elo.mean(axis=1), right=np.nan)
      for run in found
    ]
    rated[name] = steps, np.array(means)
  if not rated:
    return []
  return page.charts(
    'Strength in training',
    'Mean Elo of members in games against fixed opponents, with 95% confidence'
    ' intervals over seeds.',
    [_figure(f'Elo above {anchor}', rated)],
  )


def _figure(
  what: str, curves_by_name: Mapping[str, tuple[Any, Any]]
) -> dict[str, Any]:
  """Returns a line for each name, steps [n] and values [runs, n], NaN if none.

  There is no mean where a seed is missing, since it would jump there.
  """
  lines, ends = [], []
  for index, (name, (steps, values)) in enumerate(curves_by_name.items()):
    known = np.isfinite(values).all(axis=0)
    mean, band = values[:, known].mean(axis=0), None
    if len(values) > 1:
      half = half_width(values[:, known])
      band = mean - half, mean + half
    lines.append(
      population_figures.line(steps[known], mean, band, name=name, color=index)
    )
    if len(mean):
      ends.append(f'{mean[-1]:.4g} in {name}')
  return {
    'kind': 'lines', 'x': 'steps', 'lines': lines,
    'alt': f'Line chart of {what} over steps, at the end {", ".join(ends)}.',
  }  # fmt: skip


def _list_differences(
  configs: Sequence[Mapping[str, Any]], names: Sequence[str]
) -> list[str]:
  """Returns a table of differences from the first run, or a sentence."""
  leaves: dict[str, list[str]] = {}
  for index, config in enumerate(configs[1:], start=1):
    for key, first, other in config_files.differences(configs[0], config):
      row = leaves.setdefault(key, [_short(first)] * len(configs))
      row[index] = _short(other)
  if not leaves:
    return [page.paragraph('The configurations are equal.')]
  rows = [[key, *values] for key, values in leaves.items()]
  parts = [page.columns(['', *names], rows[:_MAX_DIFFERENCES])]
  if len(rows) > _MAX_DIFFERENCES:
    parts.append(page.paragraph(f'And {len(rows) - _MAX_DIFFERENCES} more.'))
  return parts


def _short(value: Any) -> str:
  text = value if isinstance(value, str) else json.dumps(value)
  return text if len(text) <= 40 else f'...{text[-37:]}'
