"""Colours, axes and files shared by the figures of a population."""

import io
import os
import pathlib
import re
from typing import Any

import matplotlib
import matplotlib.figure
import matplotlib.ticker
import numpy as np

from ftwax import types

INK = '#24292f'
FAINT = '#8c959f'
ACCENT = '#0969da'

# Words that are written in capitals.
_CAPITALS = re.compile(r'\b(i|kl|gae|rms)\b')

# With more panels than this in a row, they are too small to read.
NUM_COLUMNS = 3


def member_color(member: int) -> Any:
  """Returns the colour of a member, which is the same in all figures."""
  palette = matplotlib.colormaps['tab20']
  # First the ten strong colours of the palette, then the pale ones.
  index = 2 * member % 20 + (member // 10) % 2
  return palette(index)


def make_figure(width: float, height: float) -> matplotlib.figure.Figure:
  """Makes a figure of the given size in inches, without pyplot."""
  return matplotlib.figure.Figure(
    figsize=(width, height), dpi=110, layout='constrained'
  )


def make_panels(num_panels: int) -> tuple[matplotlib.figure.Figure, list[Any]]:
  """Makes a figure with `num_panels` panels, ordered row by row."""
  num_columns = min(num_panels, NUM_COLUMNS)
  num_rows = -(-num_panels // num_columns)
  figure = make_figure(9.0, 2.2 * num_rows + 0.3)
  grid = figure.subplots(num_rows, num_columns, sharex=True, squeeze=False)
  panels = list(grid.ravel())
  for panel in panels[num_panels:]:
    panel.set_visible(False)
  # Only the lowest panel of a column labels the shared axis.
  for index, panel in enumerate(panels[:num_panels]):
    is_lowest = index + num_columns >= num_panels
    panel.tick_params(labelbottom=is_lowest)
    if is_lowest:
      panel.set_xlabel('games per member', fontsize=8)
  return figure, panels[:num_panels]


def style(axes: Any) -> None:
  """Sets a light grid without a frame."""
  axes.grid(alpha=0.25)
  axes.set_axisbelow(True)
  axes.spines[['top', 'right']].set_visible(False)
  axes.tick_params(labelsize=8)
  axes.margins(x=0.02)


def style_games(axes: Any) -> None:
  """Sets the style of axes over games or steps."""
  style(axes)
  axes.xaxis.set_major_formatter(matplotlib.ticker.EngFormatter(sep=''))
  axes.xaxis.set_major_locator(matplotlib.ticker.MaxNLocator(5))


def plot_mean_and_spread(
  axes: Any, games: types.Floats, values: types.Floats, log: bool = False
) -> None:
  """Plots the mean over members, one standard deviation, and the extremes.

  Args:
    axes: axes to plot on.
    games: float64 [K], games per member.
    values: float64 [K, N], finite.
    log: whether to compute mean and deviation of logarithms.
  """
  scaled = np.log(values) if log else values
  mean, deviation = scaled.mean(axis=1), scaled.std(axis=1)
  lowest, highest = scaled.min(axis=1), scaled.max(axis=1)
  # Clip the band of one deviation to the extremes.
  low = np.maximum(mean - deviation, lowest)
  high = np.minimum(mean + deviation, highest)
  curves = [mean, low, high, lowest, highest]
  if log:
    curves = [np.exp(curve) for curve in curves]
    _set_log_scale(axes)
  mean, low, high, lowest, highest = curves
  axes.fill_between(
    games, lowest, highest, color=ACCENT, alpha=0.10, linewidth=0
  )
  axes.fill_between(games, low, high, color=ACCENT, alpha=0.22, linewidth=0)
  axes.plot(games, mean, color=ACCENT, linewidth=1.6)


def _set_log_scale(axes: Any) -> None:
  """Sets a logarithmic axis with tick labels between the powers of ten."""
  axes.set_yscale('log')
  axes.yaxis.set_major_locator(matplotlib.ticker.LogLocator(subs=(1, 2, 5)))
  axes.yaxis.set_minor_locator(matplotlib.ticker.NullLocator())
  axes.yaxis.set_major_formatter(
    matplotlib.ticker.FuncFormatter(lambda value, _: f'{value:.0e}')
  )


def readable(name: str) -> str:
  """Converts an identifier to words, e.g. `i_was_tagged` to `I was tagged`.

  Non-UTF-8 bytes of a path become replacement characters, which fonts support.
  """
  words = os.fsencode(name).decode('utf-8', 'replace').replace('_', ' ')
  return _CAPITALS.sub(lambda match: match[0].upper(), words)


def write_png(path: pathlib.Path, figure: matplotlib.figure.Figure) -> None:
  """Writes a PNG file atomically."""
  temporary = path.with_suffix('.tmp')
  temporary.write_bytes(to_png(figure))
  temporary.replace(path)


def to_png(figure: matplotlib.figure.Figure) -> bytes:
  """Returns a figure as a PNG file."""
  buffer = io.BytesIO()
  figure.savefig(buffer, format='png')
  return buffer.getvalue()
