"""Colours, axes and files shared by the figures of a population."""

import io
import os
import pathlib
import re
from typing import Any

import matplotlib.figure

from ftwax.records import files

# Words that are written in capitals.
_CAPITALS = re.compile(r'\b(i|kl|gae|rms)\b')


def make_figure(width: float, height: float) -> matplotlib.figure.Figure:
  """Makes a figure of the given size in inches, without pyplot."""
  return matplotlib.figure.Figure(
    figsize=(width, height), dpi=110, layout='constrained'
  )


def style(axes: Any) -> None:
  """Sets a light grid without a frame."""
  axes.grid(alpha=0.25)
  axes.set_axisbelow(True)
  axes.spines[['top', 'right']].set_visible(False)
  axes.tick_params(labelsize=8)
  axes.margins(x=0.02)


def readable(name: str) -> str:
  """Converts an identifier to words, e.g. `i_was_tagged` to `I was tagged`.

  Non-UTF-8 bytes of a path become replacement characters, which fonts support.
  """
  words = os.fsencode(name).decode('utf-8', 'replace').replace('_', ' ')
  return _CAPITALS.sub(lambda match: match[0].upper(), words)


def write_png(path: pathlib.Path, figure: matplotlib.figure.Figure) -> None:
  """Writes a PNG file atomically."""
  files.write_atomically(path, to_png(figure))


def to_png(figure: matplotlib.figure.Figure) -> bytes:
  """Returns a figure as a PNG file."""
  buffer = io.BytesIO()
  figure.savefig(buffer, format='png')
  return buffer.getvalue()
