"""Real runs on Ray, on Python 3.11 and newer."""

import contextlib
import importlib.util
import json
import os
import pathlib
import signal
import stat
import subprocess
import sys
import time
import urllib.error
import urllib.request

import pytest

# Not imported here: a run sets how Ray authenticates before it imports Ray.
if importlib.util.find_spec('ray') is None:
  pytest.skip('the extra distributed is not there', allow_module_level=True)

import distributed_helpers  # noqa: E402

from ftwax.records import checkpoints, loggers  # noqa: E402
from ftwax.runtime import evaluation, prepare, runs  # noqa: E402
from ftwax.runtime.distributed import ray_engine, runner  # noqa: E402
from ftwax.runtime.distributed import settings as settings_lib  # noqa: E402

_TIMEOUT_S = 300.0

_RUN = """
import sys
from ftwax.agents import impala
from ftwax.environments import catch
from ftwax.records import checkpoints
from ftwax.runtime import distributed, experiment, runs

if __name__ == '__main__':
  runs.run_experiment(
    experiment.ExperimentConfig(
      name='catch',
      agent=impala.IMPALAConfig(batch_size=16),
      environment=catch.make(),
      max_num_actor_steps=int(sys.argv[2]),
      num_environments=8,
      checkpointing=checkpoints.CheckpointingConfig(2.0),
    ),
    eval_every=4000,
    runtime='distributed',
    run_dir=sys.argv[1],
    resume='resume' in sys.argv,
  )
"""


class _Run:
  """A run in a process of its own."""

  def __init__(self, directory, num_steps, *options):
    self.directory = directory
    script = directory.parent / 'run_catch.py'
    script.write_text(_RUN)
    self.process = subprocess.Popen(
      [
        sys.executable,
        '-W',
        'ignore',
        str(script),
        str(directory),
        str(num_steps),
        *options,
      ],
      stdout=subprocess.PIPE,
      stderr=subprocess.STDOUT,
      text=True,
    )

  def rows(self, label):
    path = loggers.log_path(self.directory, label)
    return loggers.read_jsonl(path) if path.exists() else []

  def wait_for(self, condition):
    deadline = time.monotonic() + _TIMEOUT_S
    while not condition():
      assert self.process.poll() is None, self.process.stdout.read()
      assert time.monotonic() < deadline
      time.sleep(0.2)

  def nodes(self):
    """Returns the processes of the nodes, by name."""
    found = {}
    for name in filter(str.isdigit, os.listdir('/proc')):
      with contextlib.suppress(OSError):
        path = pathlib.Path(os.readlink(f'/proc/{name}/fd/1'))
        if path.parent == self.directory / 'output':
          found[path.stem] = int(name)
    return found

  def replaced(self, before, names):
    """Returns whether new processes have taken the place of nodes."""
    now = self.nodes()
    return all(now.get(name, before[name]) != before[name] for name in names)

  def wait_for_end(self):
    deadline = time.monotonic() + 60.0
    while self.nodes():
      assert time.monotonic() < deadline
      time.sleep(0.2)


@pytest.fixture
def start(tmp_path):
  with contextlib.ExitStack() as stack:

    def make(*arguments):
      run = _Run(tmp_path / 'run', *arguments)

      def kill():
        run.process.kill()
        run.process.communicate()

      stack.callback(kill)
      return run

    yield make


@pytest.mark.ci
def test_a_run_outlives_its_nodes_and_is_resumed(start):
  run = start(10**9)
  run.wait_for(lambda: len(run.rows('train')) > 20)
  # Everything listens on the loopback interface alone.
  nodes = run.nodes()
  assert len(nodes) == 4
  assert _listeners(nodes.values()) <= {'127.0.0.1', '::1'}
  num_rows = {label: len(run.rows(label)) for label in ('train', 'learner')}
  killed = ('actor-0', 'learner-0')
  for name in killed:
    os.kill(nodes[name], signal.SIGKILL)
  run.wait_for(lambda: run.replaced(nodes, killed))
  run.wait_for(
    lambda: (
      len(run.rows('train')) > num_rows['train'] + 10
      and len(run.rows('learner')) > num_rows['learner'] + 1
    )
  )
  status = json.loads((run.directory / 'output' / 'nodes.json').read_text())
  assert 'restarts 1' in status['learner/0']
  run.process.send_signal(signal.SIGTERM)
  output, _ = run.process.communicate(timeout=_TIMEOUT_S)
  # A script that does not catch a KeyboardInterrupt ends so.
  assert run.process.returncode == -signal.SIGINT, output
  assert 'Interrupted. Saved at' in output
  run.wait_for_end()
  (*_, steps) = checkpoints.saved_steps(run.directory / 'checkpoints')
  rows = run.rows('train')
  assert sum(row['num_episodes'] for row in rows) == rows[-1]['episodes']

  resumed = start(10**9, 'resume')
  resumed.wait_for(lambda: resumed.rows('train')[-1]['actor_steps'] > steps)
  assert len(resumed.nodes()) == 4
  # Nothing is left of a run that is killed.
  resumed.process.kill()
  resumed.wait_for_end()


def _listeners(pids):
  """Returns the addresses on which processes listen."""
  inodes = set()
  for pid in pids:
    for name in os.listdir(f'/proc/{pid}/fd'):
      with contextlib.suppress(OSError):
        inodes.add(os.readlink(f'/proc/{pid}/fd/{name}').strip('socket:[]'))
  addresses = set()
  for table in ('tcp', 'tcp6'):
    for line in pathlib.Path(f'/proc/net/{table}').read_text().splitlines()[1:]:
      fields = line.split()
      if fields[3] == '0A' and fields[9] in inodes:
        addresses.add(_DECODED.get(fields[1].split(':')[0], fields[1]))
  return addresses


_DECODED = {
  '0100007F': '127.0.0.1',
  '0000000000000000FFFF00000100007F': '127.0.0.1',
  '0' * 24 + '01000000': '::1',
}


class _Echo:
  """A node that does what a test asks."""

  def say(self, value):
    return value

  def fail(self):
    raise LookupError('nothing is here')

  def both(self):
    return 1, 2


@pytest.fixture(scope='module')
def engine(tmp_path_factory):
  directory = tmp_path_factory.mktemp('run')
  (directory / 'output').mkdir()
  # Three of its processors are for the test that makes a run.
  made = ray_engine.RayEngine(settings_lib.Settings(num_actors=3), directory)
  try:
    made.start({'first/0': _Echo, 'second/0': _Echo})
    yield made
  finally:
    made.close()


@pytest.mark.filterwarnings('ignore')
def test_an_engine_carries_calls_and_errors(engine):
  (said,) = engine.call('first/0', 'say', 'hello')
  assert engine.get(engine.call('second/0', 'say', said)[0]) == 'hello'
  one, two = engine.call('first/0', 'both', num_returns=2)
  assert (engine.get(one), engine.get(two)) == (1, 2)
  with pytest.raises(
    ray_engine.engine.NodeFailedError,
    match='first/0 failed: LookupError: nothing is here',
  ):
    engine.get(engine.call('first/0', 'fail')[0])
  assert engine.get(engine.ping('second/0')) == 0.0


@pytest.mark.ci
@pytest.mark.filterwarnings('ignore')
def test_a_token_guards_every_port(engine):
  path = pathlib.Path(os.environ['RAY_AUTH_TOKEN_PATH'])
  for part in (path, path.parent):
    assert not part.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO), part
  import ray

  address = ray.get_runtime_context().gcs_address
  code = (
    'import sys, ray\n'
    f'ray.init({address!r}, log_to_driver=False)\n'
    'print(ray.nodes())\n'
  )
  own = {k: v for k, v in os.environ.items() if not k.startswith('RAY_AUTH')}
  strangers = [
    subprocess.Popen(
      [sys.executable, '-c', code],
      env=own | variables,
      stdout=subprocess.PIPE,
      stderr=subprocess.STDOUT,
      text=True,
    )
    for variables in (
      {'RAY_AUTH_MODE': 'disabled'},
      {'RAY_AUTH_MODE': 'token', 'RAY_AUTH_TOKEN': 'f' * 64},
    )
  ]
  for node in ray.nodes():
    for port in (node['RuntimeEnvAgentPort'], node['MetricsExportPort']):
      _refuses_http(port)
  for stranger in strangers:
    output, _ = stranger.communicate(timeout=_TIMEOUT_S)
    assert stranger.returncode != 0
    assert 'NodeManagerPort' not in output


def _folder():
  import ray

  return pathlib.Path(ray._private.worker._global_node.get_temp_dir_path())


@pytest.mark.skipif(os.getuid() != 0, reason='Only root can be another user.')
@pytest.mark.filterwarnings('ignore')
def test_other_users_reach_no_file_of_ray(engine):
  folder = _folder()
  sockets = [path for path in folder.rglob('*') if path.is_socket()]
  assert sockets and max(len(str(path)) for path in sockets) <= 107
  stranger = f"""
import os, pathlib, socket
os.setuid(65534)
folder = pathlib.Path({str(folder)!r})
done = []
def tries(deed):
  try:
    deed()
  except OSError:
    return
  done.append(deed)
tries(lambda: os.listdir(folder))
tries(lambda: os.listdir(folder.parent))
tries(lambda: (folder / 'new').write_text(''))
tries(lambda: os.rename(folder, folder.with_name('other')))
tries(lambda: os.rename(folder.parent, str(folder.parent) + '-other'))
for path in {[str(path) for path in sockets]!r}:
  tries(lambda: socket.socket(socket.AF_UNIX).connect(path))
  tries(lambda: os.unlink(path))
for path in {[str(path) for path in folder.rglob('*.out')]!r}:
  tries(lambda: open(path).read())
assert os.getuid() == 65534
print(len(done))
"""
  done = subprocess.run(
    [sys.executable, '-c', stranger],
    capture_output=True,
    text=True,
  )
  assert done.stdout == '0\n', done


@pytest.mark.filterwarnings('ignore')
def test_a_run_takes_its_steps_and_ends(engine, tmp_path):
  result = runner.run_with(
    lambda: engine,
    prepare.prepare(distributed_helpers.make_experiment()),
    runs.open_run_directory(
      distributed_helpers.make_experiment(), tmp_path / 'run', False
    ),
    period=evaluation.Period(50),
    settings=settings_lib.Settings(num_actors=1),
  )
  assert result.counts.actor_steps == 100
  assert loggers.read_jsonl(loggers.log_path(result.run_dir, 'evaluation'))


def _refuses_http(port):
  if port <= 0:
    return
  request = urllib.request.Request(
    f'http://127.0.0.1:{port}/get_or_create_runtime_env', b'{}'
  )
  with pytest.raises((urllib.error.HTTPError, OSError)) as caught:
    urllib.request.urlopen(request, timeout=10)
  if isinstance(caught.value, urllib.error.HTTPError):
    assert caught.value.code in (401, 403, 404, 405)
    caught.value.close()


def test_a_cluster_that_is_not_there_is_told_in_one_line(tmp_path):
  with pytest.raises(
    ConnectionError, match=r"cluster \('127.0.0.1:1'\) must be a Ray .*refused"
  ):
    ray_engine._check_address('127.0.0.1:1')


_ENGINE = """
import pathlib, sys, time
from ftwax.runtime.distributed import ray_engine, settings

class Node:
  def run(self):
    # A program that a node starts, and that nobody ends.
    import subprocess
    subprocess.Popen(['sleep', '1000'], start_new_session=True)

directory = pathlib.Path(sys.argv[1])
(directory / 'output').mkdir(parents=True)
engine = ray_engine.RayEngine(settings.Settings(num_actors=1), directory)
engine.start({'actor/0': Node})
engine.get(engine.call('actor/0', 'run')[0])
import ray
print(ray._private.worker._global_node.get_temp_dir_path(), flush=True)
time.sleep(1000)
"""


def _marked(folder):
  found = []
  for path in pathlib.Path('/proc').glob('[0-9]*/environ'):
    with contextlib.suppress(OSError):
      if f'FTWAX_STARTED_IN={folder}'.encode() in path.read_bytes():
        found.append(int(path.parent.name))
  return found


def test_nothing_of_ray_outlives_a_killed_run(tmp_path):
  process = subprocess.Popen(
    [sys.executable, '-W', 'ignore', '-c', _ENGINE, str(tmp_path / 'run')],
    stdout=subprocess.PIPE,
    text=True,
    env=os.environ | {'TMPDIR': '/tmp'},
  )
  try:
    folder = pathlib.Path(process.stdout.readline().strip()).parent
    assert len(_marked(folder)) > 3
  finally:
    process.kill()
    process.communicate()
  deadline = time.monotonic() + 30.0
  while _marked(folder) or folder.exists():
    assert time.monotonic() < deadline, _marked(folder)
    time.sleep(0.5)
