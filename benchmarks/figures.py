"""Figures of benchmarks and of research, by Matplotlib."""

import io
import pathlib
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


def write_png(path: pathlib.Path, figure: figures.Figure) -> None:
  """Writes a PNG file atomically."""
  files.write_atomically(path, to_png(figure))


def to_png(figure: figures.Figure) -> bytes:
  """Returns a figure as a PNG file."""
  buffer = io.BytesIO()
  figure.savefig(buffer, format='png')
  return buffer.getvalue()
