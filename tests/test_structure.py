"""Sizes of functions; `tests/sizes.py` prints those of the library."""

import ast
import functools
import pathlib

import pytest

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
