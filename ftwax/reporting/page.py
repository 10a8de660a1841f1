"""Parts of a self-contained HTML page."""

from __future__ import annotations

import base64
import html
import pathlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
  import matplotlib.figure

STATIC = pathlib.Path(__file__).parent / 'static'

# Content security policy: only inline scripts and styles, nothing external.
POLICY = (
  "default-src 'none'; script-src 'unsafe-inline'; img-src data:;"
  " style-src 'unsafe-inline'"
)

# Extends the style that all pages share. A figure is 990 pixels wide, with text
# of 11 pixels. A narrow screen scrolls figures and wide tables, whose first
# column stays visible, instead of shrinking them.
_STYLE = """
main { max-width: 64rem; padding: 2rem 1.25rem 5rem; }
h1 { font-size: 1.7rem; margin: 0 0 1.2rem; }
h2 { font-size: 1.15rem; margin: 2.6rem 0 .3rem; }
main > p, figcaption { color: var(--quiet); max-width: 46rem; }
table { font-variant-numeric: tabular-nums; }
th, td { vertical-align: top; border-bottom: 1px solid var(--panel); }
td.text { overflow-wrap: anywhere; }
td.number, th.number { text-align: right; padding-left: .9rem; }
.wide { overflow-x: auto; max-width: 100%; }
.wide th:first-child, .wide td:first-child { position: sticky; left: 0;
  background: var(--back); }
figure { margin: 0 1.2rem 1.2rem 0; display: inline-block; max-width: 100%;
  vertical-align: top; }
img { max-width: 100%; height: auto; }
img.pixels { image-rendering: pixelated; border: 1px solid var(--line); }
@media (prefers-color-scheme: dark) {
  img { background: #fff; border-radius: 6px; }
}
@media (max-width: 56rem) { .wide img { max-width: none; } }
"""


def read_static(name: str) -> str:
  """Returns a style sheet or a script that pages share."""
  return (STATIC / name).read_text('utf-8')


def render(title: str, body: Sequence[str]) -> str:
  """Renders a page from its title and parts."""
  name = html.escape(title)
  style = read_static('style.css') + _STYLE
  content = '\n'.join(body)
  return (
    '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
    f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
    '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
    f'<title>{name}</title>\n<style>{style}</style>\n</head>\n'
    f'<body>\n<main>\n<h1>{name}</h1>\n{content}\n</main>\n</body>\n'
    '</html>\n'
  )


def heading(text: str) -> str:
  """Returns the heading of a section."""
  return f'<h2>{html.escape(text)}</h2>'


def section(
  title: str, caption: str, figure: matplotlib.figure.Figure, alt: str
) -> list[str]:
  """Returns the parts of a section with a figure.

  Args:
    title: title of the section.
    caption: explains how to read the figure.
    figure: figure, which is embedded as a PNG.
    alt: description of the figure for screen readers.
  """
  return [heading(title), paragraph(caption), plot(figure, alt)]


def paragraph(text: str) -> str:
  """Returns a paragraph."""
  return f'<p>{html.escape(text)}</p>'


def plot(figure: matplotlib.figure.Figure, alt: str) -> str:
  """Returns a figure as an embedded PNG, with its description."""
  from ftwax.reporting import drawing  # Imports Matplotlib.

  image = _image(drawing.to_png(figure), 'png', alt)
  return f'<div class="wide">{image}</div>'


def table(values: Mapping[str, Any]) -> str:
  """Returns a table with a name and a value in each row."""
  rows = ''.join(
    f'<tr><th>{html.escape(name)}</th>'
    f'<td class="text">{html.escape(str(value))}</td></tr>\n'
    for name, value in values.items()
  )
  return f'<table>\n{rows}</table>'


def columns(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
  """Returns a table with a header; all columns but the first are numbers."""
  body = ''.join(_line(cells, 'td') for cells in rows)
  return f'<div class="wide"><table>\n{_line(head, "th")}{body}</table></div>'


def _line(cells: Sequence[str], tag: str) -> str:
  first, *rest = [html.escape(cell) for cell in cells]
  numbers = ''.join(f'<{tag} class="number">{cell}</{tag}>' for cell in rest)
  return f'<tr><{tag}>{first}</{tag}>{numbers}</tr>\n'


def number(value: float, digits: int | None = None) -> str:
  """Returns a number as text, by default with three significant digits."""
  return f'{value:.3g}' if digits is None else f'{value:,.{digits}f}'


def png(content: bytes, caption: str, alt: str) -> str:
  """Returns an embedded PNG with a caption and a description."""
  image = f'<div class="wide">{_image(content, "png", alt)}</div>'
  return _figure(image, caption)


def gif(content: bytes, caption: str, alt: str) -> str:
  """Returns an embedded GIF with a caption and a description."""
  image = _image(content, 'gif', alt, ' class="pixels"')
  return _figure(image, caption)


def _figure(image: str, caption: str) -> str:
  text = html.escape(caption)
  return f'<figure>{image}<figcaption>{text}</figcaption></figure>'


def _image(content: bytes, kind: str, text: str, attributes: str = '') -> str:
  data = base64.b64encode(content).decode('ascii')
  return (
    f'<img alt="{html.escape(text)}"{attributes}'
    f' src="data:image/{kind};base64,{data}">'
  )
