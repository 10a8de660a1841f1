"""Lists experiments, agents and environments, one per line."""

import argparse
import ast
import pathlib

from ftwax.cli import experiment_files

_PACKAGE = pathlib.Path(__file__).parents[1]

# Modules of `ftwax.environments` that are not tasks.
_INTERFACES = ('functional', 'game_pages', 'games', 'vector')


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the argument: the kind of things to list."""
  parser.add_argument(
    'kind',
    nargs='?',
    choices=_LISTS,
    help='what to list; by default everything',
  )


def run(arguments: argparse.Namespace) -> int:
  """Prints the lists."""
  for kind in [arguments.kind] if arguments.kind else _LISTS:
    lines = _LISTS[kind]()
    width = max(map(len, lines))
    print(f'{kind}:')
    for name, line in lines.items():
      print(f'  {name:{width}}  {line}')
    print()
  return 0


def first_line(path: pathlib.Path) -> str:
  """Returns the first line of a module's docstring, without importing it."""
  tree = ast.parse(path.read_text('utf-8'))
  return (ast.get_docstring(tree) or '').partition('\n')[0]


def _experiments() -> dict[str, str]:
  return {
    name: first_line(path) for name, path in experiment_files.named().items()
  }


def _agents() -> dict[str, str]:
  from ftwax.agents import named

  return {
    name: _module_line(_PACKAGE / 'agents' / name) for name in named.AGENTS
  }


def _environments() -> dict[str, str]:
  from ftwax import environments

  return {
    name: _module_line(_PACKAGE / 'environments' / name)
    for name in environments.__all__
    if name.islower() and name not in _INTERFACES
  }


def _module_line(path: pathlib.Path) -> str:
  package = path / '__init__.py'
  return first_line(package if package.exists() else path.with_suffix('.py'))


_LISTS = {
  'experiments': _experiments,
  'agents': _agents,
  'environments': _environments,
}
