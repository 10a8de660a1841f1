"""Lists experiments, tasks with settings, agents and environments."""

import ast
import dataclasses
import pathlib
from collections.abc import Iterator

from ftwax.cli import commands, flags, tasks

_PACKAGE = pathlib.Path(__file__).parents[1]

# Public modules that are no agents, or no tasks.
_PARTS = (
  'acme',
  'adapting',
  'functional',
  'game_pages',
  'games',
  'named',
  'vector',
)


_KINDS = ('experiments', 'tasks', 'agents', 'environments')


@dataclasses.dataclass(frozen=True)
class Options:
  """Flags of `ftwax list`."""

  kind: str | None = flags.argument(
    'What to list; by default everything.', None, _KINDS
  )


def run(options: Options) -> int:
  """Prints the lists."""
  for kind in [options.kind] if options.kind else _KINDS:
    if kind == 'tasks':
      lines = {name: _flags(name) for name in tasks.TASKS}
    else:
      lines = {
        path.name.removesuffix('.py'): commands.first_line(path)
        for path in _modules(_PACKAGE / kind)
      }
    width = max(map(len, lines))
    print(f'{kind}:')
    for name, line in lines.items():
      print(f'  {name:{width}}  {line}')
    print()
  return 0


def _flags(task: str) -> str:
  values = tasks.find(task).flags or tasks.CONTINUOUS.flags
  return ' '.join(f'--{name}={value}' for name, value in values.items())


def _modules(package: pathlib.Path) -> Iterator[pathlib.Path]:
  """Yields the public modules of a package.

  Those are the modules in its `__all__`, if it has any, and adapters, which
  need not be there, as importing one imports its library.
  """
  names = sorted(path.stem for path in package.glob('[a-z]*.py'))
  adapters = {path.stem for path in package.glob('*_adapter*.py')}
  tree = ast.parse((package / '__init__.py').read_text('utf-8'))
  for node in tree.body:
    if (
      isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == '__all__'
    ):
      names = sorted({*ast.literal_eval(node.value), *adapters})
  for name in names:
    path = package / name
    path = path if path.is_dir() else path.with_suffix('.py')
    if name not in _PARTS and path.exists():
      yield path
