"""Learning curves of several variants with several seeds each."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.figure
import numpy as np

from ftwax.reporting import curves, drawing

# Points on a curve; each is the mean over an interval of steps.
_NUM_POINTS = 40


def plot_comparison(
  run_dirs: Mapping[str, Sequence[str | os.PathLike[str]]], title: str
) -> matplotlib.figure.Figure:
  """Plots the training return of each run, and the mean of each variant.

  Args:
    run_dirs: by variant, the directories of its runs, one for each seed.
    title: title of the figure.
  """
  figure = drawing.make_figure(6.4, 3.4)
  axes = figure.subplots()
  episodes = {
    name: [curves.read_returns(run_dir, 'train') for run_dir in row]
    for name, row in run_dirs.items()
  }
  last_step = max(
    (
      run.steps[-1]
      for row in episodes.values()
      for run in row
      if len(run.steps)
    ),
    default=1.0,
  )
  for index, (name, row) in enumerate(episodes.items()):
    _plot_variant(axes, name, row, last_step, drawing.member_color(index))
  drawing.style_games(axes)
  axes.set_title(title, loc='left', fontsize=10)
  axes.set_xlabel('environment steps', fontsize=8)
  axes.set_ylabel('episode return', fontsize=8)
  axes.legend(fontsize=8, frameon=False)
  return figure


def _plot_variant(
  axes: Any,
  name: str,
  row: Sequence[curves.Returns],
  last_step: float,
  color: Any,
) -> None:
  edges = np.linspace(0.0, last_step, _NUM_POINTS + 1)
  steps = (edges[:-1] + edges[1:]) / 2
  means = np.array([curves.mean_by_step(run, edges) for run in row])
  for mean in means:
    is_known = np.isfinite(mean)
    axes.plot(
      steps[is_known], mean[is_known], color=color, linewidth=0.8, alpha=0.4
    )
  # No mean where a seed is missing, since it would jump there.
  is_known = np.all(np.isfinite(means), axis=0)
  axes.plot(
    steps[is_known],
    means[:, is_known].mean(axis=0),
    color=color,
    linewidth=2.0,
    label=f'{name}, mean of {len(row)}',
  )
