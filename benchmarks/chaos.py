"""Kills nodes of a distributed run, and tells how it went on.

Run as `python benchmarks/chaos.py actors`, or with another scenario:

    actors   a random one of 4 is killed every 10 s for 2 minutes
    learner  the learner is killed once, while actors act
    replay   the replay server is killed once
    counter  the counter is killed once
    pause    the learner is stopped for a minute: actors wait, none grows
    soak     nothing is killed: memory and file descriptors of each node

Each prints its numbers and ends with status 1 if a promise is broken.
"""

import argparse
import collections
import functools
import json
import os
import pathlib
import random
import signal
import sys
import tempfile
import threading
import time
from typing import NamedTuple

import numpy as np
import psutil

from ftwax.agents import impala
from ftwax.environments import bsuite_adapter
from ftwax.runtime import checkpoints, distributed, experiment, loggers
from ftwax.runtime.distributed import processes

SCENARIOS = ('actors', 'learner', 'replay', 'counter', 'pause', 'soak')

# What is promised.
_MAX_STALL_S = 15.0
_MAX_RETURN_S = 10.0
_MAX_GROWTH_MB = 50.0
_MAX_SLOPE_MB = 1.0

_GIVE_UP_S = 120.0

# Processes in waiting are up before the first kill.
_STANDBYS_START_S = 30.0

# What was reported is read from the log so long after, at the most.
_LOG_DELAY_S = 0.5


class Sample(NamedTuple):
  """A node at a time."""

  time: float
  pid: int
  megabytes: float
  num_files: int
  num_threads: int


def build_experiment(num_environments: int) -> experiment.ExperimentConfig:
  """Returns catch without an end."""
  config = impala.IMPALAConfig()
  return experiment.ExperimentConfig(
    name='chaos',
    builder=impala.make_builder(config),
    network_factory=functools.partial(impala.make_network, config=config),
    environment_factory=functools.partial(bsuite_adapter.make, 'catch/0'),
    max_num_actor_steps=10**9,
    num_environments=num_environments,
    checkpointing=checkpoints.CheckpointingConfig(save_every_seconds=5.0),
  )


class Log:
  """A log that grows, of which only what is new is read."""

  def __init__(self, path: pathlib.Path):
    """Reads nothing yet."""
    self._path = path
    self._offset = 0
    self.num_rows = 0
    self.last: dict = {}
    self.by_actor: collections.Counter = collections.Counter()

  def read(self) -> 'Log':
    """Reads what is new."""
    if not self._path.exists():
      return self
    with open(self._path, 'rb') as file:
      file.seek(self._offset)
      text = file.read()
    lines = text[: text.rfind(b'\n') + 1].splitlines()
    self._offset += sum(len(line) + 1 for line in lines)
    for line in lines:
      self.last = json.loads(line)
      self.num_rows += 1
      self.by_actor[self.last.get('actor')] += 1
    return self


class Run:
  """A run in a process of its own, seen from outside."""

  def __init__(
    self, num_actors: int, num_standbys: int, directory: pathlib.Path
  ):
    """Starts it."""
    self.directory = directory
    self._logs: dict[str, Log] = {}
    self.pid = os.posix_spawn(
      sys.executable,
      [
        sys.executable,
        __file__,
        'run',
        f'--num_actors={num_actors}',
        f'--num_standbys={num_standbys}',
        f'--run_dir={directory}',
      ],
      os.environ,
    )

  def nodes(self) -> dict[str, psutil.Process]:
    """Returns the nodes that run, by what they write to."""
    found = {}
    for child in psutil.Process(self.pid).children():
      try:
        if processes.RUNNER_VARIABLE in child.environ():
          path = os.readlink(f'/proc/{child.pid}/fd/1')
          found[pathlib.Path(path).stem] = child
      except (psutil.Error, OSError):
        continue
    return found

  def log(self, label: str) -> 'Log':
    """Returns what is logged so far."""
    return self._logs.setdefault(
      label, Log(loggers.log_path(self.directory, label))
    ).read()

  def wait_for_rows(self, label: str, num_rows: int, timeout_s=300.0) -> None:
    """Waits until so many rows are logged."""
    deadline = time.monotonic() + timeout_s
    while self.log(label).num_rows < num_rows:
      if time.monotonic() > deadline:
        raise TimeoutError(f'{label} has no {num_rows} rows')
      time.sleep(0.2)

  def stop(self) -> int:
    """Stops the run; returns its exit status."""
    os.kill(self.pid, signal.SIGTERM)
    _, status = os.waitpid(self.pid, 0)
    return os.waitstatus_to_exitcode(status)


class Watch:
  """Notes when the learner took steps and actors acted; see `stalls`."""

  def __init__(self, run: Run):
    """Starts to watch."""
    # Of its own, since it reads them in a thread.
    self._logs = {
      label: Log(loggers.log_path(run.directory, label))
      for label in ('learner', 'train')
    }
    self._times: dict[str, list[tuple[float, int]]] = {}
    self._ended = threading.Event()
    self._thread = threading.Thread(target=self._watch, daemon=True)
    self._thread.start()

  def stop(self) -> None:
    """Ends the watch."""
    self._ended.set()
    self._thread.join()

  def last_time(self, name: str) -> float:
    """Returns when a count last grew."""
    noted = self._times.get(name)
    return noted[-1][0] if noted else 0.0

  def longest_stall(self, name: str) -> float:
    """Returns the longest time in which a count did not grow."""
    times = [moment for moment, _ in self._times[name]]
    return max(np.diff([*times, time.monotonic()]))

  def _watch(self):
    while not self._ended.wait(0.2):
      now = time.monotonic()
      self._note('learner', now, self._logs['learner'].read().num_rows)
      actors = self._logs['train'].read().by_actor
      for index, count in actors.items():
        self._note(f'actor-{index}', now, count)

  def _note(self, name, now, count):
    noted = self._times.setdefault(name, [])
    if not noted or noted[-1][1] != count:
      noted.append((now, count))


def _check(name: str, value: float, limit: float, unit: str) -> bool:
  good = value <= limit
  verdict = 'kept' if good else 'BROKEN'
  print(f'{name}: {value:.1f} {unit} of at most {limit:g}: {verdict}')
  return good


def kill_actors(run: Run, seconds: float) -> bool:
  """Kills a random actor every 10 s."""
  watch = Watch(run)
  rng = random.Random(0)
  absences = []
  end = time.monotonic() + seconds
  while time.monotonic() < end:
    name, actor = rng.choice(
      [(n, p) for n, p in run.nodes().items() if n.startswith('actor')]
    )
    killed_at = time.monotonic()
    actor.kill()
    replaced_at = None  # What was logged before, the dead one did.
    while replaced_at is None or watch.last_time(name) <= replaced_at:
      now = time.monotonic()
      if now > killed_at + _GIVE_UP_S:
        break
      if replaced_at is None and run.nodes().get(name, actor) != actor:
        replaced_at = now + _LOG_DELAY_S
      time.sleep(0.1)
    absences.append(time.monotonic() - killed_at)
    print(f'{name} acts again after {absences[-1]:.1f} s', flush=True)
    time.sleep(max(killed_at + 10.0 - time.monotonic(), 0.0))
  watch.stop()
  good = _check(
    'learner stalled', watch.longest_stall('learner'), _MAX_STALL_S, 's'
  )
  return _check('actor away', max(absences), _MAX_RETURN_S, 's') and good


def kill_once(run: Run, name: str) -> bool:
  """Kills a node and waits until learning goes on."""
  run.wait_for_rows('learner', 15)
  saved = _newest_checkpoint(run.directory)
  before = run.log('learner').last['learner_steps']
  steps = run.log('train').last['actor_steps']
  run.nodes()[name].kill()
  killed_at = time.monotonic()
  num_rows = run.log('learner').num_rows
  run.wait_for_rows('learner', num_rows + 2)
  print(f'learning goes on after {time.monotonic() - killed_at:.1f} s')
  row = run.log('learner').last
  after = run.log('train').last['actor_steps']
  print(
    f'learner steps {before} before, {row["learner_steps"]} after; actor steps'
    f' {steps} before, {after} after; checkpoint of {saved}'
  )
  return after >= steps >= saved > 0 and row['learner_steps'] > 0


def _newest_checkpoint(directory: pathlib.Path) -> int:
  with checkpoints.Checkpointer(directory / 'checkpoints') as checkpointer:
    return max(checkpointer.steps(), default=0)


def pause_learner(run: Run, seconds: float) -> bool:
  """Stops the learner's process for a while."""

  def actors():
    return {n: p for n, p in run.nodes().items() if n.startswith('actor')}

  before = {n: p.memory_info().rss / 2**20 for n, p in actors().items()}
  learner = run.nodes()['learner']
  learner.suspend()
  time.sleep(seconds)
  after = {n: p.memory_info().rss / 2**20 for n, p in actors().items()}
  learner.resume()
  num_rows = run.log('learner').num_rows
  run.wait_for_rows('learner', num_rows + 3)
  growth = max(after[name] - before[name] for name in before)
  return _check('actor grew', growth, _MAX_GROWTH_MB, 'MB')


def soak(run: Run, seconds: float) -> bool:
  """Samples each node; memory's slope is over the last two thirds."""
  samples: dict[str, list[Sample]] = {}
  start = time.monotonic()
  while time.monotonic() < start + seconds:
    for name, process in run.nodes().items():
      samples.setdefault(name, []).append(_sample(process))
    time.sleep(min(seconds / 100, 5.0))
  good = True
  for name, taken in sorted(samples.items()):
    late = taken[len(taken) // 3 :]
    times = np.array([sample.time for sample in late]) / 60
    slope = np.polyfit(times, [sample.megabytes for sample in late], 1)[0]
    files = [sample.num_files for sample in late]
    print(
      f'{name}: {late[-1].megabytes:.0f} MB, {slope:+.2f} MB/min, files'
      f' {min(files)}..{max(files)}, threads {late[-1].num_threads}'
    )
    good = good and slope < _MAX_SLOPE_MB
  return good


def _sample(process: psutil.Process) -> Sample:
  return Sample(
    time.monotonic(),
    process.pid,
    process.memory_info().rss / 2**20,
    process.num_fds(),
    process.num_threads(),
  )


def _run_scenario(arguments: argparse.Namespace) -> bool:
  kills_actors = arguments.scenario == 'actors'
  num_actors, num_standbys = (4, 3) if kills_actors else (2, 1)
  with tempfile.TemporaryDirectory() as directory:
    run = Run(num_actors, num_standbys, pathlib.Path(directory) / 'run')
    try:
      start = time.monotonic()
      run.wait_for_rows('learner', 5)
      print(f'learning after {time.monotonic() - start:.1f} s', flush=True)
      if kills_actors:
        time.sleep(_STANDBYS_START_S)
        good = kill_actors(run, arguments.seconds or 120.0)
      elif arguments.scenario == 'pause':
        good = pause_learner(run, arguments.seconds or 60.0)
      elif arguments.scenario == 'soak':
        good = soak(run, arguments.seconds or 1800.0)
      else:
        good = kill_once(run, arguments.scenario)
    finally:
      nodes = run.nodes()
      start = time.monotonic()
      status = run.stop()
      left = [n for n, p in nodes.items() if psutil.pid_exists(p.pid)]
      print(f'stopped in {time.monotonic() - start:.1f} s: {status}; {left}')
    return good and status == 128 + signal.SIGINT and not left


def main() -> None:
  """Runs a scenario."""
  parser = argparse.ArgumentParser(description=__doc__.partition('\n')[0])
  parser.add_argument('scenario', choices=[*SCENARIOS, 'run'])
  parser.add_argument('--seconds', type=float, default=None)
  parser.add_argument('--num_actors', type=int, default=2)
  parser.add_argument('--num_standbys', type=int, default=1)
  parser.add_argument('--num_environments', type=int, default=16)
  parser.add_argument('--run_dir', default=None)
  arguments = parser.parse_args()
  if arguments.scenario != 'run':
    raise SystemExit(0 if _run_scenario(arguments) else 1)
  try:
    distributed.run_distributed(
      build_experiment(arguments.num_environments),
      arguments.num_actors,
      run_dir=arguments.run_dir,
      settings=distributed.Settings(
        max_restarts=1000,
        restart_period_s=0.0,
        num_standbys=arguments.num_standbys,
        standby_after_s=0.0,
      ),
    )
  except KeyboardInterrupt:
    raise SystemExit(128 + signal.SIGINT) from None


if __name__ == '__main__':
  main()
