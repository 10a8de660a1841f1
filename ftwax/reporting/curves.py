"""Learning curves: the return of episodes against the environment's steps."""

import os
import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import matplotlib.figure
import matplotlib.ticker
import numpy as np

from ftwax.records import loggers

CURVES_FILE = 'curves.png'

# Episodes that the line of a learning curve is the mean of.
WINDOW = 100

# More points than this only blacken the paper.
_MAX_POINTS = 20_000


class Returns(NamedTuple):
  """What a log tells of episodes.

  Attributes:
    steps: float64 [n], of the environment, in rising order.
    returns: float64 [n], finite.
    num_episodes: float64 [n], of which each return is the mean.
    num_left_out: rows whose return is not finite.
  """

  steps: np.ndarray
  returns: np.ndarray
  num_episodes: np.ndarray
  num_left_out: int


def can_plot(run_dir: str | os.PathLike) -> bool:
  """Returns whether there is a training log: an episode must have ended."""
  return bool(_log_paths(pathlib.Path(run_dir), 'train'))


def plot_curves(run_dir: str | os.PathLike) -> pathlib.Path:
  """Draws the returns of training and, if there are any, of evaluation.

  Reads the logs with labels `train` and `evaluation`, of which each row holds
  `episode_return` and `actor_steps`. Rows whose return is not a finite number
  are counted in the legend and left out.

  Args:
    run_dir: directory of a run, finished or not.

  Returns:
    The path of the picture, `curves.png` in `run_dir`.

  Raises:
    FileNotFoundError: if the run has no training log.
  """
  run_dir = pathlib.Path(run_dir)
  if not can_plot(run_dir):
    path = loggers.log_path(run_dir, 'train')
    raise FileNotFoundError(
      f'training log ({path}) must be there to draw curves of; give the'
      ' directory of a run whose loggers came from make_logger_factory.'
    )
  # A figure of its own: pyplot and its backend belong to the user.
  figure = matplotlib.figure.Figure(
    figsize=(8, 4.8), dpi=150, layout='constrained'
  )
  axes = figure.subplots()
  _plot_training(axes, read_returns(run_dir, 'train'))
  _plot_evaluation(axes, read_returns(run_dir, 'evaluation'))
  resolved = run_dir.resolve()
  _decorate(figure, axes, f'{resolved.parent.name} / {resolved.name}')
  path = run_dir / CURVES_FILE
  temporary = path.with_suffix('.tmp')
  figure.savefig(temporary, format='png')
  temporary.replace(path)
  return path


def rolling_mean(values: np.ndarray, window: int) -> np.ndarray:
  """Returns at `t` [n] the mean of the last `window` values up to `t`.

  Where fewer have been, it is the mean of those.

  Args:
    values: finite [n].
    window: at least 1.
  """
  sums = np.concatenate([[0.0], np.cumsum(values, dtype=np.float64)])
  ends = np.arange(1, len(values) + 1)
  starts = np.maximum(ends - window, 0)
  return (sums[ends] - sums[starts]) / (ends - starts)


def _log_paths(run_dir: pathlib.Path, label: str) -> list[pathlib.Path]:
  """Returns the logs of all instances of `label`."""
  directory = loggers.log_path(run_dir, label).parent
  pattern = re.compile(rf'{label}(-\d+)?\.jsonl')
  return sorted(p for p in directory.glob('*') if pattern.fullmatch(p.name))


def _drop_replaced(
  rows: Sequence[Mapping[str, Any]],
) -> list[Mapping[str, Any]]:
  """Drops what came after the checkpoint that a run was resumed from.

  There the steps fall back, and the rows that follow replace the rest.
  """
  kept: list[Mapping[str, Any]] = []
  for row in rows:
    while kept and kept[-1]['actor_steps'] > row['actor_steps']:
      kept.pop()
    kept.append(row)
  return kept


def read_returns(run_dir: str | os.PathLike, label: str) -> Returns:
  """Returns what the logs of all instances of `label` tell of episodes."""
  rows: list[Mapping[str, Any]] = []
  for path in _log_paths(pathlib.Path(run_dir), label):
    episodes = [
      row
      for row in loggers.read_jsonl(path)
      if 'episode_return' in row and row.get('actor_steps') is not None
    ]
    rows += _drop_replaced(episodes)
  rows.sort(key=lambda row: row['actor_steps'])
  # Loggers write null for what is not finite.
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
  steps, returns, _, num_left_out = episodes
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
    label='episode'
    + (f' ({num_left_out:,} not finite, left out)' if num_left_out else ''),
  )
  axes.plot(
    steps,
    rolling_mean(returns, WINDOW),
    color='tab:blue',
    linewidth=1.8,
    label=f'mean of the last {WINDOW} episodes',
  )


def _plot_evaluation(axes: Any, episodes: Returns) -> None:
  if not len(episodes.steps):
    return
  returns = episodes.returns
  unique_steps, index = np.unique(episodes.steps, return_inverse=True)
  means = np.bincount(index, weights=returns) / np.bincount(index)
  axes.plot(
    unique_steps,
    means,
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
