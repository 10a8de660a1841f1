"""Runs on the hosts of a Ray cluster, by the command that a user types."""

import contextlib
import signal
import subprocess
import sys
import time

import pytest
import ray_clusters

from ftwax.records import checkpoints, loggers
from ftwax.runtime.cluster import ray_hosts

_TIMEOUT_S = 240.0
# In the command of nodes, which is that of the process they are forked from.
_NODE = 'forkserver'
_ACTORS = {'CPU': 2, 'actors': 2}


class _Run:
  """The process of a run."""

  def __init__(self, cluster, directory, *flags):
    self.directory = directory
    self._process = cluster.popen(
      0,
      [
        *(sys.executable, '-m', 'ftwax', 'train', 'catch'),
        *('--runtime=distributed', '--cluster=auto', '--eval_every=0'),
        *('--num_environments=4', f'--run_dir={directory}', *flags),
      ],
      stdout=subprocess.PIPE,
      stderr=subprocess.STDOUT,
      text=True,
    )

  def wait(self):
    """Returns the exit status and what it printed."""
    output, _ = self._process.communicate(timeout=_TIMEOUT_S)
    return self._process.returncode, output

  def wait_for_steps(self, steps):
    path = loggers.log_path(self.directory, 'train')
    deadline = time.monotonic() + _TIMEOUT_S
    while time.monotonic() < deadline and self._process.poll() is None:
      rows = loggers.read_jsonl(path) if path.exists() else []
      if rows and rows[-1]['actor_steps'] >= steps:
        return
      time.sleep(0.1)
    self._process.kill()
    pytest.fail(f'no {steps} steps: {self._process.communicate()[0]}')

  def send(self, signum):
    self._process.send_signal(signum)

  def close(self):
    self._process.kill()
    self._process.communicate()

  def last_steps(self):
    with checkpoints.Checkpointer(self.directory / 'checkpoints') as saved:
      return max(saved.steps())


@pytest.fixture
def start(tmp_path):
  """Starts a run on a new cluster; returns both."""
  with contextlib.ExitStack() as stack:

    def make(hosts, *flags, **options):
      cluster = stack.enter_context(ray_clusters.clusters(*hosts, **options))
      run = _Run(cluster, tmp_path / 'run', *flags)
      stack.callback(run.close)
      return cluster, run

    yield make


def _wait_until_gone(cluster, name, hosts):
  """Waits until no process of the hosts has the name."""
  deadline = time.monotonic() + 40.0
  while any(cluster.has_process(index, name) for index in hosts):
    assert time.monotonic() < deadline
    time.sleep(0.2)


def test_a_run_spreads_over_hosts_and_leaves_nothing_behind(start):
  cluster, run = start(
    [{'CPU': 2}, _ACTORS],
    *('--num_actors=2', '--resources=actor.actors=1'),
    '--max_num_actor_steps=3000',
    num_others=1,
  )
  run.wait_for_steps(500)
  assert cluster.has_process(1, _NODE)
  # All that strangers find open is Ray's own, which wants certificates, and
  # the gateways.
  found = cluster.open_ports(1)
  assert not set(found) & set(range(20_000, 32_000))
  status, output = run.wait()
  assert status == 0, output
  assert run.last_steps() == 3000
  for index in (0, 1):
    assert not cluster.has_process(index, _NODE)


@pytest.mark.slow
def test_a_lost_host_of_actors_does_not_end_a_run(start):
  cluster, run = start(
    [{'CPU': 2, 'core': 1}, _ACTORS, {'CPU': 2, 'actors': 1}],
    *('--num_actors=3', '--resources=actor.actors=1'),
    '--resources=learner.core=1',
    '--max_num_actor_steps=20000',
  )
  run.wait_for_steps(2000)
  cluster.stop(2)
  status, output = run.wait()
  assert status == 0, output
  assert run.last_steps() == 20_000
  assert 'waits for a host' in output


@pytest.mark.slow
def test_a_learner_comes_back_on_another_host(start):
  core = {'CPU': 2, 'core': 1}
  cluster, run = start(
    [{'CPU': 2, 'actors': 2}, core, core],
    *('--num_actors=2', '--resources=actor.actors=1'),
    *('--resources=learner.core=1', '--save_every_seconds=2'),
    '--max_num_actor_steps=20000',
  )
  run.wait_for_steps(3000)
  (at,) = [i for i in (1, 2) if cluster.has_process(i, _NODE)]
  cluster.stop(at)
  status, output = run.wait()
  assert status == 0, output
  assert run.last_steps() == 20_000


@pytest.mark.slow
@pytest.mark.parametrize('signum', [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_is_saved_and_resumed(start, signum):
  flags = ('--num_actors=1', '--resources=actor.actors=1')
  cluster, run = start(
    [{'CPU': 2}, _ACTORS], *flags, '--max_num_actor_steps=1000000'
  )
  run.wait_for_steps(2000)
  run.send(signum)
  status, output = run.wait()
  assert status == 130, output
  assert 'Interrupted' in output
  saved = run.last_steps()
  assert saved >= 2000
  _wait_until_gone(cluster, _NODE, (0, 1))
  steps = saved + 1000
  resumed = _Run(
    cluster, run.directory, *flags, '--resume', f'--max_num_actor_steps={steps}'
  )
  status, output = resumed.wait()
  assert status == 0, output
  assert resumed.last_steps() == steps


@pytest.mark.slow
def test_a_killed_runner_leaves_nothing_behind(start):
  cluster, run = start(
    [{'CPU': 2}, _ACTORS],
    *('--num_actors=1', '--resources=actor.actors=1'),
    '--max_num_actor_steps=1000000',
  )
  run.wait_for_steps(1000)
  run.send(signal.SIGKILL)
  _wait_until_gone(cluster, _NODE, (0, 1))


@pytest.mark.slow
def test_a_run_that_does_not_fit_is_refused(start):
  _, run = start([{'CPU': 2}], '--num_actors=1', '--resources=learner.GPU=1')
  status, output = run.wait()
  assert status == 1
  assert 'ClusterError: the cluster must have room for' in output


def test_a_cluster_without_certificates_is_refused(tmp_path, monkeypatch):
  monkeypatch.delenv('RAY_USE_TLS', raising=False)
  with pytest.raises(ValueError, match='RAY_USE_TLS must be 1, with certif'):
    ray_hosts.Hosts('auto', False, tmp_path)


def test_a_cluster_that_is_not_there_is_told(tmp_path, monkeypatch):
  monkeypatch.delenv('RAY_ADDRESS', raising=False)
  monkeypatch.setenv('RAY_TMPDIR', str(tmp_path))  # Where Ray looks for one.
  with (
    pytest.raises(ray_hosts.ClusterError, match=r'cluster \(auto\) must be'),
    ray_hosts.Hosts('auto', True, tmp_path),
  ):
    pass
