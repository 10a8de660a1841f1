"""Learning curves: episode returns over environment steps."""

from __future__ import annotations

import os
import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ftwax.records import files, loggers, recent_episodes

if TYPE_CHECKING:
  from ftwax import types

# What a log calls the return, and the beginning of other names that
# environments measure; see `environments.episode_metrics`.
RETURN, METRICS = 'episode_return', 'metrics/'
SUCCESS = 'metrics/is_success', 'metrics/success'

# Of steps, in which the page of a run shows the mean return.
_NUM_INTERVALS = 150


class Returns(NamedTuple):
  """The returns in a log of `n` rows, or another value of episodes.

  Attributes:
    steps: float64 [n], environment steps, ascending.
    returns: float64 [n], finite; the mean over the episodes of a row.
    num_episodes: float64 [n], number of episodes in a row.
  """

  steps: types.Floats
  returns: types.Floats
  num_episodes: types.Floats


def can_plot(run_dir: str | os.PathLike[str]) -> bool:
  """Returns whether a run has a training log, i.e. has ended an episode."""
  return bool(_log_paths(pathlib.Path(run_dir), 'train'))


def figure(
  run_dir: str | os.PathLike[str], key: str = RETURN
) -> dict[str, Any] | None:
  """Returns the curves of training and evaluation for `page.charts`, if any.

  Rows whose value is not finite are left out.

  Logs that are damaged are left out, with a warning.

  Args:
    run_dir: directory of a run.
    key: name of the value in logs.
  """
  lines: list[dict[str, Any]] = []
  words = {'train': 'training', 'evaluation': 'evaluation'}
  for color, (label, name) in enumerate(words.items()):
    episodes = files.read_or_warn(read_returns, run_dir, label, key)
    if episodes is not None and len(episodes.steps):
      lines.append({'name': name, 'color': color, **_intervals(episodes)})
  if not lines:
    return None
  ends = ', '.join(f'{line["name"]} {line["y"][-1]:.4g}' for line in lines)
  what = 'the return' if key == RETURN else key
  return {
    'kind': 'lines', 'x': 'steps', 'lines': lines,
    'alt': f'Line chart of {what} over steps, at the end: {ends}.',
  }  # fmt: skip


def metric_names(run_dir: str | os.PathLike[str]) -> list[str]:
  """Returns the names in logs of what the environment measures, sorted."""
  names: set[str] = set()
  for label in ('train', 'evaluation'):
    logs = files.read_or_warn(_read_logs, run_dir, label) or []
    names.update(*(row for log in logs for row in log))
  return sorted(name for name in names if name.startswith(METRICS))


def _intervals(episodes: Returns) -> dict[str, list[float]]:
  """Returns steps and the mean, lowest and highest return of intervals."""
  num_intervals = min(len(np.unique(episodes.steps)), _NUM_INTERVALS)
  edges = np.linspace(episodes.steps[0], episodes.steps[-1], num_intervals + 1)
  place = np.clip(
    np.searchsorted(edges, episodes.steps, 'right'), 1, num_intervals
  )
  points = []
  for index in np.unique(place):
    steps, returns, counts = (
      part[place == index]
      for part in (episodes.steps, episodes.returns, episodes.num_episodes)
    )
    mean = np.average(returns, weights=counts)
    points.append([steps[-1], mean, returns.min(), returns.max()])
  columns = np.array(points).T.round(6).tolist()
  return dict(zip(('x', 'y', 'low', 'high'), columns, strict=True))


def last_mean(episodes: Returns) -> float:
  """Returns the mean over the last episodes; there must be one.

  If they begin within a row, only that part of its episodes counts.
  """
  counts = episodes.num_episodes
  window = recent_episodes.count(episodes.steps, counts)
  later = np.cumsum(counts[::-1])[::-1] - counts  # Episodes in later rows.
  weights = np.clip(window - later, 0.0, counts)
  return float(np.average(episodes.returns, weights=weights))


def num_recent(episodes: Returns) -> int:
  """Returns the number of last episodes in `last_mean`."""
  counts = episodes.num_episodes
  return min(recent_episodes.count(episodes.steps, counts), int(counts.sum()))


def mean_by_step(episodes: Returns, edges: types.Floats) -> types.Floats:
  """Returns the mean return of the episodes that ended in each interval.

  Args:
    episodes: episodes of one run.
    edges: float64 [n + 1], ascending steps; the last interval includes its end.

  Returns:
    float64 [n], NaN where no episode ended.
  """
  sums, _ = np.histogram(
    episodes.steps, edges, weights=episodes.returns * episodes.num_episodes
  )
  counts, _ = np.histogram(episodes.steps, edges, weights=episodes.num_episodes)
  means = np.full(len(sums), np.nan)
  np.divide(sums, counts, out=means, where=counts > 0)
  return means


def _log_paths(run_dir: pathlib.Path, label: str) -> list[pathlib.Path]:
  """Returns the paths of the logs of all instances with a label."""
  directory = loggers.log_path(run_dir, label).parent
  pattern = re.compile(rf'{label}(-\d+)?\.jsonl')
  return sorted(p for p in directory.glob('*') if pattern.fullmatch(p.name))


def read_returns(
  run_dir: str | os.PathLike[str], label: str, key: str = RETURN
) -> Returns:
  """Reads the returns in the logs of all instances of a label.

  Args:
    run_dir: directory of a run.
    label: e.g. 'train' or 'evaluation'.
    key: name of the value in place of the return.

  Raises:
    ValueError: if a log is damaged.
  """
  logs = _read_logs(run_dir, label)
  with files.reading(loggers.log_path(run_dir, label), 'returns of episodes'):
    return _to_returns(logs, key)


def _read_logs(
  run_dir: str | os.PathLike[str], label: str
) -> list[Sequence[Mapping[str, Any]]]:
  """Returns the rows of the logs of all instances of a label."""
  paths = _log_paths(pathlib.Path(run_dir), label)
  return [loggers.read_jsonl(path) for path in paths]


def _to_returns(
  logs: Sequence[Sequence[Mapping[str, Any]]], key: str
) -> Returns:
  rows: list[Mapping[str, Any]] = []
  for log in logs:
    episodes = [
      row for row in log if key in row and row.get('actor_steps') is not None
    ]
    rows += loggers.drop_replaced(episodes, _steps, repeats=True)
  rows.sort(key=_steps)
  numbers = [
    (row['actor_steps'], row[key], row.get('num_episodes', 1))
    for row in rows
    # Loggers write null for non-finite numbers.
    if isinstance(row[key], int | float)
  ]
  return Returns(*np.array(numbers, np.float64).reshape(-1, 3).T)


def _steps(row: Mapping[str, Any]) -> float:
  return float(row['actor_steps'])
