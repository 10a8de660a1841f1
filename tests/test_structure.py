"""Sizes of rooms and functions."""

import ast
import collections
import functools
import pathlib

import pytest

PACKAGE = pathlib.Path(__file__).parents[1] / 'ftwax'
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


# Most lines of a room, docstrings included, and most statements, docstrings
# excluded. A larger number needs a line in the changelog. A path belongs to the
# longest prefix that it starts with.
BUDGETS = {
  '': (2_080, 735),
  'agents': (4_470, 1_505),
  'cli': (2_090, 945),
  'environments': (8_645, 3_355),
  'experiments': (2_930, 1_100),
  'losses': (1_170, 295),
  'networks': (6_730, 2_350),
  'population': (3_600, 1_240),
  'records': (2_870, 1_250),
  'replay': (6_080, 2_115),
  'reporting': (2_900, 1_245),
  'runtime': (9_410, 3_715),
  'runtime/distributed': (2_830, 1_275),
  'web': (1_410, 725),
}


def _num_lines(path):
  return len(path.read_text('utf-8').splitlines())


def _num_statements(path):
  return sum(
    isinstance(node, ast.stmt)
    and not (
      isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    )
    for node in _nodes(path)
  )


def _room(path):
  folder = path.parent.relative_to(PACKAGE)
  names = [str(part) for part in (folder, *folder.parents)]
  return next((name for name in names if name in BUDGETS), '')


@pytest.mark.parametrize(
  ('measure', 'index'),
  [(_num_lines, 0), (_num_statements, 1)],
  ids=['lines', 'statements'],
)
def test_rooms_stay_within_their_budgets(measure, index):
  sizes = collections.Counter()
  for path in FILES:
    sizes[_room(path)] += measure(path)
  assert set(sizes) == set(BUDGETS)
  assert {
    room: size for room, size in sizes.items() if size > BUDGETS[room][index]
  } == {}


@pytest.mark.parametrize(
  'path', FILES, ids=lambda path: str(path.relative_to(PACKAGE))
)
def test_functions_are_short(path):
  for function in _functions(path):
    assert _body_lines(function) <= MAX_BODY_LINES, function.name
    assert _num_arguments(function) <= MAX_ARGUMENTS, function.name
