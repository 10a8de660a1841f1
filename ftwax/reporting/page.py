"""Pieces of an HTML page that needs no other file and runs no script."""

import base64
import html
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.figure

from ftwax.reporting import drawing

_STYLE = """
:root { color-scheme: light; }
body { max-width: 62rem; margin: 2.5rem auto 5rem; padding: 0 1.25rem;
  background: #fff; color: #24292f;
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", sans-serif; }
h1 { font-size: 1.7rem; margin: 0 0 1.2rem; }
h2 { font-size: 1.15rem; margin: 2.6rem 0 .3rem; }
p { margin: 0 0 .8rem; color: #57606a; max-width: 46rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .9rem .3rem 0; text-align: left;
  border-bottom: 1px solid #eaeef2; }
th { font-weight: 600; color: #57606a; }
td.number, th.number { text-align: right; padding-left: .9rem; }
.wide { overflow-x: auto; }
figure { margin: 0 0 1.2rem; display: inline-block; vertical-align: top;
  margin-right: 1.2rem; }
img { max-width: 100%; height: auto; }
img.pixels { image-rendering: pixelated; border: 1px solid #eaeef2; }
figcaption { color: #57606a; font-size: .85rem; }
"""


def render(title: str, body: Sequence[str]) -> str:
  """Returns the page with this title and these pieces."""
  name = html.escape(title)
  content = '\n'.join(body)
  return (
    '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
    '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
    f'<title>{name}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n'
    f'<h1>{name}</h1>\n{content}\n</body>\n</html>\n'
  )


def heading(text: str) -> str:
  """Returns the heading of a section."""
  return f'<h2>{html.escape(text)}</h2>'


def section(
  title: str, caption: str, figure: matplotlib.figure.Figure
) -> list[str]:
  """Returns a heading, how to read the picture, and the picture."""
  image = _image(drawing.to_png(figure), 'png', title)
  return [heading(title), f'<p>{html.escape(caption)}</p>', image]


def table(values: Mapping[str, Any]) -> str:
  """Returns a table of a name and a value in each row."""
  rows = ''.join(
    f'<tr><th>{html.escape(name)}</th><td>{html.escape(str(value))}</td></tr>\n'
    for name, value in values.items()
  )
  return f'<table>\n{rows}</table>'


def columns(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
  """Returns a table with a head, of numbers beside the first column."""

  def line(cells, tag):
    first, *rest = [html.escape(cell) for cell in cells]
    numbers = ''.join(f'<{tag} class="number">{c}</{tag}>' for c in rest)
    return f'<tr><{tag}>{first}</{tag}>{numbers}</tr>\n'

  body = ''.join(line(cells, 'td') for cells in rows)
  return f'<div class="wide"><table>\n{line(head, "th")}{body}</table></div>'


def number(value: float, digits: int | None = None) -> str:
  """Returns a number as text, by default with three digits that count."""
  return f'{value:.3g}' if digits is None else f'{value:,.{digits}f}'


def png(content: bytes, caption: str) -> str:
  """Returns a PNG with a caption."""
  return _figure(_image(content, 'png', caption), caption)


def gif(content: bytes, caption: str) -> str:
  """Returns an animated GIF with a caption, its pixels kept sharp."""
  image = _image(content, 'gif', caption, ' class="pixels"')
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
