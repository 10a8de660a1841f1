"""Memory and file descriptors of an undisturbed run.

Run as `python benchmarks/soak.py --runtime=device --seconds=1800`; by default
the run is distributed. Prints a row for each process, and exits with status 1
if the memory of a process grows by 1 MB per minute or more, or if it opens
files without closing them. Saving a checkpoint opens some files temporarily, so
only the median must not grow. Each save retains some memory, so the result
depends on the period of saves, which is longer in normal runs.

`--num_learners 1 2` makes a run with each number and prints their speeds.
"""

import argparse
import os
import pathlib
import re
import tempfile
import time
from typing import NamedTuple

import common
import distributed_run
import numpy as np
import psutil

_MAX_SLOPE_MB = 1.0


class Sample(NamedTuple):
  """Measurements of a node at one time, in seconds of `time.monotonic()`."""

  time: float
  pid: int
  megabytes: float
  num_files: int
  num_threads: int


def soak(run: distributed_run.Run, seconds: float) -> bool:
  """Samples each process; evaluates the last two thirds of the samples."""
  samples: dict[str, list[Sample]] = {}
  start = time.monotonic()
  before = run.log('train').last
  while time.monotonic() < start + seconds:
    watched = {'runner': psutil.Process(run.pid), **run.nodes()}
    for name, process in watched.items():
      samples.setdefault(name, []).append(_sample(process))
    time.sleep(min(seconds / 100, 5.0))
  rows, good = [], True
  for name, taken in sorted(samples.items()):
    late = taken[len(taken) // 3 :]
    minutes = np.array([sample.time for sample in late]) / 60
    slope = np.polyfit(minutes, [sample.megabytes for sample in late], 1)[0]
    files = [sample.num_files for sample in late]
    half = len(files) // 2
    good &= slope < _MAX_SLOPE_MB
    good &= np.median(files[half:]) <= np.median(files[:half])
    good &= len({sample.pid for sample in late}) == 1
    rows.append(
      (
        name,
        f'{late[-1].megabytes:.0f}',
        f'{slope:+.2f}',
        f'{np.median(files):.0f} ({min(files)}..{max(files)})',
        late[-1].num_threads,
      )
    )
  common.print_table(
    f'{seconds:.0f} s with catch, of which the last two thirds count',
    ('process', 'MB', 'MB/min', 'files', 'threads'),
    rows,
  )
  after = run.log('train').last
  steps, updates = (
    (after[name] - before[name]) / (after['seconds'] - before['seconds'])
    for name in ('actor_steps', 'learner_steps')
  )
  print(
    f'{steps:,.0f} steps/s, {updates:.1f} updates/s;'
    f' load {os.getloadavg()[0]:.1f}'
  )
  return bool(good)


def _sample(process: psutil.Process) -> Sample:
  return Sample(
    time.monotonic(),
    process.pid,
    _anonymous_bytes(process.pid) / 2**20,
    process.num_fds(),
    process.num_threads(),
  )


def _anonymous_bytes(pid: int) -> int:
  """Returns the resident anonymous memory of a process, in bytes.

  Excludes the pages of libraries: the kernel counts them as private to a
  process once the other processes that map them have exited.
  """
  status = pathlib.Path(f'/proc/{pid}/status').read_text()
  (kilobytes,) = re.findall(r'^RssAnon:\s+(\d+) kB$', status, re.MULTILINE)
  return 1024 * int(kilobytes)


def main() -> None:
  """Makes the runs."""
  parser = argparse.ArgumentParser(description=__doc__.partition('\n')[0])
  parser.add_argument('--seconds', type=float, default=1800.0)
  parser.add_argument('--num_actors', type=int, default=2)
  parser.add_argument('--num_learners', type=int, nargs='+', default=[1])
  parser.add_argument('--runtime', default='distributed')
  parser.add_argument('--save_every_seconds', type=float, default=30.0)
  arguments = parser.parse_args()
  good = True
  for num_learners in arguments.num_learners:
    with tempfile.TemporaryDirectory() as directory:
      run = distributed_run.Run(
        pathlib.Path(directory) / 'run',
        num_actors=arguments.num_actors,
        num_learners=num_learners,
        runtime=arguments.runtime,
        save_every_seconds=arguments.save_every_seconds,
      )
      try:
        run.wait_for_rows('learner', 5)
        good &= soak(run, arguments.seconds)
      finally:
        good &= run.stop_and_report()
  raise SystemExit(0 if good else 1)


if __name__ == '__main__':
  main()
