"""Several runs side by side, in a self-contained HTML page without scripts."""

import json
import os
import pathlib
from collections.abc import Sequence
from typing import Any

import matplotlib.figure
import numpy as np

from ftwax.records import (
  config_files,
  files,
  run_directory,
  tournament_files,
)
from ftwax.reporting import (
  curves,
  drawing,
  evaluation_curves,
  page,
  run_facts,
)
from ftwax.reporting import history as history_lib

# With more differences than this, nobody would read the table.
_MAX_DIFFERENCES = 40

# Points on a curve of returns.
_NUM_POINTS = 60


def compare_runs(
  run_dirs: Sequence[str | os.PathLike[str]],
  path: str | os.PathLike[str],
  title: str = 'Runs side by side',
) -> pathlib.Path:
  """Writes a page that compares runs, finished or not.

  Args:
    run_dirs: directories of two or more runs.
    path: path of the page.
    title: title of the page.

  Returns:
    The path of the page.

  Raises:
    ValueError: if there are fewer than two runs, or one is not a run.
  """
  directories = [pathlib.Path(run_dir).resolve() for run_dir in run_dirs]
  if len(directories) < 2:
    raise ValueError(
      f'run_dirs ({len(directories)}) must be two or more for a comparison; add'
      ' one, or make the report of one run.'
    )
  configs = [_read_config(directory) for directory in directories]
  names = _names(directories)
  facts = [_facts(directory) for directory in directories]
  body = [
    page.heading('Results'),
    page.columns(['', *names], _rows(facts)),
    *_returns(directories, names),
    *_evaluations(directories, names),
    page.heading('Differences of the configurations'),
    *_differences(configs, names),
  ]
  path = pathlib.Path(path)
  path.parent.mkdir(parents=True, exist_ok=True)
  files.write_atomically(path, page.render(title, body))
  return path


def _read_config(directory: pathlib.Path) -> dict[str, Any]:
  try:
    return run_directory.read_config(directory)
  except ValueError as error:
    raise ValueError(
      f'run_dirs ({directory}) must be directories of runs, and {error}'
    ) from None


def _names(directories: Sequence[pathlib.Path]) -> list[str]:
  """Returns the directories without the part common to all paths."""
  if len({directory.name for directory in directories}) == len(directories):
    return [directory.name for directory in directories]
  common = os.path.commonpath(directories)
  return [os.path.relpath(directory, common) for directory in directories]


def _facts(directory: pathlib.Path) -> dict[str, str]:
  """Returns the entries in a run's column, by the name of the row."""
  facts = {'experiment': run_facts.read_title(directory)}
  tournament = tournament_files.read(directory)
  if tournament is not None:
    for name, score in tournament_files.member_scores(tournament).items():
      facts[f'score against {drawing.readable(name)}'] = f'{score:.2f}'
  evaluations = evaluation_curves.read(directory)
  if evaluations is not None:
    anchor = drawing.readable(evaluations.opponents[0])
    facts[f'Elo above {anchor}, last evaluation'] = (
      f'{evaluations.elo[-1].mean():.0f}'
    )
  returns = curves.read_returns(directory, 'train')
  if len(returns.steps):
    last = curves.last_mean(returns)
    facts[f'return, last {curves.WINDOW} episodes'] = f'{last:.4g}'
  history = history_lib.find(directory)
  if history is not None:
    facts['members'] = str(history.ratings.shape[1])
    facts |= run_facts.read(directory, history)
  return facts


def _rows(facts: Sequence[dict[str, str]]) -> list[list[str]]:
  names = dict.fromkeys(name for run in facts for name in run)
  return [[name, *(run.get(name, '') for run in facts)] for name in names]


def _returns(
  directories: Sequence[pathlib.Path], names: Sequence[str]
) -> list[str]:
  runs = [curves.read_returns(directory, 'train') for directory in directories]
  if not any(len(run.steps) for run in runs):
    return []
  figure, axes = _make_axes('episode return')
  for index, (run, name) in enumerate(zip(runs, names, strict=True)):
    if not len(run.steps):
      continue
    edges = np.linspace(0.0, run.steps[-1], _NUM_POINTS + 1)
    means = curves.mean_by_step(run, edges)
    known = np.isfinite(means)
    axes.plot(
      (0.5 * (edges[:-1] + edges[1:]))[known],
      means[known],
      color=drawing.member_color(index),
      label=name,
    )
  axes.legend(fontsize=8, frameon=False)
  return page.section(
    'Returns in training',
    'Mean return of the episodes that ended in each interval of steps.',
    figure,
    f'Line chart of the episode return of {len(runs)} runs over steps.',
  )


def _evaluations(
  directories: Sequence[pathlib.Path], names: Sequence[str]
) -> list[str]:
  found = [evaluation_curves.read(directory) for directory in directories]
  if not any(found):
    return []
  figure, axes = _make_axes('Elo above the first opponent')
  ends = []
  for index, (run, name) in enumerate(zip(found, names, strict=True)):
    if run is None:
      continue
    color = drawing.member_color(index)
    elo = run.elo
    axes.plot(run.steps, elo.mean(axis=1), color=color, label=name)
    axes.fill_between(
      run.steps, elo.min(axis=1), elo.max(axis=1), color=color, alpha=0.15
    )
    ends.append(f'{elo[-1].mean():.0f} in {name}')
  axes.legend(fontsize=8, frameon=False)
  return page.section(
    'Strength in training',
    'Elo of members in games against fixed opponents: the mean, and the range'
    ' from the weakest to the strongest member.',
    figure,
    f'Line chart of the Elo of runs over steps, at the end {", ".join(ends)}.',
  )


def _make_axes(label: str) -> tuple[matplotlib.figure.Figure, Any]:
  figure = drawing.make_figure(9.0, 3.8)
  axes = figure.subplots()
  drawing.style_games(axes)
  axes.set_xlabel('environment steps', fontsize=9)
  axes.set_ylabel(label, fontsize=9)
  return figure, axes


def _differences(
  configs: Sequence[dict[str, Any]], names: Sequence[str]
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
