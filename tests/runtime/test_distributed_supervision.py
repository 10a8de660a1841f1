"""Processes of a distributed run: how they start, end and are replaced."""

import os
import pathlib
import signal
import time

import psutil
import pytest

from ftwax.runtime.distributed import (
  forkserver,
  local_launcher,
  node_commands,
  processes,
  settings,
  supervision,
)

_ENVIRONMENT = {**os.environ, 'MARK': 'set'}


@pytest.fixture
def make_server(tmp_path):
  """Makes servers that import nothing, or what they are told to."""
  servers = []

  def make(*modules):
    output = tmp_path / 'forkserver.txt'
    environment = node_commands.make_import_environment(tmp_path)
    made = forkserver.Forkserver(output, environment, modules)
    servers.append(made)
    return made

  yield make
  for server in servers:
    server.__exit__()


@pytest.fixture
def write_script(tmp_path):
  def write(name, code):
    path = tmp_path / f'{name.replace("/", "-")}.py'
    path.write_text(code)
    return ['python', str(path), '--flag']

  return write


class TestForkserver:
  def _run(self, server, arguments):
    output = pathlib.Path(arguments[1]).with_suffix('.txt')
    process = server.start(arguments, _ENVIRONMENT, output)
    assert process.wait(30.0)
    return process.returncode, output.read_text()

  def test_a_process_is_as_good_as_new(self, make_server, write_script):
    code = (
      'import os, random, sys\n'
      'print(__name__, sys.argv[1:], os.environ["MARK"], os.getppid())\n'
      'print(os.getpgid(0) == os.getpid(), sys.stdin.read())\n'
      'print(len(os.listdir("/proc/self/fd")))\n'
      'sys.exit("the end")\n'
    )
    status, text = self._run(make_server(), write_script('node', code))
    # Files: input, both outputs, and that of the listing.
    assert text.splitlines() == [
      f"__main__ ['--flag'] set {os.getpid()}",
      'True ',
      '4',
      'the end',
    ]
    assert status == 1

  def test_modules_are_there_and_draws_differ(self, make_server, write_script):
    code = (
      'import sys\n'
      'assert "numpy" in sys.modules\n'
      'import numpy, random\n'
      'print(numpy.random.random(), random.random())\n'
    )
    server = make_server('numpy')
    drawn = [
      self._run(server, write_script(f'node{index}', code))
      for index in range(2)
    ]
    assert [status for status, _ in drawn] == [0, 0]
    assert not set(drawn[0][1].split()) & set(drawn[1][1].split())

  def test_the_platform_of_a_node_is_its_own(self, make_server, write_script):
    code = 'import jax; print(jax.config.jax_platforms)'
    server = make_server('jax')
    for platform in ('cpu', 'tpu'):
      arguments = write_script(platform, code)
      output = pathlib.Path(arguments[1]).with_suffix('.txt')
      environment = {**os.environ, 'JAX_PLATFORMS': platform}
      assert server.start(arguments, environment, output).wait(30.0)
      assert output.read_text() == f'{platform}\n'

  def test_a_server_that_is_killed_is_started_anew_and_no_node_ends(
    self, make_server, write_script, tmp_path
  ):
    sleep = write_script('sleep', 'import time; time.sleep(100)')
    before = {child.pid for child in psutil.Process().children()}
    server = make_server()
    first = server.start(sleep, _ENVIRONMENT, tmp_path / 'out.txt')
    after = {child.pid for child in psutil.Process().children()}
    (pid,) = after - before - {first.pid}
    os.kill(pid, signal.SIGKILL)
    while psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
      time.sleep(0.01)
    second = server.start(sleep, _ENVIRONMENT, tmp_path / 'out.txt')
    assert first.poll() is None
    assert second.poll() is None
    for process in (first, second):
      process.send(signal.SIGKILL)
      assert process.wait(10.0)
      assert process.returncode == -signal.SIGKILL

  def test_a_process_just_forked_can_be_killed(
    self, make_server, write_script, tmp_path
  ):
    sleep = write_script('sleep', 'import time; time.sleep(100)')
    server = make_server()
    for _ in range(50):
      process = server.start(sleep, _ENVIRONMENT, tmp_path / 'out.txt')
      process.send(signal.SIGKILL)
      assert process.wait(5.0)

  def test_an_import_that_fails_is_told(self, make_server, write_script):
    server = make_server('no_such_module')
    with pytest.raises(
      forkserver.ForkserverError,
      match=r'nodes are forked has ended with status 1; see .*forkserver\.txt',
    ):
      self._run(server, write_script('node', ''))

  def test_imports_that_start_threads_are_refused(
    self, make_server, write_script, tmp_path, monkeypatch
  ):
    (tmp_path / 'threaded_module.py').write_text(
      'import threading, time\n'
      'threading.Thread(target=time.sleep, args=(5,), daemon=True).start()\n'
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    server = make_server('threaded_module')
    with pytest.raises(forkserver.ForkserverError, match='ended with status 1'):
      self._run(server, write_script('node', ''))
    told = (tmp_path / 'forkserver.txt').read_text()
    assert 'imports started threads (there are 2)' in told

  def test_what_one_process_compiled_the_next_one_loads(
    self, make_server, write_script, monkeypatch
  ):
    monkeypatch.setenv('JAX_ENABLE_COMPILATION_CACHE', 'true')
    code = (
      'import jax\n'
      'from jax import monitoring\n'
      'events = []\n'
      'monitoring.register_event_listener(lambda e, **_: events.append(e))\n'
      'print(jax.jit(lambda x: 3 * x + 1)(2.0))\n'
      'print(sum(e.endswith("cache_hits") for e in events) > 0)\n'
    )
    server = make_server('jax')
    for has_hits in (False, True):
      status, output = self._run(server, write_script(f'{has_hits}', code))
      assert (status, output) == (0, f'7.0\n{has_hits}\n')

  def test_the_users_own_cache_is_used(self, tmp_path, monkeypatch):
    monkeypatch.setenv('JAX_COMPILATION_CACHE_DIR', 'theirs')
    made = node_commands.make_import_environment(tmp_path)
    assert made['JAX_COMPILATION_CACHE_DIR'] == 'theirs'


def _pids(supervisor):
  return {
    name: node.process.pid
    for name, node in supervisor._nodes.items()
    if node.is_alive()
  }


class TestSupervisor:
  @pytest.fixture
  def supervise(self, make_server, write_script, tmp_path):
    server = make_server()

    def make(scripts, dependents=None, **options):
      commands = [
        node_commands.Command(name, write_script(name, code), {})
        for name, code in scripts.items()
      ]
      return supervision.Supervisor(
        commands,
        tmp_path,
        settings.Settings(**options),
        local_launcher.LocalLauncher(server),
        dependents or {},
      )

    return make

  def _poll(self, supervisor, condition, timeout_s=30.0):
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
      ended = supervisor.poll()
      if condition(ended):
        return
      time.sleep(0.02)
    pytest.fail('it did not come so far in time')

  def test_nodes_that_end_are_left_alone(self, supervise, tmp_path):
    with supervise({'actor/0': 'print("ok")'}) as supervisor:
      self._poll(supervisor, lambda ended: ended)
      assert supervisor.restarts == {'actor/0': 0}
    assert (tmp_path / 'actor-0.txt').read_text() == 'ok\n'

  def test_a_node_that_is_killed_is_replaced(self, supervise):
    scripts = {'actor/0': 'import time; time.sleep(100)'}
    with supervise(scripts, max_restarts=1) as supervisor:
      first = _pids(supervisor)['actor/0']
      os.kill(first, signal.SIGKILL)
      self._poll(supervisor, lambda _: supervisor.restarts['actor/0'] == 1)
      second = _pids(supervisor)['actor/0']
      assert second != first
      os.kill(second, signal.SIGKILL)
      with pytest.raises(
        supervision.NodeFailedError,
        match=r'actor/0 must not fail more than 1 times.*killed by SIGKILL',
      ):
        self._poll(supervisor, lambda _: False)
    assert _pids(supervisor) == {}

  def test_actors_share_a_limit(self, supervise):
    scripts = {
      f'actor/{index}': 'import time; time.sleep(100)' for index in range(2)
    }
    with supervise(scripts, max_restarts=1) as supervisor:
      for count in (1, 2):
        os.kill(_pids(supervisor)['actor/0'], signal.SIGKILL)
        self._poll(
          supervisor,
          lambda _, count=count: supervisor.restarts['actor/0'] == count,
        )
      os.kill(_pids(supervisor)['actor/1'], signal.SIGKILL)
      with pytest.raises(supervision.NodeFailedError, match='than 2 times in'):
        self._poll(supervisor, lambda _: False)

  def test_who_gives_no_sign_of_life_is_replaced(self, supervise, tmp_path):
    code = (
      'import os, pathlib, time\n'
      'while True:\n'
      '  pathlib.Path(os.environ["FTWAX_HEART"]).touch()\n'
      '  time.sleep(0.1)\n'
    )
    scripts = {'actor/0': code, 'learner': code}
    with supervise(scripts, heartbeat_timeout_s=2.0) as supervisor:
      before = _pids(supervisor)
      os.kill(before['actor/0'], signal.SIGSTOP)
      self._poll(supervisor, lambda _: supervisor.restarts['actor/0'] == 1)
      assert _pids(supervisor)['learner'] == before['learner']
      assert supervisor.restarts['learner'] == 0
    assert 'no sign of life for 2 s' in (tmp_path / 'actor-0.txt').read_text()

  def test_a_fatal_error_ends_the_run_with_its_last_words(self, supervise):
    code = f'print("too bad"); raise SystemExit({processes.FATAL})'
    with (
      supervise({'learner': code}) as supervisor,
      pytest.raises(
        supervision.NodeFailedError,
        match=r'learner failed for good: too bad \(see .*learner.txt\)',
      ),
    ):
      self._poll(supervisor, lambda _: False)

  def test_who_does_not_end_in_time_is_killed(self, supervise, tmp_path):
    stubborn = (
      'import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);'
      ' print("up", flush=True); time.sleep(100)'
    )
    with supervise({'learner': stubborn}, stop_timeout_s=0.2) as supervisor:
      output = tmp_path / 'learner.txt'
      self._poll(supervisor, lambda _: 'up' in output.read_text())
      supervisor.stop()
      assert _pids(supervisor) == {}

  def test_replay_servers_get_the_time_to_save(self, supervise, tmp_path):
    saves = (
      'import signal, sys, time\n'
      'def save(*_):\n'
      '  time.sleep(3.0)\n'
      '  print("saved", flush=True)\n'
      '  sys.exit(0)\n'
      'signal.signal(signal.SIGTERM, save)\n'
      'print("up", flush=True)\n'
      'time.sleep(100)\n'
    )
    with supervise({'replay': saves}) as supervisor:
      output = tmp_path / 'replay.txt'
      self._poll(
        supervisor, lambda _: output.exists() and 'up' in output.read_text()
      )
      supervisor.stop()
      assert 'saved' in output.read_text()

  def test_what_a_node_started_ends_with_it(self, supervise, tmp_path):
    code = (
      'import os, subprocess, time\n'
      'child = subprocess.Popen(["sleep", "100"])\n'
      'print(child.pid, flush=True)\n'
      'time.sleep(100)\n'
    )
    output = tmp_path / 'actor-0.txt'
    with supervise({'actor/0': code}) as supervisor:
      self._poll(
        supervisor, lambda _: output.exists() and output.read_text() != ''
      )
      child = psutil.Process(int(output.read_text()))
    _, alive = psutil.wait_procs([child], 10.0)
    assert not alive

  def test_the_death_of_the_replay_server_starts_its_clients_anew(
    self, supervise
  ):
    names = ('counter', 'replay', 'learner', 'actor/0')
    scripts = dict.fromkeys(names, 'import time; time.sleep(100)')
    dependents = {'replay': ['learner', 'actor/0']}
    with supervise(scripts, dependents) as supervisor:
      before = _pids(supervisor)
      os.kill(before['replay'], signal.SIGKILL)
      self._poll(supervisor, lambda _: supervisor.restarts['replay'] == 1)
      after = _pids(supervisor)
      changed = {name for name in names if before[name] != after[name]}
      assert changed == {'replay', 'learner', 'actor/0'}
      assert supervisor.restarts['actor/0'] == 0

  def test_learners_share_the_fate_of_one_that_died(self, supervise):
    sleep = 'import time; time.sleep(100)'
    scripts = {'learner/0': sleep, 'learner/1': '', 'actor/0': sleep}
    with supervise(scripts, {'learner/0': ['learner/1']}) as supervisor:
      self._poll(supervisor, lambda _: 'learner/1' not in _pids(supervisor))
      before = supervisor._nodes['learner/1'].process.pid
      os.kill(_pids(supervisor)['learner/0'], signal.SIGKILL)
      self._poll(supervisor, lambda _: supervisor.restarts['learner/0'] == 1)
      assert supervisor._nodes['learner/1'].process.pid != before
      assert supervisor.restarts['learner/1'] == 0

  def test_what_ended_all_learners_is_told(self, supervise, tmp_path):
    fatal = (
      'import signal, sys, time\n'
      'def end(*_): print("no batch"); sys.exit(70)\n'
      'signal.signal(signal.SIGTERM, end)\n'
      'print("up", flush=True)\n'
      'time.sleep(100)\n'
    )
    scripts = {'learner/0': 'import time; time.sleep(100)', 'learner/1': fatal}
    with (
      supervise(scripts, {'learner/0': ['learner/1']}) as supervisor,
      pytest.raises(
        supervision.NodeFailedError, match='learner/1 failed for good: no batch'
      ),
    ):
      output = tmp_path / 'learner-1.txt'
      self._poll(supervisor, lambda _: 'up' in output.read_text())
      os.kill(_pids(supervisor)['learner/0'], signal.SIGKILL)
      self._poll(supervisor, lambda _: False)
