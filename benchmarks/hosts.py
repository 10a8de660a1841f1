"""Runs catch on the hosts of a cluster, and measures the effects of faults.

Run as `python benchmarks/hosts.py learn`, or with another scenario:

    learn      learner and replay on one host, actors on two: score, steps/s and
               bytes between hosts, compared with one host and as many processes
    local      one host without and with Ray: startup, memory, steps/s, and the
               time until a killed actor is replaced
    cut        the link of an actors' host is down for 30 s
    lost       an actors' host is disconnected for good
    learner    the learner's host is killed, and another one takes over
    head       Ray's head is killed; the run ends and is resumed on a new one
    netem      1% of packets are lost and all are delayed by 50 ms
    strangers  1,000 connections per second come from outside the cluster

Hosts are network namespaces on this machine, joined by a switch, which requires
root. Each scenario prints its numbers and exits with status 1 if a promise is
broken.
"""

import argparse
import contextlib
import functools
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping

import numpy as np
import psutil
import pytest

from ftwax.records import checkpoints, loggers

sys.path.append(str(pathlib.Path(__file__).parents[1] / 'tests'))

import ray_clusters  # noqa: E402

_TRAFFIC = 'output/traffic.json'
_GIVE_UP_S = 400.0
_CUT_S = 30.0
_STRANGERS_PER_S = 1000
_STRANGERS_S = 40.0
_CLUSTER_FLAGS = (
  *('--cluster=auto', '--resources=actor.actors=1'),
  '--resources=learner.core=1',
)
# Without Ray, and as children of a Ray actor, whose niceness is 15.
_ACTOR_NICENESS = (5, 19)
_CORE = {'CPU': 2, 'core': 1}
_ACTORS = {'CPU': 4, 'actors': 4}


class Run:
  """A run of catch, started by the command that a user types."""

  def __init__(
    self, cluster: ray_clusters.Cluster, directory: pathlib.Path, *flags: str
  ):
    """Starts the run on the first host."""
    self.directory = directory
    command = [
      *(sys.executable, '-m', 'ftwax', 'train', 'catch'),
      *('--runtime=distributed', f'--run_dir={directory}', '--eval_every=0'),
      *flags,
    ]
    self._process = cluster.popen(0, command, start_new_session=True)

  def log(self, label: str) -> list[dict]:
    """Returns the rows of a log so far."""
    path = loggers.log_path(self.directory, label)
    return loggers.read_jsonl(path) if path.exists() else []

  def steps(self) -> int:
    """Returns the actor steps so far."""
    rows = self.log('train')
    return rows[-1]['actor_steps'] if rows else 0

  def wait_for_steps(self, steps: int) -> None:
    """Waits until the run has taken the given number of steps."""
    self.wait_until(lambda: self.steps() >= steps)

  def wait(self, status: int = 0) -> None:
    """Waits for the end of the run and checks its exit status."""
    self.wait_until(lambda: self._process.poll() is not None)
    if self._process.returncode != status:
      raise SystemExit(f'the run ended with {self._process.returncode}')

  def stop(self) -> None:
    """Kills the run if it is still running."""
    if self._process.poll() is None:
      self._process.send_signal(signal.SIGKILL)
      self._process.wait()

  def wait_until(self, condition: Callable[[], bool]) -> None:
    """Waits until a condition holds."""
    deadline = time.monotonic() + _GIVE_UP_S
    while not condition():
      if time.monotonic() > deadline:
        raise SystemExit('the run did not come so far in time')
      time.sleep(0.2)


@contextlib.contextmanager
def started(
  hosts: list[Mapping[str, float]],
  *flags: str,
  num_others: int = 0,
  on_cluster: bool = True,
) -> Iterator[tuple[ray_clusters.Cluster, Run]]:
  """Starts a run on a new cluster; both end with the context."""
  with (
    tempfile.TemporaryDirectory() as directory,
    ray_clusters.clusters(*hosts, num_others=num_others) as cluster,
  ):
    if on_cluster:
      flags = (*_CLUSTER_FLAGS, *flags)
    run = Run(cluster, pathlib.Path(directory) / 'run', *flags)
    try:
      yield cluster, run
    finally:
      run.stop()


def _speed(run: Run, since: float = 0.0, until: float = 1.0) -> float:
  """Returns the steps per second within a part of the run."""
  rows = run.log('train')
  first, last = (rows[int(part * (len(rows) - 1))] for part in (since, until))
  steps = last['actor_steps'] - first['actor_steps']
  return steps / max(last['seconds'] - first['seconds'], 1e-9)


def _score(run: Run) -> float:
  """Returns the mean return over the last tenth of the run."""
  rows = run.log('train')
  returns = [row['episode_return'] for row in rows[-max(len(rows) // 10, 1) :]]
  return float(np.mean(returns))


def _standstill(run: Run, since: int) -> float:
  """Returns the longest time without an update after `since` steps, in s."""
  rows = run.log('learner')
  seconds = [row['seconds'] for row in rows if row['actor_steps'] >= since]
  return float(max(np.diff(seconds)))


def _check_counts(run: Run, steps: int) -> None:
  """Exits with status 1 unless exactly `steps` steps were counted."""
  with checkpoints.Checkpointer(run.directory / 'checkpoints') as checkpointer:
    last = max(checkpointer.steps())
  print(f'  steps in the last checkpoint: {last:,} of {steps:,}')
  if last != steps:
    raise SystemExit('steps were lost, or counted twice')


def learn(steps: int) -> None:
  """Compares three hosts with a single one."""
  flags = ('--num_actors=4', f'--max_num_actor_steps={steps}')
  speeds = []
  for name, hosts in {
    'three hosts': [_CORE, _ACTORS, _ACTORS],
    'one host': [{**_CORE, 'CPU': 6, 'actors': 4}],
  }.items():
    with started(hosts, *flags) as (_, run):
      run.wait()
      speeds.append(_speed(run, 0.25))
      print(
        f'{name}: {speeds[-1]:,.0f} steps/s, return {_score(run):.2f}',
        flush=True,
      )
      _check_counts(run, steps)
      traffic = json.loads(run.directory.joinpath(_TRAFFIC).read_text())
      total = sum(host['bytes'] for host in traffic.values()) / 2
      print(f'  {total / steps:,.0f} bytes between hosts for a step')
  print(f'ratio of steps/s: {speeds[0] / speeds[1]:.2f}')


def local(steps: int) -> None:
  """Measures the cost of Ray on a single host."""
  flags = ('--num_actors=2', f'--max_num_actor_steps={steps}')
  for on_cluster in (False, True):
    begin = time.monotonic()
    with started(
      [{**_CORE, 'CPU': 4, 'actors': 2}], *flags, on_cluster=on_cluster
    ) as (cluster, run):
      # Ray itself was started earlier.
      run.wait_until(lambda: run.log('learner'))
      first_update = time.monotonic() - begin - cluster.seconds_to_start
      run.wait_for_steps(steps // 2)
      pids = cluster.pids(0)
      memory = sum(psutil.Process(pid).memory_full_info().pss for pid in pids)
      before = _actor_pids(cluster)
      victim = before.pop()
      os.kill(victim, signal.SIGKILL)
      killed = time.monotonic()
      run.wait_until(functools.partial(_has_another, cluster, victim))
      replaced = time.monotonic() - killed
      run.wait()
      print(
        f'{"with" if on_cluster else "without"} Ray: first update after'
        f' {first_update:.1f} s,'
        f' {memory / 2**20:,.0f} MiB in {len(pids)} processes,'
        f' {_speed(run, 0.1, 0.45):,.0f} steps/s, an actor is replaced after'
        f' {replaced:.1f} s',
        flush=True,
      )
      _check_counts(run, steps)


def _actor_pids(cluster: ray_clusters.Cluster) -> set[int]:
  """Returns the pids of actors, which have a lower priority."""
  found = set()
  for pid in cluster.pids(0):
    with contextlib.suppress(psutil.Error):
      process = psutil.Process(pid)
      if process.nice() in _ACTOR_NICENESS and process.status() != 'zombie':
        found.add(pid)
  return found


def _has_another(cluster: ray_clusters.Cluster, victim: int) -> bool:
  """Returns whether two actors are running besides the killed one."""
  return len(_actor_pids(cluster) - {victim}) == 2


def cut(steps: int) -> None:
  """Disconnects a host for a while."""
  _disturb(steps, lambda cluster: _cut_link(cluster, _CUT_S))


def lost(steps: int) -> None:
  """Disconnects a host for good."""
  _disturb(steps, lambda cluster: cluster.hosts[2].set_link(False))


def _cut_link(cluster: ray_clusters.Cluster, seconds: float) -> None:
  cluster.hosts[2].set_link(False)
  time.sleep(seconds)
  cluster.hosts[2].set_link(True)


def _disturb(
  steps: int, disturb: Callable[[ray_clusters.Cluster], None]
) -> None:
  flags = ('--num_actors=4', f'--max_num_actor_steps={steps}')
  hosts = [_CORE, {'CPU': 2, 'actors': 2}, {'CPU': 2, 'actors': 2}]
  with started(hosts, *flags) as (cluster, run):
    run.wait_for_steps(steps // 4)
    begun = run.steps()
    disturb(cluster)
    run.wait()
    print(
      f'  no update for {_standstill(run, begun):.0f} s at most, return'
      f' {_score(run):.2f}'
    )
    _check_counts(run, steps)


def learner(steps: int) -> None:
  """Kills the host of the learner, the replay server and the counter."""
  flags = (
    *('--num_actors=2', f'--max_num_actor_steps={steps}'),
    '--save_every_seconds=5',
  )
  hosts = [{'CPU': 2, 'actors': 2}, _CORE, _CORE]
  with started(hosts, *flags) as (cluster, run):
    run.wait_for_steps(steps // 4)
    begun = run.steps()
    for index in (1, 2):
      if cluster.has_process(index, 'forkserver'):
        cluster.stop(index)
    run.wait()
    print(
      f'  no update for {_standstill(run, begun):.0f} s at most, return'
      f' {_score(run):.2f}'
    )
    _check_counts(run, steps)


def head(steps: int) -> None:
  """Kills Ray's head, which ends the run, and resumes it on a new one."""
  flags = ('--num_actors=2', f'--max_num_actor_steps={steps}')
  hosts = [_CORE, {'CPU': 2, 'actors': 2}]
  with started(hosts, *flags, '--save_every_seconds=5') as (cluster, run):
    run.wait_for_steps(steps // 4)
    for index in (0, 1):
      cluster.stop(index)
    run.stop()
    before = run.steps()
    for index, resources in enumerate(hosts):
      cluster.start(index, **resources)
    again = Run(
      cluster,
      run.directory,
      *(*_CLUSTER_FLAGS, '--resume'),
      *flags,
    )
    try:
      again.wait()
    finally:
      again.stop()
    print(f'  killed after {before:,} steps, return {_score(again):.2f}')
    _check_counts(again, steps)


def netem(steps: int) -> None:
  """Drops and delays packets of all hosts."""

  def disturb(cluster: ray_clusters.Cluster) -> None:
    for host in cluster.hosts:
      host.impair(delay_ms=50.0, loss_percent=1.0)

  _disturb(steps, disturb)


def strangers(steps: int) -> None:
  """Attacks the gateways from a host outside the cluster."""
  flags = ('--num_actors=2', f'--max_num_actor_steps={steps}')
  hosts = [_CORE, {'CPU': 2, 'actors': 2}]
  with started(hosts, *flags, num_others=1) as (cluster, run):
    run.wait_for_steps(steps // 10)
    ports = cluster.open_ports(0)
    target = cluster.hosts[0].address
    script = pathlib.Path(__file__).parent / 'strangers.py'
    begin, begun = time.monotonic(), run.steps()
    time.sleep(_STRANGERS_S)
    quiet = (run.steps() - begun) / (time.monotonic() - begin)
    attack = cluster.hosts[2].popen(
      [
        *(sys.executable, str(script), target, str(_STRANGERS_PER_S)),
        *map(str, ports),
      ],
      stdout=subprocess.PIPE,
      text=True,
    )
    begin, begun = time.monotonic(), run.steps()
    time.sleep(_STRANGERS_S)
    attacked = (run.steps() - begun) / (time.monotonic() - begin)
    attack.terminate()
    print(attack.communicate()[0])
    print(
      f'  {quiet:,.0f} steps/s, {attacked:,.0f} under attack:'
      f' {attacked / quiet:.2f}'
    )


SCENARIOS: Mapping[str, Callable[[int], None]] = {
  function.__name__: function
  for function in (learn, local, cut, lost, learner, head, netem, strangers)
}


def main() -> None:
  """Runs a scenario."""
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument('scenario', choices=list(SCENARIOS))
  parser.add_argument('--steps', type=int, default=100_000)
  options = parser.parse_args()
  print(options.scenario, flush=True)
  try:
    SCENARIOS[options.scenario](options.steps)
  except pytest.skip.Exception as reason:
    raise SystemExit(f'not possible here: {reason}') from None


if __name__ == '__main__':
  main()
