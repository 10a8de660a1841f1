"""What the documentation site generates from the code.

Three things in a page are replaced when it is built:

- `::public NAME` by the reference of all public names of a module, each behind
  its first sentence;
- `::defaults AGENT` by tables of the agent's hyperparameters and options;
- equations, fenced as `math` or inline as GitHub has them, by MathML, which
  browsers render without a script.

`search_words.yml` has what users of other libraries call the subject of a page.
These words are in the search index, and not on the page.

Pages with a notebook beside them show its outputs and link to it. The pages of
`play` get the shipped populations and the script that draws games.
"""

import dataclasses
import functools
import html
import inspect
import math
import pathlib
import re
import runpy
from typing import Any

import griffe
import nbconvert
import yaml
from latex2mathml import converter

from ftwax import hyperparameters, parts
from ftwax.agents import named

_PUBLIC = re.compile(r'^::public (\S+)$', re.MULTILINE)
_DEFAULTS = re.compile(r'^::defaults (\S+)$', re.MULTILINE)
_MATH_BLOCK = re.compile(r'^```math\n(.*?)^```$', re.DOTALL | re.MULTILINE)
_MATH_SPAN = re.compile(r'\$`([^`]+)`\$')
# Leaves images in the text, as data.
_EXPORTER = nbconvert.MarkdownExporter(
  config={'ExtractOutputPreprocessor': {'enabled': False}}
)
_ATTRIBUTES = re.compile(r'^Attributes:\n(.*?)(?=^\S|\Z)', re.DOTALL | re.M)
_ATTRIBUTE = re.compile(r'^  (\w+): (.*?)(?=^  \w+: |\Z)', re.DOTALL | re.M)


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
  """Replaces the marks of a page; MkDocs calls it."""
  notebook = pathlib.Path(page.file.abs_src_path).with_suffix('.ipynb')
  if notebook.exists():
    markdown, _ = _EXPORTER.from_filename(notebook)
    markdown = markdown.strip().replace('![png]', '![figure]')
    title, _, rest = markdown.partition('\n')
    link = f'[As a notebook]({notebook.name}){{ download }}'
    markdown = f'{title}\n\n{link}\n{rest}'
  markdown = _PUBLIC.sub(lambda match: _reference(match[1]), markdown)
  markdown = _DEFAULTS.sub(lambda match: _defaults(match[1]), markdown)
  markdown = _MATH_BLOCK.sub(
    lambda match: f'<div tabindex="0">{_to_mathml(match[1], "block")}</div>',
    markdown,
  )
  # Markdown takes a line that begins with `<math` for a block of its own.
  markdown = _MATH_SPAN.sub(
    lambda match: f'<span>{_to_mathml(match[1], "inline")}</span>', markdown
  )
  words = _search_words().get(page.file.src_uri)
  if words:  # Before the reference, which has every word.
    page.meta.setdefault('search', {'boost': 4})
  return _with_search_words(markdown, words)


@functools.cache
def _search_words() -> dict[str, str]:
  """Returns the words of each page that has some."""
  path = pathlib.Path(__file__).with_name('search_words.yml')
  words: dict[str, str] = yaml.safe_load(path.read_text('utf-8'))
  return words


def _with_search_words(markdown: str, words: str | None) -> str:
  """Adds words below the title that the search finds and nobody sees."""
  if not words:
    return markdown
  title, _, rest = markdown.lstrip().partition('\n')
  return f'{title}\n\n<p hidden>{html.escape(words)}</p>\n{rest}'


def on_post_build(config: Any, **_: Any) -> None:
  """Adds to the page of the game what it takes from the library."""
  program = str(pathlib.Path(__file__).parent / 'play/make_data.py')
  runpy.run_path(program)['complete'](pathlib.Path(config['site_dir']) / 'play')


def _to_mathml(latex: str, display: str) -> str:
  return converter.convert(' '.join(latex.split()), display=display)


def _reference(module_name: str) -> str:
  """Returns a directive of mkdocstrings for each public name of a module.

  What users call stands before what it returns.

  Raises:
    ValueError: a name has no docstring.
  """
  module = _load_package()[module_name.removeprefix('ftwax.')]
  names = module.exports or [
    name
    for name, member in module.members.items()
    if member.is_public and member.has_docstring and not member.is_alias
  ]
  parts = []
  for name in sorted(names, key=lambda name: _rank(module[name])):
    full_name = f'{module_name}.{name}'
    if not module[name].has_docstring:
      raise ValueError(
        f'{full_name}, a public name, must have a docstring; write one.'
      )
    summary, *_ = module[name].docstring.value.partition('\n')
    title = f'`{name}`: {summary}'.replace('"', "'")
    parts.append(f'??? api "{title}"\n\n    ::: {full_name}')
  return '\n\n'.join(parts)


def _rank(member: Any) -> int:
  """Returns the place of a name: functions, classes, then types of data."""
  if member.is_module:
    return 3
  if not member.is_class:
    return 0 if member.is_function else 2
  bases = {str(base).rpartition('.')[-1] for base in member.bases}
  return 2 if bases & {'NamedTuple', 'Protocol'} else 1


@functools.cache
def _load_package() -> griffe.Module:
  """Reads the library without importing it: Reverb needs Python 3.10."""
  return griffe.load('ftwax', resolve_aliases=True)


def _defaults(agent_name: str) -> str:
  """Returns tables of the hyperparameters and the options of an agent."""
  config = named.AGENTS[agent_name]()
  collected = parts.collect(config)
  priors = [(path, _format(one.prior)) for path, one in collected.items()]
  options = [
    (field.name, _format(getattr(config, field.name)))
    for field in dataclasses.fields(config)
    if field.name not in parts.hyperparameters_of(type(config))
  ]
  told = {path: _describe_path(config, path) for path in collected}
  return '\n\n'.join(
    [
      'Hyperparameters, which a population may change:',
      _table(priors, told),
      'Options:',
      _table(options, _describe(type(config))),
    ]
  )


def _format(value: Any) -> str:
  if isinstance(value, hyperparameters.Constant):
    return f'`{value.value:g}`'
  if isinstance(value, hyperparameters.Initial):
    low, high = value.bounds
    return f'`{value.value:g}`, evolves in `[{low:g}, {high:g}]`'
  if isinstance(value, float) and math.isfinite(value):
    return f'`{value:g}`'
  return f'`{value!r}`'


def _describe_path(config: Any, path: str) -> str:
  """Returns what the docstring of the part that owns a field says of it."""
  owner, _, name = path.rpartition('.')
  part = parts.read(config, owner) if owner else config
  return _describe(type(part)).get(name, '')


def _describe(cls: type) -> dict[str, str]:
  """Returns what the docstrings of a class and its bases say of fields."""
  texts: dict[str, str] = {}
  for base in reversed(cls.__mro__):
    section = _ATTRIBUTES.search(inspect.cleandoc(base.__doc__ or ''))
    if section:
      texts |= {
        name: ' '.join(text.split())
        for name, text in _ATTRIBUTE.findall(section[1])
      }
  return texts


def _table(rows: list[tuple[str, str]], texts: dict[str, str]) -> str:
  lines = ['| name | default | what it is |', '| --- | --- | --- |']
  for name, value in rows:
    text = texts.get(name, '').replace('|', '\\|')
    lines.append(f'| `{name}` | {value} | {text} |')
  return '\n'.join(lines)
