"""Figures of benchmarks and of research, by Matplotlib."""

import io
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib import figure as figures

from ftwax.records import files


def make(width: float, height: float) -> figures.Figure:
  """Makes a figure of the given size in inches, without pyplot."""
  return figures.Figure(figsize=(width, height), dpi=110, layout='constrained')


def style(axes: Any) -> None:
  """Sets a light grid without a frame."""
  axes.grid(alpha=0.25)
  axes.set_axisbelow(True)
  axes.spines[['top', 'right']].set_visible(False)
  axes.tick_params(labelsize=8)
  axes.margins(x=0.02)


def draw_runs(
  path: pathlib.Path,
  panels: Mapping[str, Mapping[str, Sequence[Any]]],
  label: str,
) -> None:
  """Draws each run as a line of its own, a panel for each task.

  Args:
    path: of the PNG file.
    panels: curves [n, 2] of steps and scores, of each seed, by agent, by task.
    label: of the scores.
  """
  figure = make(4.5 * max(len(panels), 1), 3.2)
  row = figure.subplots(1, max(len(panels), 1), squeeze=False)[0]
  for axes, (task, agents) in zip(row, panels.items(), strict=False):
    style(axes)
    axes.set_title(task, fontsize=9)
    axes.set_xlabel('steps', fontsize=8)
    axes.set_ylabel(label, fontsize=8)
    for index, (agent, curves) in enumerate(agents.items()):
      for seed, curve in enumerate(curves):
        steps, scores = zip(*curve, strict=True)
        name = agent if seed == 0 else None
        axes.plot(steps, scores, f'C{index}', linewidth=1, label=name)
    axes.legend(fontsize=7, frameon=False)
  write_png(path, figure)


def write_png(path: pathlib.Path, figure: figures.Figure) -> None:
  """Writes a PNG file atomically."""
  files.write_atomically(path, to_png(figure))


def to_png(figure: figures.Figure) -> bytes:
  """Returns a figure as a PNG file."""
  buffer = io.BytesIO()
  figure.savefig(buffer, format='png')
  return buffer.getvalue()
