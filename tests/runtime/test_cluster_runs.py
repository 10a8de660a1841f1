"""Runs on the hosts of a Ray cluster, by the command that a user types."""

import contextlib
import os
import signal
import subprocess
import sys
import time

import exchanging_population
import pytest
import ray_clusters

from ftwax.records import checkpoints, loggers
from ftwax.reporting import history
from ftwax.runtime.cluster import ray_hosts

_TIMEOUT_S = 240.0
# In the command of nodes, which is that of the process they are forked from.
_NODE = 'forkserver'
_CORE = {'CPU': 2, 'core': 1}
_ACTORS = {'CPU': 2, 'actors': 2}


_CATCH = ('catch', '--eval_every=0', '--num_environments=4')
_POPULATION = (f'{exchanging_population.__file__}:build',)


class _Run:
  """The process of a run, on the head or that of a client on a host."""

  def __init__(
    self, cluster, directory, *flags, experiment=_CATCH, client=None
  ):
    self.directory = directory
    address = 'auto'
    if client is not None:
      address = f'ray://{cluster.hosts[0].address}:10001'
    self._process = cluster.popen(
      client or 0,
      [
        *(sys.executable, '-m', 'ftwax', 'train', *experiment),
        *('--runtime=distributed', f'--cluster={address}'),
        *(f'--run_dir={directory}', *flags),
      ],
      env={
        **cluster.environment,
        'RAY_ADDRESS': cluster.address,
        'PYTHONPATH': os.pathsep.join(filter(None, sys.path)),
      },
      stdout=subprocess.PIPE,
      stderr=subprocess.STDOUT,
      text=True,
    )

  def wait(self):
    """Returns the exit status and what it printed."""
    output, _ = self._process.communicate(timeout=_TIMEOUT_S)
    return self._process.returncode, output

  def wait_for_steps(self, steps):
    def come_so_far():
      rows = self.log('train')
      return rows and rows[-1]['actor_steps'] >= steps

    self.wait_until(come_so_far)

  def log(self, label):
    path = loggers.log_path(self.directory, label)
    return loggers.read_jsonl(path) if path.exists() else []

  def wait_until(self, condition):
    deadline = time.monotonic() + _TIMEOUT_S
    while not condition():
      if time.monotonic() > deadline or self._process.poll() is not None:
        self._process.kill()
        pytest.fail(f'not in time: {self._process.communicate()[0]}')
      time.sleep(0.1)

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

    def make(hosts, *flags, experiment=_CATCH, client=None, **options):
      cluster = stack.enter_context(ray_clusters.clusters(*hosts, **options))
      run = _Run(
        cluster,
        tmp_path / 'run',
        *flags,
        experiment=experiment,
        client=client,
      )
      stack.callback(run.close)
      return cluster, run

    yield make


def _wait_until_gone(cluster, name, hosts):
  """Waits until no process of the hosts has the name."""
  deadline = time.monotonic() + 40.0
  while any(cluster.has_process(index, name) for index in hosts):
    assert time.monotonic() < deadline
    time.sleep(0.2)


@pytest.mark.slow
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
@pytest.mark.parametrize('client', [0, 1])
def test_a_client_starts_a_run_from_a_host_of_the_cluster_or_another(
  start, client
):
  cluster, run = start(
    [{'CPU': 4}],
    *('--num_actors=1', '--max_num_actor_steps=1000'),
    num_others=1,
    client=client,
  )
  status, output = run.wait()
  assert status == 0, output
  assert run.last_steps() == 1000
  assert not cluster.has_process(0, _NODE)


@pytest.mark.slow
def test_a_lost_host_of_actors_does_not_end_a_run(start):
  cluster, run = start(
    [_CORE, _ACTORS, {'CPU': 2, 'actors': 1}],
    *('--num_actors=3', '--resources=actor.actors=1'),
    '--resources=learner.core=1',
    '--max_num_actor_steps=20000',
  )
  run.wait_for_steps(2000)
  cluster.stop(2)
  status, output = run.wait()
  assert status == 0, output
  assert run.last_steps() == 20_000
  assert 'waiting for a host' in output


@pytest.mark.slow
def test_a_learner_comes_back_on_another_host(start):
  cluster, run = start(
    [{'CPU': 2, 'actors': 2}, _CORE, _CORE],
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
def test_learners_of_two_hosts_update_as_one(start):
  cluster, run = start(
    [{'CPU': 2, 'actors': 2}, _CORE, _CORE],
    *('--num_actors=2', '--resources=actor.actors=1'),
    *('--num_learners=2', '--resources=learner.core=1'),
    '--max_num_actor_steps=5000',
  )
  run.wait_for_steps(500)
  assert all(cluster.has_process(index, _NODE) for index in (1, 2))
  status, output = run.wait()
  assert status == 0, output
  assert run.last_steps() == 5000
  assert run.log('learner')[-1]['learner_steps'] > 10


@pytest.mark.slow
def test_a_population_on_two_hosts_survives_the_loss_of_one(start):
  cluster, run = start(
    [{'CPU': 2, 'actors': 2}, _CORE, _CORE, _CORE],
    *('--num_actors=2', '--resources=actor.actors=1'),
    *('--num_learners=2', '--resources=learner.core=1'),
    experiment=_POPULATION,
  )

  def copies():
    path = run.directory / history.LINEAGE_FILE
    if not path.exists():
      return []
    return exchanging_population.read_copies(run.directory)

  crosses = exchanging_population.crosses_learners
  run.wait_until(lambda: any(map(crosses, copies())))
  # Of the two hosts with learners one has the counter and the keeper, too.
  hosts = [index for index in (1, 2, 3) if cluster.has_process(index, _NODE)]
  assert len(hosts) == 2
  cluster.stop(min(hosts, key=lambda index: len(cluster.pids(index))))
  num_rows, num_copies = len(run.log('learner')), len(copies())

  def is_back():
    learners = {row['learner'] for row in run.log('learner')[num_rows:]}
    return learners == {0, 1} and len(copies()) > num_copies

  run.wait_until(is_back)
  run.send(signal.SIGTERM)
  status, output = run.wait()
  assert status == 130, output
  exchanging_population.check_lineage(run.directory)


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
