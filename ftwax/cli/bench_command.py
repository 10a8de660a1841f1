"""Lists the benchmarks of a clone, or runs one of them.

ftwax bench
ftwax bench acting
"""

import dataclasses
import pathlib
import subprocess
import sys

from ftwax.cli import commands, flags

_FOLDER = pathlib.Path(__file__).parents[2] / 'benchmarks'


@dataclasses.dataclass(frozen=True)
class Options:
  """Flags of `ftwax bench`."""

  benchmark: str | None = flags.argument(
    'Name of a benchmark; by default, all are listed.', default=None
  )
  flags: tuple[str, ...] = flags.argument(
    'Flags of the benchmark.', default=(), rest=True
  )


def run(options: Options) -> int:
  """Lists the benchmarks, or runs one as a script."""
  paths = _benchmarks()
  name = options.benchmark
  if name is None:
    width = max(map(len, paths))
    for name, path in paths.items():
      print(f'  {name:{width}}  {commands.first_line(path)}')
    return 0
  if name not in paths:
    raise ValueError(
      f'benchmark ({name!r}) must be listed by `ftwax'
      f' bench`{flags.suggest(name, paths)}'
    )
  command = [sys.executable, str(paths[name]), *options.flags]
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
