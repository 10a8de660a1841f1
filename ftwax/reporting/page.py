"""Parts of a self-contained HTML page.

Figures are plain data, which the script `charts.js` draws in the page; its
first lines say what it knows.
"""

import base64
import hashlib
import html
import json
import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

STATIC = pathlib.Path(__file__).parent / 'static'

# Content security policy: nothing external, and only the scripts of a page.
_POLICY = (
  "default-src 'none'; script-src {}; img-src data:; style-src 'unsafe-inline';"
  " base-uri 'none'; form-action 'none'"
)

_HEADING = re.compile('<h2 id="([^"]*)">(.*?)</h2>')

# A page with fewer sections needs no links to them.
_MIN_LINKS = 4

# A table with more columns is broader than half of a page.
_MAX_COLUMNS = 6

# Extends the style that all pages share. A narrow screen scrolls wide tables,
# whose first column stays visible, instead of shrinking them.
_STYLE = """
main { max-width: 88rem; padding: 2rem 1.25rem 5rem; }
.contents { display: flex; flex-wrap: wrap; gap: .2rem 1.1rem;
  margin: 1rem 0 0; }
section h2 { margin-top: 0; padding-top: 1.6rem; }
@media (min-width: 1200px) {
  .sections { columns: 2; column-gap: 3rem; }
  .sections > section { break-inside: avoid; }
  .sections > .broad { column-span: all; }
}
h1 { font-size: 1.7rem; margin: 0 0 1.2rem; }
h2 { font-size: 1.15rem; margin: 1.6rem 0 .3rem; }
main > p, section > p, figcaption { color: var(--quiet); max-width: 46rem; }
table { font-variant-numeric: tabular-nums; }
th, td { vertical-align: top; border-bottom: 1px solid var(--panel); }
td.text { overflow-wrap: anywhere; }
td.number, th.number { text-align: right; padding: .25rem .4rem .25rem .75rem; }
td.number { white-space: nowrap; }
.wide { overflow-x: auto; max-width: 100%; }
.wide th:first-child, .wide td:first-child { position: sticky; left: 0;
  background: var(--back); }
td:first-child { white-space: nowrap; }
@media (max-width: 56rem) { .wide td:first-child { white-space: normal;
  overflow-wrap: anywhere; min-width: 8rem; max-width: 11rem; } }
.chart-of { margin: 0 0 1rem; max-width: 56rem; }
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


def render(title: str, body: Sequence[str], scripts: Sequence[str] = ()) -> str:
  """Renders a page from its title and parts.

  Args:
    title: title of the page.
    body: HTML of the parts.
    scripts: code that may run in the page beside that of charts. A script of
      other code, which a record may have brought, does not run.
  """
  name = html.escape(title)
  style = read_static('style.css') + _STYLE
  content = _arrange(body)
  code = read_static('drawing.js') + read_static('charts.js')
  policy = html.escape(policy_of([code, *scripts]))
  return (
    '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
    f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
    '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
    f'<title>{name}</title>\n<style>{style}</style>\n{script(code)}\n</head>\n'
    f'<body>\n<main>\n<h1>{name}</h1>\n{content}\n</main>\n</body>\n'
    '</html>\n'
  )


def _arrange(parts: Sequence[str]) -> str:
  """Returns parts in sections, one for each heading, below links to these."""
  sections: list[list[str]] = [[]]
  for part in parts:
    if _HEADING.match(part):
      sections.append([])
    sections[-1].append(part)
  lead, *rest = ['\n'.join(section) for section in sections]
  links, made = [], []
  for section in rest:
    match = _HEADING.match(section)
    assert match is not None
    links.append(f'<a href="#{match[1]}">{match[2]}</a>')
    kind = ' class="broad"' if _is_broad(section) else ''
    made.append(f'<section{kind}>\n{section}\n</section>')
  content = ''
  if len(links) >= _MIN_LINKS:
    content = (
      f'<nav class="contents" aria-label="Contents">{" ".join(links)}</nav>\n'
    )
  joined = '\n'.join(made)
  return f'{lead}\n{content}<div class="sections">\n{joined}\n</div>'


def _is_broad(section: str) -> bool:
  """Returns whether a section takes two columns: many charts, or broad rows."""
  rows = (row.count('<th') for row in section.split('</tr>'))
  has_charts = '<div class="charts' in section and '<details>' not in section
  return has_charts or max(rows) > _MAX_COLUMNS


def policy_of(scripts: Sequence[str]) -> str:
  """Returns the content security policy of a page with these scripts alone."""
  sums = [
    base64.b64encode(hashlib.sha256(_inline(code).encode()).digest()).decode()
    for code in scripts
  ]
  return _POLICY.format(' '.join(f"'sha256-{each}'" for each in sums))


def script(code: str) -> str:
  """Returns code as a part of a page, which must know it; see `render`."""
  return f'<script>{_inline(code)}</script>'


def _inline(code: str) -> str:
  """Returns code as it stands in a page, where its lines end in one way."""
  code = code.replace('\r\n', '\n').replace('\r', '\n')
  return re.sub('</(?=script)', '<\\\\/', code, flags=re.IGNORECASE)


def data(plain: Any, attributes: str) -> str:
  """Returns plain data for a script, as a part of a page."""
  text = json.dumps(plain, separators=(',', ':')).replace('<', '\\u003c')
  return f'<script type="application/json" {attributes}>{text}</script>'


def charts(
  title: str,
  caption: str,
  figures: Sequence[Mapping[str, Any]],
  is_folded: bool = False,
) -> list[str]:
  """Returns the parts of a section with figures for `charts.js`.

  Args:
    title: heading of the section.
    caption: what the figures show.
    figures: see `charts.js`.
    is_folded: whether to show them only on demand.
  """
  size = ' small' if any('small' in figure for figure in figures) else ''
  # Who reads a page without its scripts reads what a chart shows.
  parts = ''.join(
    data(figure, 'class="figure"')
    + f'<noscript>{paragraph(figure["alt"])}</noscript>'
    for figure in figures
  )
  if len(figures) > 1:
    parts = f'<div class="charts{size}">{parts}</div>'
  if is_folded:
    names = f'{len(figures)} charts' if len(figures) > 1 else 'Chart'
    parts = f'<details><summary>{names}</summary>{parts}</details>'
  return [heading(title), paragraph(caption), parts]


def shaded(
  head: Sequence[str],
  rows: Sequence[Sequence[str]],
  shades: Sequence[Sequence[float]],
) -> str:
  """Returns a table of numbers on a shade, from -1, red, to 1, blue.

  Args:
    head: [M + 1], names of the columns, the first of which has names.
    rows: [N, M + 1].
    shades: [N, M]; NaN for none.
  """

  def cell(text: str, shade: float) -> str:
    color = f'var(--team{int(shade < 0)})'
    share = round(55 * abs(shade)) if shade == shade else 0
    style = f'background:color-mix(in srgb,{color} {share}%,transparent)'
    return f'<td class="number" style="{style}">{html.escape(text)}</td>'

  body = ''.join(
    f'<tr><td>{html.escape(first)}</td>'
    + ''.join(map(cell, rest, line))
    + '</tr>\n'
    for (first, *rest), line in zip(rows, shades, strict=True)
  )
  return _wide(f'<table>\n{_line(head, "th")}{body}</table>')


def heading(text: str) -> str:
  """Returns the heading of a section, to which links may lead."""
  name = re.sub(r'\W+', '-', text.lower()).strip('-')
  return f'<h2 id="{name}">{html.escape(text)}</h2>'


def paragraph(text: str) -> str:
  """Returns a paragraph."""
  return f'<p>{html.escape(text)}</p>'


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
  return _wide(f'<table>\n{_line(head, "th")}{body}</table>')


def _wide(part: str) -> str:
  """Returns a part that scrolls where it is too wide, also by keys."""
  return f'<div class="wide" tabindex="0">{part}</div>'


def _line(cells: Sequence[str], tag: str) -> str:
  first, *rest = [html.escape(cell) for cell in cells]
  numbers = ''.join(f'<{tag} class="number">{cell}</{tag}>' for cell in rest)
  return f'<tr><{tag}>{first}</{tag}>{numbers}</tr>\n'


def number(value: float, digits: int | None = None) -> str:
  """Returns a number as text, by default with three significant digits."""
  return f'{value:.3g}' if digits is None else f'{value:,.{digits}f}'


def gif(content: bytes, caption: str, alt: str) -> str:
  """Returns an embedded GIF with a caption and a description."""
  data = base64.b64encode(content).decode('ascii')
  return (
    f'<figure><img alt="{html.escape(alt)}" class="pixels"'
    f' src="data:image/gif;base64,{data}">'
    f'<figcaption>{html.escape(caption)}</figcaption></figure>'
  )
