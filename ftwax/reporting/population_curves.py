"""Ratings, returns, hyperparameters and internal rewards of members over games.

After figure 4 of Jaderberg et al., 2019 (arXiv:1807.01281), which shows the
rating of each member, and mean and spread of the rest.
"""

from collections.abc import Collection, Sequence
from typing import Any

import matplotlib.figure
import numpy as np

from ftwax import types
from ftwax.reporting import drawing
from ftwax.reporting import history as history_lib

# With more members than this, a legend takes too much space.
_MAX_LEGEND = 12


def plot_ratings(history: history_lib.History) -> matplotlib.figure.Figure:
  """Plots the rating of each member in training and their mean."""
  axes, figure = _axes()
  for member, ratings in enumerate(history.ratings.T):
    _plot_member(axes, history, ratings, member)
  mean = history.ratings.mean(axis=1)
  axes.plot(history.games, mean, color=drawing.INK, linewidth=2.4, label='mean')
  _finish(axes, 'Elo rating', history.ratings.shape[1])
  return figure


def plot_returns(history: history_lib.History) -> matplotlib.figure.Figure:
  """Plots the mean return of each member's last episodes."""
  axes, figure = _axes()
  for member, returns in enumerate(history.mean_returns.T):
    _plot_member(axes, history, returns, member)
  _finish(axes, 'mean return', history.mean_returns.shape[1])
  return figure


def plot_hyperparameters(
  history: history_lib.History, log_scaled: Collection[str] = ()
) -> matplotlib.figure.Figure | None:
  """Plots each hyperparameter that is not constant.

  Args:
    history: history of the population.
    log_scaled: names of hyperparameters with a log-uniform prior.

  Returns:
    The figure, or None if all are constant.
  """
  changing = {
    name: values
    for name, values in history.hyperparameters.items()
    if np.isfinite(values).all() and np.ptp(values) > 0.0
  }
  if not changing:
    return None
  figure, panels = drawing.make_panels(len(changing))
  for axes, (name, values) in zip(panels, changing.items(), strict=True):
    log = name in log_scaled
    drawing.plot_mean_and_spread(axes, history.games, values, log)
    _title(axes, drawing.readable(name) + (' (log)' if log else ''))
  return figure


def plot_internal_rewards(
  history: history_lib.History, event_names: Sequence[str]
) -> matplotlib.figure.Figure | None:
  """Plots the weight of each event; returns None if no weight changes."""
  if np.ptp(history.internal_rewards) == 0.0:
    return None
  figure, panels = drawing.make_panels(history.internal_rewards.shape[-1])
  for event, axes in enumerate(panels):
    weights = history.internal_rewards[:, :, event]
    drawing.plot_mean_and_spread(axes, history.games, weights)
    axes.axhline(0.0, color=drawing.FAINT, linewidth=0.8)
    _title(axes, drawing.readable(event_names[event]))
  # The same scale for all events, so that they can be compared.
  limits = np.ptp(history.internal_rewards) * np.array([-0.05, 0.05])
  limits += history.internal_rewards.min(), history.internal_rewards.max()
  for axes in panels:
    axes.set_ylim(limits)
  return figure


def _axes() -> tuple[Any, matplotlib.figure.Figure]:
  figure = drawing.make_figure(9.0, 4.2)
  return figure.subplots(), figure


def _title(axes: Any, title: str) -> None:
  drawing.style_games(axes)
  axes.set_title(title, loc='left', fontsize=9)


def _plot_member(
  axes: Any, history: history_lib.History, values: types.Floats, member: int
) -> None:
  axes.plot(
    history.games,
    values,
    color=drawing.member_color(member),
    linewidth=1.2,
    alpha=0.85,
    label=f'member {member}',
  )


def _finish(axes: Any, label: str, num_members: int) -> None:
  drawing.style_games(axes)
  axes.set_xlabel('games per member', fontsize=9)
  axes.set_ylabel(label, fontsize=9)
  if num_members <= _MAX_LEGEND:
    axes.legend(
      loc='upper left', bbox_to_anchor=(1.0, 1.0), frameon=False, fontsize=8
    )
