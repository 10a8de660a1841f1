"""An endless run of catch, for `soak.py` and `chaos.py`.

As a script, it is the run; as a module, it controls and observes the run.
"""

import argparse
import collections
import json
import os
import pathlib
import signal
import sys
import time
from collections.abc import Sequence

import psutil
import python_catch

from ftwax.agents import impala
from ftwax.environments import catch
from ftwax.records import checkpoints, loggers
from ftwax.runtime import distributed, experiment, runs


def build_experiment(
  num_environments: int, save_every_seconds: float, in_jax: bool
) -> experiment.ExperimentConfig:
  """Returns endless catch, in Python or in JAX."""
  config = impala.IMPALAConfig.atari_paper(batch_size=16)
  return experiment.ExperimentConfig(
    name='chaos',
    agent=config,
    environment=make_catch if in_jax else python_catch.Catch,
    max_num_actor_steps=10**9,
    num_environments=num_environments,
    checkpointing=checkpoints.CheckpointingConfig(save_every_seconds),
  )


def make_catch(seed: int):
  """Returns catch in JAX."""
  del seed
  return catch.make()


class Log:
  """A growing log; only new rows are read."""

  def __init__(self, path: pathlib.Path):
    """Reads nothing yet."""
    self._path = path
    self._offset = 0
    self.num_rows = 0
    self.last: dict = {}
    self.by_actor: collections.Counter = collections.Counter()

  def read(self) -> 'Log':
    """Reads new rows."""
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
  """A run in its own process, observed from outside.

  Attributes:
    directory: its directory.
    begun: when its process was started, by the monotonic clock.
    other: another run that began at the same time, or None.
  """

  other: 'Run | None' = None

  def __init__(
    self,
    directory: pathlib.Path,
    prefix: Sequence[str] = (),
    **options: float | str,
  ):
    """Starts the run; `options` are flags of this script."""
    self.directory = directory
    self._logs: dict[str, Log] = {}
    self._command = [
      *prefix,
      sys.executable,
      __file__,
      f'--run_dir={directory}',
      *(f'--{name}={value}' for name, value in options.items()),
    ]
    self.start()

  def start(self, *flags: str) -> None:
    """Starts its process, again if it has ended."""
    command = [*self._command, *flags]
    self.begun = time.monotonic()
    self.pid = os.posix_spawnp(command[0], command, os.environ)

  def processes(self) -> list[psutil.Process]:
    """Returns its process and all that it has started, if it still runs."""
    if not psutil.pid_exists(self.pid):
      return []
    process = psutil.Process(self.pid)
    return [process, *process.children(recursive=True)]

  def nodes(self) -> dict[str, psutil.Process]:
    """Returns the running nodes, by name."""
    found = {}
    for child in psutil.Process(self.pid).children(recursive=True):
      try:
        path = pathlib.Path(os.readlink(f'/proc/{child.pid}/fd/1'))
        parent = psutil.Process(child.ppid()).cmdline()
        if path.parent.name == 'output':  # Of Ray, which names the file.
          found[path.stem] = child
        # Launchpad's wrapper, a script of bash, has the name as an argument.
        elif child.name() != 'sed' and '--lp_task_id' in parent:
          found[parent[3].replace('/', '-')] = child
      except (psutil.Error, OSError):
        continue
    return found

  def log(self, label: str) -> 'Log':
    """Returns the log so far."""
    return self._logs.setdefault(
      label, Log(loggers.log_path(self.directory, label))
    ).read()

  def wait_for_rows(self, label: str, num_rows: int, timeout_s=300.0) -> None:
    """Waits until the given number of rows is logged."""
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

  def stop_and_report(self) -> bool:
    """Stops the run; returns whether it ended normally and left no nodes."""
    nodes = self.nodes()
    start = time.monotonic()
    status = self.stop()
    left = [n for n, p in nodes.items() if psutil.pid_exists(p.pid)]
    print(f'stopped in {time.monotonic() - start:.1f} s: {status}; {left}')
    return status == 128 + signal.SIGINT and not left


def main() -> None:
  """Runs until it is stopped, with almost unlimited restarts."""
  parser = argparse.ArgumentParser(description=__doc__.partition('\n')[0])
  parser.add_argument('--num_actors', type=int, default=2)
  parser.add_argument('--num_learners', type=int, default=1)
  parser.add_argument('--num_environments', type=int, default=16)
  parser.add_argument('--save_every_seconds', type=float, default=5.0)
  parser.add_argument('--runtime', default='distributed')
  parser.add_argument('--cluster', default='local')
  parser.add_argument('--heartbeat_timeout_s', type=float, default=90.0)
  parser.add_argument('--resume', action='store_true')
  parser.add_argument('--run_dir', required=True)
  arguments = parser.parse_args()
  try:
    settings = distributed.Settings(
      num_actors=arguments.num_actors,
      num_learners=arguments.num_learners,
      max_restarts=1000,
      cluster=arguments.cluster,
      heartbeat_timeout_s=arguments.heartbeat_timeout_s,
    )
    runs.run_experiment(
      build_experiment(
        arguments.num_environments,
        arguments.save_every_seconds,
        arguments.runtime == 'device',
      ),
      runtime=arguments.runtime,
      run_dir=arguments.run_dir,
      resume=arguments.resume,
      settings=settings if arguments.runtime == 'distributed' else None,
    )
  except KeyboardInterrupt:
    raise SystemExit(128 + signal.SIGINT) from None


if __name__ == '__main__':
  main()
