"""Learning curves: episode returns over environment steps."""

import os
import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import matplotlib.figure
import matplotlib.ticker
import numpy as np

from ftwax import types
from ftwax.records import files, loggers, recent_episodes
from ftwax.reporting import drawing

CURVES_FILE = 'curves.png'

# With more points than this, points hide each other.
_MAX_POINTS = 20_000

# Of steps, in which the page of a run shows the mean return.
_NUM_INTERVALS = 150

_WORDS = {'train': 'training', 'evaluation': 'evaluation'}


class Returns(NamedTuple):
  """The returns in a log of `n` rows.

  Attributes:
    steps: float64 [n], environment steps, ascending.
    returns: float64 [n], finite; the mean over the episodes of a row.
    num_episodes: float64 [n], number of episodes in a row.
    num_left_out: number of further rows, whose return is not finite.
  """

  steps: types.Floats
  returns: types.Floats
  num_episodes: types.Floats
  num_left_out: int


def can_plot(run_dir: str | os.PathLike[str]) -> bool:
  """Returns whether a run has a training log, i.e. has ended an episode."""
  return bool(_log_paths(pathlib.Path(run_dir), 'train'))


def plot_curves(run_dir: str | os.PathLike[str]) -> pathlib.Path:
  """Plots the returns of training and, if there are any, of evaluation.

  It reads the logs with labels `train` and `evaluation`. Only rows with
  `episode_return` and `actor_steps` are plotted; `num_episodes` is given if a
  row is the mean over several episodes. Rows whose return is not finite are
  left out and counted in the legend.

  Args:
    run_dir: directory of a run, finished or not.

  Returns:
    The path of the figure, `curves.png` in `run_dir`.

  Raises:
    FileNotFoundError: if the run has no training log.
    ValueError: if that log is damaged.
  """
  run_dir = pathlib.Path(run_dir)
  if not can_plot(run_dir):
    path = loggers.log_path(run_dir, 'train')
    raise FileNotFoundError(
      f'training log ({path}) must exist to draw its curves; give the directory'
      ' of a run whose loggers come from make_logger_factory.'
    )
  # Not through pyplot, whose backend belongs to the user.
  figure = matplotlib.figure.Figure(
    figsize=(8, 4.8), dpi=150, layout='constrained'
  )
  axes = figure.subplots()
  _plot_training(axes, read_returns(run_dir, 'train'))
  evaluation = files.read_or_warn(read_returns, run_dir, 'evaluation')
  if evaluation is not None:
    _plot_evaluation(axes, evaluation)
  resolved = run_dir.resolve()
  title = f'{resolved.parent.name} / {resolved.name}'
  _decorate(figure, axes, drawing.readable(title))
  path = run_dir / CURVES_FILE
  drawing.write_png(path, figure)
  return path


def figure(run_dir: str | os.PathLike[str]) -> dict[str, Any] | None:
  """Returns the same curves as a figure for `page.charts`, if there are any.

  Logs that are damaged are left out, with a warning.
  """
  lines: list[dict[str, Any]] = []
  for color, label in enumerate(('train', 'evaluation')):
    episodes = files.read_or_warn(read_returns, run_dir, label)
    if episodes is not None and len(episodes.steps):
      names = ('x', 'y', 'low', 'high')
      line = dict(zip(names, _intervals(episodes), strict=True))
      lines.append({'name': _WORDS[label], 'color': color, **line})
  if not lines:
    return None
  ends = ', '.join(f'{line["name"]} {line["y"][-1]:.4g}' for line in lines)
  return {
    'kind': 'lines', 'x': 'steps', 'lines': lines,
    'alt': f'Line chart of the return over steps, at the end: {ends}.',
  }  # fmt: skip


def _intervals(episodes: Returns) -> list[list[float]]:
  """Returns steps, mean, lowest and highest return of intervals of steps."""
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
  return np.array(points).T.round(6).tolist()


def rolling_mean(
  returns: types.Floats, num_episodes: types.Floats, window: Any
) -> types.Floats:
  """Returns the mean over the last `window` episodes up to each row, [n].

  If the window begins within a row, only the part of its episodes inside the
  window counts. The first rows have means over fewer episodes.

  Args:
    returns: float64 [n], finite; the mean over the episodes of a row.
    num_episodes: float64 [n], number of episodes in a row, at least 1.
    window: number of episodes, at least 1, or one for each row, [n].
  """
  zero = np.zeros((1,))
  ends = np.cumsum(num_episodes)
  counts = np.concatenate([zero, ends])
  sums = np.concatenate([zero, np.cumsum(returns * num_episodes)])
  starts = np.maximum(ends - window, 0.0)
  sums_in_window = sums[1:] - np.interp(starts, counts, sums)
  return np.asarray(sums_in_window / (ends - starts), np.float64)


def last_mean(episodes: Returns) -> float:
  """Returns the mean over the last episodes; there must be one."""
  return float(_recent_means(episodes)[-1])


def _recent_means(episodes: Returns) -> types.Floats:
  """Returns the mean over the last episodes at each row, [n]."""
  window = recent_episodes.count(episodes.steps, episodes.num_episodes)
  return rolling_mean(episodes.returns, episodes.num_episodes, window)


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


def _drop_replaced(
  rows: Sequence[Mapping[str, Any]],
) -> list[Mapping[str, Any]]:
  """Drops rows written after the checkpoint from which a run was resumed.

  The step count drops on a resume, and the rows that follow replace the later
  ones.
  """
  kept: list[Mapping[str, Any]] = []
  for row in rows:
    while kept and kept[-1]['actor_steps'] > row['actor_steps']:
      kept.pop()
    kept.append(row)
  return kept


def read_returns(run_dir: str | os.PathLike[str], label: str) -> Returns:
  """Reads the returns in the logs of all instances of a label.

  Args:
    run_dir: directory of a run.
    label: e.g. 'train' or 'evaluation'.

  Raises:
    ValueError: if a log is damaged.
  """
  paths = _log_paths(pathlib.Path(run_dir), label)
  logs = [loggers.read_jsonl(path) for path in paths]
  with files.reading(loggers.log_path(run_dir, label), 'returns of episodes'):
    return _to_returns(logs)


def _to_returns(logs: Sequence[Sequence[Mapping[str, Any]]]) -> Returns:
  rows: list[Mapping[str, Any]] = []
  for log in logs:
    episodes = [
      row
      for row in log
      if 'episode_return' in row and row.get('actor_steps') is not None
    ]
    rows += _drop_replaced(episodes)
  rows.sort(key=lambda row: row['actor_steps'])
  # Loggers write null for non-finite numbers.
  finite = [
    row for row in rows if isinstance(row['episode_return'], int | float)
  ]
  steps, returns, num_episodes = (
    np.array(
      [
        (row['actor_steps'], row['episode_return'], row.get('num_episodes', 1))
        for row in finite
      ],
      np.float64,
    )
    .reshape(-1, 3)
    .T
  )
  return Returns(steps, returns, num_episodes, len(rows) - len(finite))


def _plot_training(axes: Any, episodes: Returns) -> None:
  steps, returns, num_episodes, num_left_out = episodes
  if not len(steps):
    axes.text(
      0.5,
      0.5,
      'no finished episode yet',
      transform=axes.transAxes,
      horizontalalignment='center',
      color='gray',
    )
    return
  most = int(num_episodes.max())
  label = 'episode' if most == 1 else f'mean of up to {most:,} episodes'
  if num_left_out:
    label += f' ({num_left_out:,} not finite, left out)'
  stride = -(-len(steps) // _MAX_POINTS)
  axes.plot(
    steps[::stride],
    returns[::stride],
    linestyle='none',
    marker='.',
    markersize=4,
    markeredgewidth=0,
    color='tab:blue',
    alpha=0.3,
    label=label,
  )
  axes.plot(
    steps,
    _recent_means(episodes),
    color='tab:blue',
    linewidth=1.8,
    label='mean of the last episodes',
  )


def _plot_evaluation(axes: Any, episodes: Returns) -> None:
  if not len(episodes.steps):
    return
  weights = episodes.num_episodes
  unique_steps, index = np.unique(episodes.steps, return_inverse=True)
  sums = np.bincount(index, weights=episodes.returns * weights)
  axes.plot(
    unique_steps,
    sums / np.bincount(index, weights=weights),
    color='tab:orange',
    linewidth=1.5,
    marker='o',
    markersize=4,
    label='evaluation, mean',
  )


def _decorate(figure: Any, axes: Any, title: str) -> None:
  axes.set_title(title, loc='left', fontsize=11)
  axes.set_xlabel('environment steps')
  axes.set_ylabel('episode return')
  axes.xaxis.set_major_formatter(matplotlib.ticker.EngFormatter(sep=''))
  axes.margins(x=0.02)
  axes.grid(alpha=0.25)
  axes.set_axisbelow(True)
  axes.spines[['top', 'right']].set_visible(False)
  if axes.lines:
    legend = figure.legend(
      loc='outside lower center', ncols=3, frameon=False, fontsize=9
    )
    for handle in legend.legend_handles:
      handle.set_alpha(1)
      handle.set_markersize(6)
