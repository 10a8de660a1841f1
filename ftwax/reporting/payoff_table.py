"""Figures of win rates between players, and of ratings in a tournament."""

from collections.abc import Sequence
from typing import Any

import matplotlib.figure
import numpy as np

from ftwax import types
from ftwax.records import tournament_files
from ftwax.reporting import drawing

# With more rows than this, there is no space for numbers.
_MAX_NUMBERS = 16


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
