"""Prints what the library has grown to, beside an earlier commit.

    uv run python tests/sizes.py [COMMIT]

Nobody has to keep these numbers: they are for reading. Without COMMIT, today's
checkout is compared with the newest commit that is four hours older than its
last one.
"""

import ast
import pathlib
import subprocess
import sys
import tarfile
import tempfile

import test_imports

ROOT = pathlib.Path(__file__).parents[1]


def measure(root):
  """Returns the numbers of a checkout by their names."""
  files = sorted((root / 'ftwax').rglob('*.py'))
  trees = {path: ast.parse(path.read_text('utf-8')) for path in files}
  imports = find_imports(root, trees)
  circles = find_circles(imports)
  laboratory = [
    path
    for folder in ('benchmarks', 'research')
    for path in (root / folder).rglob('*.py')
  ]
  return {
    'lines of the library': sum(map(_num_lines, files)),
    'its statements': sum(map(_num_statements, trees.values())),
    'lines of tests': sum(map(_num_lines, (root / 'tests').rglob('*.py'))),
    'lines of benchmarks and research': sum(map(_num_lines, laboratory)),
    'import circles': len(circles),
    'files in them': sum(map(len, circles)),
    'imports of a room above': len(find_arrows_up(root, trees)),
    'words of the manual': sum(
      len(path.read_text('utf-8').split())
      for path in (root / 'docs').rglob('*.md')
    ),
  }


def find_imports(root, trees):
  """Returns the files of the library that each of them imports.

  Imports in functions and for annotations count, too.
  """
  imports = {}
  for path, tree in trees.items():
    targets = set()
    for name in _imported_names(tree):
      base = root / name.replace('.', '/')
      for target in (base.with_suffix('.py'), base / '__init__.py'):
        if target in trees:
          targets.add(target)
    imports[path] = targets - {path}
  return imports


def find_circles(imports):
  """Returns the strongly connected components of several files."""
  reached = {path: _reach(path, imports) for path in imports}
  circles = {
    frozenset(other for other in reached[path] if path in reached[other])
    for path in imports
  }
  return [circle for circle in circles if len(circle) > 1]


def find_arrows_up(root, trees):
  """Returns pairs of a file and a name of a room that it may not import."""
  arrows = []
  for path, tree in trees.items():
    room = path.relative_to(root / 'ftwax').parts[0]
    allowed = test_imports.MAY_IMPORT.get(room, set()) | test_imports.SHARED
    strings = (
      node.value
      for node in ast.walk(tree)
      if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )
    # Modules that are imported by their names in strings count, too, but for
    # the registry's, which records name.
    named = (
      string
      for string in strings
      if string.startswith('ftwax.')
      and room != 'registry.py'
      and (root / string.replace('.', '/')).with_suffix('.py').exists()
    )
    for name in {*_imported_names(tree), *named}:
      package, *rest = name.split('.')
      if package == 'ftwax' and rest:
        if rest[0] not in allowed | {room.removesuffix('.py')}:
          arrows.append((path, name))
  return arrows


def _imported_names(tree):
  for node in ast.walk(tree):
    if isinstance(node, ast.Import):
      yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.module:
      yield from (f'{node.module}.{alias.name}' for alias in node.names)


def _reach(path, imports):
  reached, waiting = set(), [path]
  while waiting:
    for target in imports[waiting.pop()]:
      if target not in reached:
        reached.add(target)
        waiting.append(target)
  return reached


def _num_lines(path):
  return len(path.read_text('utf-8').splitlines())


def _num_statements(tree):
  return sum(
    isinstance(node, ast.stmt)
    and not (
      isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    )
    for node in ast.walk(tree)
  )


def _git(*arguments):
  return subprocess.check_output(['git', '-C', str(ROOT), *arguments])


def _earlier_commit():
  newest = int(_git('log', '-1', '--format=%ct'))
  before = f'--before={newest - 4 * 3600}'
  return _git('rev-list', '-1', before, 'HEAD').decode().strip()


def main(arguments):
  """Prints a table of today's numbers and those of a commit."""
  now = measure(ROOT)
  try:
    commit = arguments[0] if arguments else _earlier_commit()
    with tempfile.TemporaryDirectory() as folder:
      archive = pathlib.Path(folder, 'files.tar')
      archive.write_bytes(_git('archive', commit or 'HEAD'))
      with tarfile.open(archive) as tar:
        tar.extractall(folder, filter='data')
      then = measure(pathlib.Path(folder))
  except (OSError, subprocess.CalledProcessError):
    then = {}  # No repository, or a shallow clone.
  print(f'{"":34}{"now":>9}{f"at {commit[:8]}" if then else "":>14}')
  for name, number in now.items():
    before = f'{then[name]:14,}' if then else ''
    print(f'{name:34}{number:9,}{before}')


if __name__ == '__main__':
  main(sys.argv[1:])
