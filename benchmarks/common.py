"""Shared by benchmarks: times calls, prints tables, trains, runs rivals."""

import collections
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

_RIVALS = pathlib.Path(__file__).parent / 'rivals'
_EXPERIMENTS = pathlib.Path(__file__).parents[1] / 'experiments'

_NUM_RESAMPLES = 10_000

# Variable of the environment with a file to which tables are added, for all.py.
TABLES_FILE = 'FTWAX_TABLES_FILE'


class Measurement(NamedTuple):
  """Seconds per call, over many calls."""

  median: float
  minimum: float
  maximum: float


def measure(
  call: Callable[[], Any],
  *,
  seconds: float,
  warmup: int = 3,
  clock: Callable[[], float] = time.perf_counter,
) -> Measurement:
  """Times `call` repeatedly for `seconds`, after `warmup` calls.

  Args:
    call: what to time, to its end.
    seconds: duration of the measurement.
    warmup: number of calls before it.
    clock: `time.process_time` for times of the processor, which other work on
      the machine changes little.
  """
  for _ in range(warmup):
    call()
  times = []
  end = time.perf_counter() + seconds
  while not times or time.perf_counter() < end:
    before = clock()
    call()
    times.append(clock() - before)
  return Measurement(statistics.median(times), min(times), max(times))


def machine() -> str:
  """Describes the machine on which the figures were measured."""
  return (
    f'{len(os.sched_getaffinity(0))} of {os.cpu_count()} cores,'
    f' {jax.devices()[0].device_kind}, Python {platform.python_version()},'
    f' jax {jax.__version__}'
  )


def machine_line() -> str:
  """Describes the machine and its load."""
  return f'{machine()}, load {os.getloadavg()[0]:.1f}'


def print_table(
  title: str, header: Sequence[str], rows: Sequence[Sequence[Any]]
) -> None:
  """Prints aligned columns, and adds them to `TABLES_FILE`, if it is set."""
  cells = [list(header), *[[str(cell) for cell in row] for row in rows]]
  widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
  print(f'\n{title}')
  for row in cells:
    pairs = zip(row, widths, strict=True)
    print('  '.join(cell.rjust(width) for cell, width in pairs))
  if path := os.environ.get(TABLES_FILE):
    with open(path, 'a', encoding='utf-8') as file:
      table = {'title': title, 'header': cells[0], 'rows': cells[1:]}
      file.write(json.dumps(table) + '\n')


def interval(values: Sequence[float] | Any) -> tuple[float, float]:
  """Returns the central 95% of bootstrapped means of values [n]."""
  rng = np.random.default_rng(0)
  values = np.asarray(values)
  draws = rng.choice(values, (_NUM_RESAMPLES, len(values)))
  low, high = np.percentile(draws.mean(axis=1), [2.5, 97.5])
  return float(low), float(high)


def summarize(values: Sequence[float] | Any) -> str:
  """Returns a mean and its interval, as text."""
  low, high = interval(values)
  return f'{np.mean(values):.2f} ({low:.2f} to {high:.2f})'


def commit() -> str:
  """Returns the commit of the clone, whose code must be as committed."""
  status = _git('status', '--porcelain', '--', 'ftwax', 'benchmarks/*.py')
  if status:
    raise SystemExit(
      f'The clone ({status}) must be as committed, since the commit is'
      ' recorded; commit the changes.'
    )
  return _git('rev-parse', '--short', 'HEAD')


def _git(*arguments: str) -> str:
  return subprocess.run(
    ['git', *arguments],
    cwd=pathlib.Path(__file__).parent.parent,
    capture_output=True,
    text=True,
    check=True,
  ).stdout.strip()


def run_rival(script: str, *arguments: str, **settings: str) -> dict[str, Any]:
  """Runs `rivals/<script>` in its own environment.

  Args:
    script: name of a script that lists its dependencies at the top and prints
      JSON as its last line.
    *arguments: its arguments.
    **settings: variables of its environment.

  Returns:
    The contents of the last line.
  """
  # The rival must not inherit our JAX settings and paths.
  prefixes = ('JAX_', 'XLA_', 'PYTHONPATH', 'VIRTUAL_ENV')
  environment = {
    name: value
    for name, value in os.environ.items()
    if not name.startswith(prefixes)
  }
  command = [os.environ.get('UV', 'uv'), 'run', '--script']
  command += [str(_RIVALS / script), *arguments]
  result = subprocess.run(
    command,
    env={**environment, **settings},
    stdout=subprocess.PIPE,
    text=True,
    check=True,
  )
  return json.loads(result.stdout.strip().splitlines()[-1])


def train_flag(run_dir: pathlib.Path, *options: str) -> None:
  """Trains the main experiment on one core, or goes on where it stopped.

  Args:
    run_dir: directory of the run; a finished one is left as it is.
    *options: flags of `experiments/capture_the_flag.py`.
  """
  if (run_dir / 'tournament.json').exists():
    return
  begun = (run_dir / 'config.json').exists()
  command = [
    sys.executable,
    str(_EXPERIMENTS / 'capture_the_flag.py'),
    '--num_devices=1',
    f'--run_dir={run_dir}',
    *options,
    *(['--resume'] if begun else []),
  ]
  subprocess.run(command, check=True)


class Clock:
  """Sums the seconds spent in each part of a program."""

  def __init__(self):
    self.seconds: collections.Counter = collections.Counter()

  def wrap(self, owner: Any, method: str, part: str) -> None:
    """Counts the time of each `owner.method` call as part of `part`."""
    inner = getattr(owner, method)

    def timed(*args, **kwargs):
      before = time.perf_counter()
      result = inner(*args, **kwargs)
      self.seconds[part] += time.perf_counter() - before
      return result

    setattr(owner, method, timed)
