"""Names in docstrings and comments that look like ours exist."""

import ast
import collections
import functools
import pathlib
import re

import pytest

import ftwax

ROOT = pathlib.Path(__file__).parents[2]
FILES = sorted((ROOT / 'ftwax').rglob('*.py'))

_SPAN = re.compile(r'`([A-Za-z_][\w.]*\w)(?:\([^`]*\))?`')
_CONSTANT = re.compile(r'[A-Z][A-Z0-9_]{2,}')
_ENDINGS = {'html', 'js', 'json', 'jsonl'}
_OTHERS = {
  'DISABLED',  # A mode of Gymnasium.
  'JAX_COMPILATION_CACHE_DIR',
  'acme',  # DeepMind's.
  'experiment',  # An argument of other functions.
  'ftwax.games',  # In JavaScript.
  'tasks.pixel_control.cost',  # A path of `parts.collect`.
}


@functools.cache
def _nodes(path):
  return list(ast.walk(ast.parse(path.read_text('utf-8'))))


def _bound(node):
  """Returns the names that a statement binds in its module or class."""
  if isinstance(node, ast.ClassDef | ast.FunctionDef):
    return {node.name}
  if isinstance(node, ast.Import | ast.ImportFrom):
    return {alias.asname or alias.name for alias in node.names}
  stored = (n for n in ast.walk(node) if isinstance(n, ast.Name))
  return {each.id for each in stored if isinstance(each.ctx, ast.Store)}


@functools.cache
def _modules():
  """Returns the names in each module, of all modules with the same name."""
  modules = collections.defaultdict(set)
  for path in FILES:
    is_package = path.stem == '__init__'
    inside = modules[path.parent.name if is_package else path.stem]
    for node in _nodes(path)[0].body:
      inside |= _bound(node)
    if is_package:
      inside |= {each.stem for each in path.parent.iterdir()}
  modules['ftwax'] |= set(ftwax.__all__)
  return modules


@functools.cache
def _capitals():
  """Returns the names in capitals that occur in code."""
  nodes = [node for path in FILES for node in _nodes(path)]
  names = {
    str(getattr(node, field, ''))
    for node in nodes
    for field in ('id', 'attr', 'value')
  }
  return {name for name in names if _CONSTANT.fullmatch(name)}


def _prose(path):
  """Returns docstrings and comments of a file."""
  documented = ast.Module | ast.ClassDef | ast.FunctionDef
  documents = [
    ast.get_docstring(node) or ''
    for node in _nodes(path)
    if isinstance(node, documented)
  ]
  comments = re.findall(r'^ *# (.*)', path.read_text('utf-8'), re.M)
  return '\n'.join([*documents, *comments])


def _unknown(text, variables=()):
  """Returns the names in code font that look like ours and do not exist."""
  modules, unknown = _modules(), []
  for name in _SPAN.findall(text):
    first, *rest = name.split('.')
    if {first, name} & _OTHERS or first in variables:
      continue
    if _CONSTANT.fullmatch(name) and name not in _capitals():
      unknown.append(name)
    if rest and first in modules and rest[-1] not in _ENDINGS:
      unknown += [] if rest[0] in modules[first] else [name]
  return unknown


@pytest.mark.parametrize(
  'path', FILES, ids=lambda path: str(path.relative_to(ROOT))
)
def test_names_in_docstrings_exist(path):
  arguments = {node.arg for node in _nodes(path) if isinstance(node, ast.arg)}
  assert not _unknown(_prose(path), arguments)


def test_names_that_do_not_exist_are_found():
  text = 'As in `losses.vtrace`, `cores.MAKERS`, `MAKERS` and `cores.NAMED`.'
  assert _unknown(text) == ['cores.MAKERS', 'MAKERS']
