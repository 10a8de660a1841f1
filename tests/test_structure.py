"""Sizes of files and functions, and names of files."""

import ast
import collections
import pathlib

import pytest

PACKAGE = pathlib.Path(__file__).parents[1] / 'ftwax'
FILES = sorted(PACKAGE.rglob('*.py'))

MAX_FILE_LINES = 400
MAX_BODY_LINES = 60
MAX_ARGUMENTS = 8


def _functions(path):
  for node in ast.walk(ast.parse(path.read_text('utf-8'))):
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


def test_no_two_files_have_the_same_name():
  # Experiments have the names of their tasks; nobody imports them.
  names = collections.Counter(
    path.stem
    for path in FILES
    if path.name != '__init__.py' and path.parent.name != 'experiments'
  )
  assert names
  assert [name for name, count in names.items() if count > 1] == []


@pytest.mark.parametrize(
  'path', FILES, ids=lambda path: str(path.relative_to(PACKAGE))
)
def test_files_and_functions_are_short(path):
  assert len(path.read_text('utf-8').splitlines()) <= MAX_FILE_LINES
  for function in _functions(path):
    assert _body_lines(function) <= MAX_BODY_LINES, function.name
    assert _num_arguments(function) <= MAX_ARGUMENTS, function.name
