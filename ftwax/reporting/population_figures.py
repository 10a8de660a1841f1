"""Figures of a population: curves over games, win rates, play styles, descent.

Curves are after figure 4 of Jaderberg et al., 2019 (arXiv:1807.01281), which
shows the rating of each member, and mean and spread of the rest.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import matplotlib.collections
import matplotlib.figure
import numpy as np
import numpy.typing as npt

from ftwax import types
from ftwax.population import rankings
from ftwax.records import tournament_files
from ftwax.reporting import drawing
from ftwax.reporting import history as history_lib

# With more members than this, a legend takes too much space.
_MAX_LEGEND = 12

# With more members or players than this, there is no space for numbers.
_MAX_NUMBERS = 16

# Fraction of the run, at its end, over which event rates are averaged.
_LAST_PART = 0.2

Founders = npt.NDArray[np.int64]


def plot_ratings(history: history_lib.History) -> matplotlib.figure.Figure:
  """Plots the rating of each member in training and their mean."""
  figure, axes = _plot_members(history.games, history.ratings, 'Elo rating')
  mean = history.ratings.mean(axis=1)
  axes.plot(history.games, mean, color=drawing.INK, linewidth=2.4, label='mean')
  _add_legend(axes, history.ratings.shape[1])
  return figure


def plot_returns(history: history_lib.History) -> matplotlib.figure.Figure:
  """Plots the mean return of each member's last episodes."""
  figure, axes = _plot_members(
    history.games, history.mean_returns, 'mean return'
  )
  _add_legend(axes, history.mean_returns.shape[1])
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


def _plot_members(
  games: types.Floats, values: types.Floats, label: str
) -> tuple[matplotlib.figure.Figure, Any]:
  """Plots a line for each member, values [K, N] over games [K]."""
  figure = drawing.make_figure(9.0, 4.2)
  axes: Any = figure.subplots()
  for member, line in enumerate(values.T):
    color = drawing.member_color(member)
    name = f'member {member}'
    axes.plot(games, line, color=color, linewidth=1.2, alpha=0.85, label=name)
  drawing.style_games(axes)
  axes.set_xlabel('games per member', fontsize=9)
  axes.set_ylabel(label, fontsize=9)
  return figure, axes


def _add_legend(axes: Any, num_members: int) -> None:
  if num_members <= _MAX_LEGEND:
    axes.legend(
      loc='upper left', bbox_to_anchor=(1.0, 1.0), frameon=False, fontsize=8
    )


def _title(axes: Any, title: str) -> None:
  drawing.style_games(axes)
  axes.set_title(title, loc='left', fontsize=9)


def plot_event_rates(
  history: history_lib.History, event_names: Sequence[str]
) -> matplotlib.figure.Figure | None:
  """Plots mean and spread of each event's rate; None if none are logged."""
  if history.event_rates is None:
    return None
  figure, panels = drawing.make_panels(history.event_rates.shape[-1])
  for event, axes in enumerate(panels):
    rates = history.event_rates[:, :, event]
    drawing.plot_mean_and_spread(axes, history.games, rates)
    _title(axes, drawing.readable(event_names[event]))
    axes.set_ylim(bottom=0.0)
  return figure


def mean_rates(history: history_lib.History) -> types.Floats | None:
  """Returns events of each member per game at the end, [N, num_events]."""
  if history.event_rates is None:
    return None
  num_rows = max(round(_LAST_PART * len(history.event_rates)), 1)
  return history.event_rates[-num_rows:].mean(axis=0)


def plot_play_styles(
  rates: types.Floats, event_names: Sequence[str]
) -> matplotlib.figure.Figure:
  """Plots events by member; colors compare each member with the mean.

  Args:
    rates: float64 [N, num_events], from `mean_rates`.
    event_names: [num_events].
  """
  num_members, num_events = rates.shape
  mean = rates.mean(axis=0)
  # In [-1, 1]: 0 at the mean, -1 if the event never happens to the member.
  relative = (rates - mean) / np.maximum(rates + mean, 1e-9)
  figure = drawing.make_figure(
    0.62 * num_members + 3.6, 0.34 * num_events + 0.8
  )
  axes: Any = figure.subplots()
  axes.imshow(relative.T, cmap='PuOr_r', vmin=-1.0, vmax=1.0, aspect='auto')
  axes.set_xticks(range(num_members), [str(i) for i in range(num_members)])
  axes.set_yticks(
    range(num_events), [drawing.readable(name) for name in event_names]
  )
  axes.set_xlabel('member', fontsize=9)
  axes.tick_params(labelsize=8, length=0)
  axes.spines[:].set_visible(False)
  if num_members <= _MAX_NUMBERS:
    for member, event in np.ndindex(rates.shape):
      is_dark = abs(relative[member, event]) > 0.6
      axes.text(
        member,
        event,
        f'{rates[member, event]:.2g}',
        ha='center',
        va='center',
        fontsize=7,
        color='white' if is_dark else drawing.INK,
      )
  return figure


def describe(rates: types.Floats, event_names: Sequence[str]) -> str:
  """Returns a sentence on the event in which members differ most."""
  spread = np.ptp(rates, axis=0) / np.maximum(rates.mean(axis=0), 1e-9)
  # Ignore rare events, whose rates differ by chance.
  spread = np.where(rates.mean(axis=0) > 0.05, spread, 0.0)
  event = int(spread.argmax())
  low, high = int(rates[:, event].argmin()), int(rates[:, event].argmax())
  return (
    f'Members differ most in "{drawing.readable(event_names[event])}": from'
    f' {rates[low, event]:.2g} a game (member {low}) to'
    f' {rates[high, event]:.2g} (member {high}).'
  )


def plot_payoff(
  win_rates: types.Floats,
  names: Sequence[str] | None = None,
  games: types.Floats | None = None,
  half_widths: types.Floats | None = None,
) -> matplotlib.figure.Figure:
  """Plots the win rates of rows against columns; gray where there is none.

  Args:
    win_rates: float64 [N, N], in [0, 1] or NaN.
    names: [N]; by default the indices of members.
    games: float64 [N, N], numbers of games to write below.
    half_widths: float64 [N, N], of confidence intervals, to write below
      instead.
  """
  num_players = len(win_rates)
  size = min(max(0.62 * num_players, 3.2), 9.0)
  figure = drawing.make_figure(size + 1.6, size)
  axes: Any = figure.subplots()
  axes.set_facecolor('#eaeef2')
  image = axes.imshow(win_rates, cmap='RdBu', vmin=0.0, vmax=1.0)
  bar = figure.colorbar(image, ax=axes, shrink=0.85)
  bar.set_label('win rate of the row player; a draw is half a win', fontsize=8)
  bar.ax.tick_params(labelsize=8)
  bar.ax.spines[:].set_visible(False)
  ticks = range(num_players)
  labels = [drawing.readable(name) for name in names or map(str, ticks)]
  is_long = max(map(len, labels)) > 3
  axes.set_xticks(ticks, labels, rotation=45 if is_long else 0,
                  ha='right' if is_long else 'center')  # fmt: skip
  axes.set_yticks(ticks, labels)
  axes.tick_params(labelsize=8, length=0)
  axes.spines[:].set_visible(False)
  if num_players <= _MAX_NUMBERS:
    for i, j in zip(*np.nonzero(np.isfinite(win_rates)), strict=True):
      text = f'{100 * win_rates[i, j]:.0f}%'
      if half_widths is not None:
        text += f'\n±{100 * half_widths[i, j]:.0f}'
      elif games is not None:
        text += f'\n{games[i, j]:,.0f}'
      color = 'white' if abs(win_rates[i, j] - 0.5) > 0.3 else drawing.INK
      axes.text(j, i, text, ha='center', va='center', fontsize=7, color=color)
  return figure


def plot_tournament(
  results: tournament_files.Results,
) -> matplotlib.figure.Figure:
  """Plots the rating of each player with its interval, the best on top."""
  order = np.argsort(results.ratings)
  figure = drawing.make_figure(7.0, 0.32 * len(order) + 0.9)
  axes: Any = figure.subplots()
  for place, player in enumerate(order):
    rating = results.ratings[player]
    is_member = player < results.num_members
    color = drawing.member_color(player) if is_member else drawing.FAINT
    axes.plot(
      [results.lows[player], results.highs[player]],
      [place, place],
      color=color,
      linewidth=2.0,
    )
    axes.plot([rating], [place], 'o', color=color, markersize=6)
  labels = [drawing.readable(results.players[player]) for player in order]
  axes.set_yticks(range(len(order)), labels)
  drawing.style(axes)
  anchor = drawing.readable(results.players[results.anchor])
  axes.set_xlabel(f'Elo points above {anchor}', fontsize=9)
  return figure


def tabulate_tournament(
  results: tournament_files.Results,
) -> tuple[list[str], list[list[str]]]:
  """Returns the header and a row for each player, the best by Elo first."""
  nash = rankings.nash_average(results.win_rates)
  mass = rankings.alpha_rank(results.win_rates)
  anchor = drawing.readable(results.players[results.anchor])
  head = [
    'player',
    f'Elo above {anchor}',
    '95%',
    'score against Nash',
    'weight in Nash',
    'alpha-rank',
  ]
  rows = [
    [
      drawing.readable(results.players[player]),
      f'{results.ratings[player]:.0f}',
      f'{results.lows[player]:.0f} to {results.highs[player]:.0f}',
      f'{nash.scores[player]:.2f}',
      f'{nash.weights[player]:.2f}',
      f'{mass[player]:.2f}',
    ]
    for player in np.argsort(-results.ratings)
  ]
  return head, rows


def founders(rows: Sequence[Mapping[str, Any]], num_members: int) -> Founders:
  """Returns the founder of each member at the end, int64 [N]."""
  return _follow_copies(rows, num_members)[0]


def plot_lineage(
  rows: Sequence[Mapping[str, Any]], num_members: int, last_game: float
) -> matplotlib.figure.Figure:
  """Plots the tree of descent.

  Each member has a lane. When the member copies a parent, its lane takes the
  color of the founder from which the parent descends.

  Args:
    rows: rows of a lineage file; see `ftwax.population.lineage`.
    num_members: N, the number of lanes.
    last_game: games per member at which the lanes end.
  """
  _, lanes, arrows = _follow_copies(rows, num_members, last_game)
  figure = drawing.make_figure(9.0, 1.2 + 0.28 * num_members)
  axes = figure.subplots()
  axes.add_collection(
    matplotlib.collections.LineCollection(
      [[(begin, member), (end, member)] for member, _, begin, end in lanes],
      colors=[drawing.member_color(founder) for _, founder, _, _ in lanes],
      linewidths=4.0,
      capstyle='butt',
    )
  )
  axes.add_collection(
    matplotlib.collections.LineCollection(
      [[(game, parent), (game, member)] for member, parent, _, game in arrows],
      colors=[drawing.member_color(founder) for _, _, founder, _ in arrows],
      linewidths=1.0,
      alpha=0.7,
    )
  )
  axes.scatter(
    [game for *_, game in arrows],
    [member for member, *_ in arrows],
    s=22,
    color=[drawing.member_color(founder) for _, _, founder, _ in arrows],
    edgecolor='white',
    linewidth=0.8,
    zorder=3,
  )
  drawing.style_games(axes)
  axes.grid(axis='y', visible=False)
  axes.set_yticks(
    range(num_members), [f'member {i}' for i in range(num_members)]
  )
  axes.set_ylim(num_members - 0.5, -0.5)
  axes.set_xlim(0.0, last_game)
  axes.set_xlabel('games per member', fontsize=9)
  return figure


def _follow_copies(
  rows: Sequence[Mapping[str, Any]], num_members: int, last_game: float = 0.0
) -> tuple[Founders, list[Any], list[Any]]:
  """Follows the copies in a lineage.

  Returns:
    The founders [N] at the end; lanes as (member, founder, begin, end); and
    copies as (member, parent, founder, game).
  """
  founder = np.arange(num_members)
  since = np.zeros((num_members,))
  lanes, arrows = [], []
  generations: dict[int, list[Mapping[str, Any]]] = {}
  for row in rows:
    if 'parent' in row:
      generations.setdefault(row['generation'], []).append(row)
  for group in generations.values():
    # Members copy others as they were before the generation.
    before = founder.copy()
    for row in group:
      member, parent, game = row['member'], row['parent'], row['games']
      lanes.append((member, before[member], since[member], game))
      founder[member], since[member] = before[parent], game
      arrows.append((member, parent, before[parent], game))
  for member in range(num_members):
    lanes.append((member, founder[member], since[member], last_game))
  return founder, lanes, arrows
