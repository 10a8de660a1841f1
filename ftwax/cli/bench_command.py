"""Lists the benchmarks of a clone, or runs one of them.

ftwax bench
ftwax bench acting
"""

import argparse
import pathlib
import subprocess
import sys

from ftwax.cli import commands, list_command

_FOLDER = pathlib.Path(__file__).parents[2] / 'benchmarks'


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the arguments: a benchmark and its flags."""
  parser.add_argument(
    'benchmark',
    nargs='?',
    help='name of a benchmark; by default, all are listed',
  )
  parser.add_argument(
    'flags', nargs=argparse.REMAINDER, help='flags of the benchmark'
  )


def run(arguments: argparse.Namespace) -> int:
  """Lists the benchmarks, or runs one as a script."""
  paths = _benchmarks()
  name = arguments.benchmark
  if name is None:
    width = max(map(len, paths))
    for name, path in paths.items():
      print(f'  {name:{width}}  {list_command.first_line(path)}')
    return 0
  if name not in paths:
    raise ValueError(
      f'benchmark ({name!r}) must be listed by `ftwax'
      f' bench`{commands.suggest(name, paths)}'
    )
  command = [sys.executable, str(paths[name]), *arguments.flags]
  return subprocess.run(command, check=False).returncode


def _benchmarks() -> dict[str, pathlib.Path]:
  """Returns the benchmark scripts by name, without their helper modules.

  Raises:
    ValueError: if there are none, for example if ftwax was installed from a
      wheel.
  """
  paths = {
    path.stem: path
    for path in sorted(_FOLDER.glob('*.py'))
    if "__name__ == '__main__'" in path.read_text('utf-8')
  }
  if not paths:
    raise ValueError(
      f'benchmarks ({_FOLDER}) must exist, as in a clone of the repository; run'
      ' this command from a clone.'
    )
  return paths
