"""Sizes of functions, circles and names; `tests/sizes.py` prints sizes."""

import ast
import collections
import functools
import pathlib
import re

import pytest
import sizes

ROOT = pathlib.Path(__file__).parents[1]
PACKAGE = ROOT / 'ftwax'
FILES = sorted(PACKAGE.rglob('*.py'))
MAX_BODY_LINES = 60
MAX_ARGUMENTS = 8


@functools.cache
def _nodes(path):
  return list(ast.walk(ast.parse(path.read_text('utf-8'))))


def _functions(path):
  for node in _nodes(path):
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
      yield node


def _body_lines(function):
  body = function.body
  if ast.get_docstring(function) is not None:
    body = body[1:]
  return body[-1].end_lineno - body[0].lineno + 1 if body else 0


def _num_arguments(function):
  arguments = function.args
  names = [
    argument.arg
    for argument in (
      *arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs
    )
  ]  # fmt: skip
  return len([name for name in names if name not in ('self', 'cls')])


@pytest.mark.parametrize(
  'path', FILES, ids=lambda path: str(path.relative_to(PACKAGE))
)
def test_functions_are_short(path):
  for function in _functions(path):
    assert _body_lines(function) <= MAX_BODY_LINES, function.name
    assert _num_arguments(function) <= MAX_ARGUMENTS, function.name


@functools.cache
def _trees():
  files = sorted((ROOT / 'ftwax').rglob('*.py'))
  return {path: ast.parse(path.read_text('utf-8')) for path in files}


def test_no_file_is_in_an_import_circle():
  assert not sizes.find_circles(sizes.find_imports(ROOT, _trees()))


def test_no_room_names_a_room_above():
  assert not sizes.find_arrows_up(ROOT, _trees())


def test_no_class_of_an_agent_has_the_name_of_another():
  """A part stands beside what it makes, which has no public name."""
  homes = collections.defaultdict(list)
  for room in ('agents', 'losses', 'networks'):
    for path in sorted((ROOT / 'ftwax' / room).rglob('*.py')):
      for node in ast.walk(ast.parse(path.read_text('utf-8'))):
        if isinstance(node, ast.ClassDef) and not node.name.startswith('_'):
          homes[node.name].append(path.name)
  assert homes['LSTM'] == ['recurrent_cores.py']
  assert not {name: paths for name, paths in homes.items() if len(paths) > 1}


_CLASS_OF_A_PART = re.compile(
  r'isinstance\([^)]*\b(cores|core_parts|torsos|tasks(_lib)?|optimization)'
  r'\.[A-Z]'
)


def test_nobody_asks_what_class_a_part_of_an_agent_is():
  """What others need to know of a part is a method of it."""
  assert _CLASS_OF_A_PART.search('isinstance(core, cores.RPTH)')
  asks = [
    path.name
    for path in sorted((ROOT / 'ftwax').rglob('*.py'))
    if _CLASS_OF_A_PART.search(path.read_text('utf-8'))
  ]
  assert not asks
