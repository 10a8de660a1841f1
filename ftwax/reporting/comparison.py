"""Comparisons of runs: a table for the terminal, and a page with curves.

Finished runs that differ in nothing but their seeds form a row; any other run
is a row of its own. What distinguishes a row is its name. With few seeds, their
median and range stand for the mean and its 95% bootstrap interval.
"""

from __future__ import annotations

import hashlib
import json
import os
import pathlib
import statistics
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ftwax.records import (
  files,
  log_values,
  loggers,
  run_directory,
  tournament_files,
)
from ftwax.reporting import (
  curves,
  evaluation_curves,
  outcome,
  page,
  population_figures,
  run_facts,
  words,
)
from ftwax.reporting import history as history_lib

if TYPE_CHECKING:
  from ftwax import types

PAGE_FILE = 'comparison.html'

# Fields that change no result, besides the seed.
_FREE = (
  'seed',
  'expose',
  'stepping',
  'checkpointing',
  'watch',
  'loggers',
)

# Ends of intervals, and samples of the bootstrap.
_ENDS = (0.025, 0.975)
_NUM_SAMPLES = 2000

# With fewer seeds, a bootstrap says less than the seeds themselves.
_FEW = 5

EXPLANATION = (
  'In brackets: the range of seeds around their median or, with 5 seeds or'
  ' more, the 95% bootstrap interval of their mean.'
)
POINTS = 'The last return of each seed, with these intervals.'

# Points on a curve; each is the mean over an interval of steps.
_NUM_POINTS = 40


class Run(NamedTuple):
  """A run and its results in training.

  Attributes:
    directory: directory of the run.
    config: its recorded configuration.
    last: mean return of the last episodes; see `recent_episodes`.
    whole: mean return of all episodes, which reflects the speed of learning.
    steps: number of actor steps.
    seconds: duration of training.
    success: share of the last episodes that succeeded; NaN if the environment
      does not say.
  """

  directory: pathlib.Path
  config: Mapping[str, Any]
  last: float
  whole: float
  steps: int
  seconds: float
  success: float = float('nan')

  @property
  def is_finished(self) -> bool:
    """Whether the run has taken all its steps."""
    return self.steps >= self.config.get('max_num_actor_steps', 0)


# The column of the table that the page leaves out.
_EACH = 'each run'

Rows = Mapping[str, Sequence[Run]]


def read(run_dir: str | os.PathLike[str]) -> Run:
  """Reads the results of a run, finished or not.

  Raises:
    ValueError: if it is not the directory of a run that has ended an episode.
  """
  from ftwax.records import checkpoints  # Slow import.

  directory = pathlib.Path(run_dir)
  try:
    config = run_directory.read_config(directory)
    names = ('train', history_lib.LABEL)
    paths = [loggers.log_path(directory, name) for name in names]
    rows = [loggers.read_jsonl(path)[-1] for path in paths if path.exists()]
    steps = [int(row['actor_steps']) for row in rows]
    seconds = [float(row.get('seconds', 'nan')) for row in rows]
    # The last episodes may have ended before the run.
    saved = checkpoints.saved_steps(directory / 'checkpoints')
    episodes = curves.read_returns(directory, 'train')
    last = curves.last_mean(episodes)
    whole = np.average(episodes.returns, weights=episodes.num_episodes)
    return Run(
      directory,
      config,
      last,
      float(whole),
      max(steps + saved),
      max(seconds),
      _read_success(directory),
    )
  except (OSError, ValueError, LookupError, TypeError) as error:
    raise ValueError(
      f'run ({directory}) must be the directory of a run with a finished'
      f' episode, and cannot be read ({error}); give one below runs/.'
    ) from None


def _read_success(directory: pathlib.Path) -> float:
  for name in curves.SUCCESS:
    episodes = curves.read_returns(directory, 'train', name)
    if len(episodes.steps):
      return curves.last_mean(episodes)
  return float('nan')


def group(runs: Sequence[Run]) -> dict[str, list[Run]]:
  """Returns rows of finished runs that differ in their seeds alone, by name."""
  rows: list[list[Run]] = []
  for run in runs:
    for row in rows:
      seeds = [other.config.get('seed') for other in row]
      if (
        run.is_finished
        and row[0].is_finished
        and variant(run.config) == variant(row[0].config)
        and run.config.get('seed') not in seeds
      ):
        row.append(run)
        break
    else:
      rows.append([run])
  return dict(zip(_label(rows), rows, strict=True))


def variant(config: Mapping[str, Any]) -> str:
  """Returns a digest that is equal for runs that differ in their seeds."""
  fields = {name: v for name, v in config.items() if name not in _FREE}
  text = json.dumps(fields, sort_keys=True)
  return hashlib.sha256(text.encode()).hexdigest()[:16]


def make_table(rows: Rows) -> list[list[str]]:
  """Returns the cells of a table: a line of names, then one for each row.

  The last column has the return of each run, if a row has several.
  """
  has_success = any(
    np.isfinite(run.success) for runs in rows.values() for run in runs
  )
  table = [
    ['', 'mean return', *['success'] * has_success, 'runs']
    + ['over all episodes', 'steps', 'seconds']
    + [_EACH] * any(len(runs) > 1 for runs in rows.values())
  ]
  for name, runs in rows.items():
    steps, seconds = (
      f'{statistics.mean(getattr(run, field) for run in runs):,.0f}'
      for field in ('steps', 'seconds')
    )
    if not runs[0].is_finished:
      steps += f' of {runs[0].config["max_num_actor_steps"]:,}'
    last = format_interval([run.last for run in runs])
    whole = format_interval([run.whole for run in runs])
    each = ' '.join(log_values.format_value(run.last) for run in runs)
    success = format_interval([run.success for run in runs])
    line = [name, last, *[success] * has_success, str(len(runs))]
    line += [whole, steps, seconds, each]
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


def write_page(
  rows: Rows,
  path: str | os.PathLike[str],
  title: str = 'Runs side by side',
) -> pathlib.Path:
  """Writes a page that shows runs side by side.

  Args:
    rows: runs by the names of their rows, as `group` returns them.
    path: path of the page.
    title: title of the page.

  Returns:
    The path of the page.
  """
  # Each run has a line of its own below.
  table = make_table(rows)
  num_shown = len(table[0]) - (_EACH in table[0])
  head, *lines = (line[:num_shown] for line in table)
  lasts = {name: [run.last for run in runs] for name, runs in rows.items()}
  body = [
    page.heading('Results'),
    page.paragraph(
      'A row holds the finished runs that differ in their seeds alone. Return:'
      f' over the last episodes of each run. {EXPLANATION}'
    ),
    page.columns(head, lines),
    *page.charts('Returns', POINTS, [points(lasts)]),
    *page.charts(
      'Returns in training',
      'Return of the episodes that ended in each interval of steps.',
      _returns_figures(rows),
    ),
    *_elo_section(rows),
    *_list_differences(rows),
    *_each_run(rows),
  ]
  path = pathlib.Path(path)
  path.parent.mkdir(parents=True, exist_ok=True)
  files.write_atomically(path, page.render(title, body))
  return path


def _label(rows: Sequence[Sequence[Run]]) -> list[str]:
  """Returns the name of each row: what distinguishes it, and no more."""
  configs = [_leaves(row[0].config) for row in rows]
  labels: list[tuple[str, ...]] = [() for _ in rows]
  fields = sorted(_differing(configs), key=lambda key: key.count('.'))
  for key in ['name', *fields, 'seed']:
    before = list(labels)
    for index, config in enumerate(configs):
      alike = [i for i, label in enumerate(before) if label == before[index]]
      is_shared = key == 'seed' and any(len(rows[i]) > 1 for i in alike)
      if len({configs[i].get(key) for i in alike}) < 2 or is_shared:
        continue
      if key in config:
        field = key.removesuffix('.value').rpartition('.')[2]
        text = config[key] if key == 'name' else f'{field}={config[key]}'
        labels[index] = (*before[index], text)
  texts = [
    ' '.join(label) or config.get('name', '')
    for label, config in zip(labels, configs, strict=True)
  ]
  return [
    f'{text} {row[0].directory}'.strip()
    if not text or texts.count(text) > 1
    else text
    for text, row in zip(texts, rows, strict=True)
  ]


def _leaves(config: Mapping[str, Any]) -> dict[str, str]:
  """Returns a recorded configuration as text, by dotted name.

  A class or function stands for itself under the name of its field.
  """
  from ftwax.records import config_files  # Slow import.

  leaves = {}
  for key, value in config_files.flatten(config).items():
    if value != {} and key != config_files.TYPE:
      text = value if isinstance(value, str) else json.dumps(value)
      text = 'none' if value is None else text
      text = text.rpartition(':')[2]  # Of a module and a name.
      text = text if len(text) <= 40 else f'...{text[-37:]}'
      leaves[key.removesuffix(f'.{config_files.TYPE}')] = text
  return leaves


def _differing(configs: Sequence[Mapping[str, str]]) -> list[str]:
  """Returns the names of leaves in which configurations differ.

  Without what changes no result, and what only some have because they have
  another class, which differs.
  """
  found: list[str] = []
  for key in dict.fromkeys(key for config in configs for key in config):
    values = [config.get(key) for config in configs]
    above = [other for other in found if key.startswith(f'{other}.')]
    is_free = key.partition('.')[0] in _FREE
    if len(set(values)) > 1 and not is_free and not (None in values and above):
      found.append(key)
  return found


def interval(values: types.Floats) -> types.Floats:
  """Returns the ends of the interval over the first axis, [2, ...]."""
  if len(values) < _FEW:
    return np.stack([values.min(axis=0), values.max(axis=0)])
  draw = np.random.default_rng(0).integers
  means = values[draw(len(values), size=(_NUM_SAMPLES, len(values)))].mean(1)
  return np.quantile(means, _ENDS, axis=0)


def middle(values: types.Floats) -> types.Floats:
  """Returns the median of few seeds, or the mean, over the first axis."""
  found = np.median if len(values) < _FEW else np.mean
  return np.asarray(found(values, axis=0))


def format_interval(values: Sequence[float]) -> str:
  """Formats the middle, with its interval if there are several values."""
  array = np.array(values)
  text = log_values.format_value(float(middle(array)))
  if len(values) < 2:
    return text
  low, high = map(log_values.format_value, interval(array).tolist())
  return f'{text} ({low} to {high})'


def points(values_by_name: Mapping[str, Any]) -> dict[str, Any]:
  """Returns a figure with the values of each name, [runs], as points."""
  rows = []
  for index, (name, values) in enumerate(values_by_name.items()):
    array = np.array(values, np.float64)
    known = array[np.isfinite(array)]
    if len(known):
      low, high = interval(known).tolist()
      numbers = {'value': float(middle(known)), 'low': low, 'high': high}
      rows.append(
        {'name': name, 'color': index, 'points': known.tolist(), **numbers}
      )
  return {
    'kind': 'intervals', 'x': 'return', 'rows': rows,
    'alt': 'Returns of each seed, by row; the numbers are in the table.',
  }  # fmt: skip


def _each_run(rows: Rows) -> list[str]:
  """Returns a line of numbers for each run, and how it was made."""
  numbers: dict[str, dict[str, str]] = {}
  texts: dict[str, str] = {}
  for name, runs in rows.items():
    for run in runs:
      label = name
      if len(runs) > 1:
        label += f', seed {run.config.get("seed")}'
      numbers[label] = {
        'mean return': log_values.format_value(run.last),
        **_strengths(run.directory),
      }
      facts = run_facts.read(run.directory)
      wanted = [facts[x] for x in ('command', 'started') if x in facts]
      texts[label] = ' · '.join([str(run.directory), *wanted])
  names = list(dict.fromkeys(fact for one in numbers.values() for fact in one))
  lines = [[label, *(one.get(n, '') for n in names)]
           for label, one in numbers.items()]  # fmt: skip
  return [
    page.heading('Each run'),
    page.columns(['', *names], lines),
    page.table(texts),
  ]


def _strengths(directory: pathlib.Path) -> dict[str, str]:
  """Returns how strong a run's members are on average, by opponent."""
  strengths: dict[str, str] = {}
  strength = outcome.find_strength(
    files.read_or_warn(tournament_files.read, directory),
    files.read_or_warn(evaluation_curves.read, directory),
  )
  if strength is None:
    return strengths
  if strength.held_out:
    mean = strength.held_out_scores[0].mean()
    name = f'score against held-out opponents, {outcome.EVALUATION}'
    strengths[name] = f'{mean:.2f}'
  for name, score in strength.scores.items():
    against = f'score against {words.readable(name)}, {strength.source}'
    strengths[against] = f'{score:.2f}'
  anchor = words.readable(strength.anchor)
  elo = f'{strength.elo.mean():.0f}'
  strengths[f'mean Elo above {anchor}, {strength.source}'] = elo
  return strengths


def _returns_figures(rows: Rows) -> list[dict[str, Any]]:
  """Returns a figure for each environment, as returns of others differ."""
  by_task: dict[str, dict[str, Sequence[Run]]] = {}
  for name, runs in rows.items():
    task = json.dumps(runs[0].config.get('environment'), sort_keys=True)
    by_task.setdefault(task, {})[name] = runs
  return [_returns_figure(some) for some in by_task.values()]


def _returns_figure(rows: Rows) -> dict[str, Any]:
  episodes = {
    name: [curves.read_returns(run.directory, 'train') for run in runs]
    for name, runs in rows.items()
  }
  last_step = max(run.steps[-1] for row in episodes.values() for run in row)
  edges = np.linspace(0.0, last_step, _NUM_POINTS + 1)
  steps = (edges[:-1] + edges[1:]) / 2
  lines = {
    name: (steps, np.array([curves.mean_by_step(run, edges) for run in row]))
    for name, row in episodes.items()
  }
  names = dict.fromkeys(
    runs[0].config.get('name', '') for runs in rows.values()
  )
  title = words.readable(', '.join(names))
  return {**figure('return', lines), 'title': title}


def _elo_section(rows: Rows) -> list[str]:
  """Returns a section on the strength of members; nothing without games."""
  rated, anchor = {}, ''
  for name, runs in rows.items():
    read = [
      files.read_or_warn(evaluation_curves.read, run.directory) for run in runs
    ]
    found = [evaluations for evaluations in read if evaluations]
    if not found:
      continue
    anchor = words.readable(found[0].opponents[0])
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
    'Mean Elo of members in games against fixed opponents.',
    [figure(f'Elo above {anchor}', rated)],
  )


def figure(
  what: str, curves_by_name: Mapping[str, tuple[Any, Any]]
) -> dict[str, Any]:
  """Returns a line for each name, steps [n] and values [runs, n], NaN if none.

  There is no mean where a seed is missing, since it would jump there.
  """
  lines, ends = [], []
  for index, (name, (steps, values)) in enumerate(curves_by_name.items()):
    known = np.isfinite(values).all(axis=0)
    mean, band = middle(values[:, known]), None
    if len(values) > 1:
      band = tuple(interval(values[:, known]))
      name = f'{name}, {len(values)} seeds'
    lines.append(
      population_figures.line(steps[known], mean, band, name=name, color=index)
    )
    if len(mean):
      ends.append(f'{mean[-1]:.4g} in {name}')
  return {
    'kind': 'lines', 'x': 'steps', 'lines': lines,
    'alt': f'Line chart of {what} over steps, at the end {", ".join(ends)}.',
  }  # fmt: skip


def _list_differences(rows: Rows) -> list[str]:
  """Returns a table of what differs between the configurations of rows."""
  configs = [_leaves(runs[0].config) for runs in rows.values()]
  lines = [
    [key, *(config.get(key, '') for config in configs)]
    for key in _differing(configs)
    if key != 'name'
  ]
  if not lines:
    return [page.paragraph('The configurations differ in their seeds alone.')]
  return [
    page.heading('Differences of the configurations'),
    page.columns(['', *rows], lines),
  ]
