"""Colours, axes and files shared by the figures of a population."""

import contextlib
import io
import os
import pathlib
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ftwax import extras
from ftwax.records import files

if TYPE_CHECKING:
  import matplotlib.figure

# Words that are written in capitals.
_CAPITALS = re.compile(r'\b(i|kl|gae|rms)\b')


def make_figure(width: float, height: float) -> 'matplotlib.figure.Figure':
  """Makes a figure of the given size in inches, without pyplot."""
  # Not before: most commands draw none.
  with _without_settings_here(), extras.required('matplotlib'):
    import matplotlib.figure

  return matplotlib.figure.Figure(
    figsize=(width, height), dpi=110, layout='constrained'
  )


@contextlib.contextmanager
def _without_settings_here() -> Iterator[None]:
  """Lets Matplotlib, when it is imported, read no settings of this folder.

  A context manager. It would read a file `matplotlibrc`, which may be part of a
  folder that somebody sent: a pipe, or settings that start LaTeX.
  """
  if not os.path.lexists('matplotlibrc'):
    yield
    return
  here = os.getcwd()
  try:
    os.chdir(pathlib.Path(__file__).parent)
    yield
  finally:
    os.chdir(here)


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


def write_png(path: pathlib.Path, figure: 'matplotlib.figure.Figure') -> None:
  """Writes a PNG file atomically."""
  files.write_atomically(path, to_png(figure))


def to_png(figure: 'matplotlib.figure.Figure') -> bytes:
  """Returns a figure as a PNG file."""
  buffer = io.BytesIO()
  figure.savefig(buffer, format='png')
  return buffer.getvalue()
