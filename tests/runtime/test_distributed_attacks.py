"""Messages that no client sends end no run."""

import contextlib
import threading
import time

import courier
import distributed_helpers
import fakes
import malformed_messages
import psutil
import pytest

from ftwax.runtime import distributed

pytestmark = pytest.mark.slow

_NUM_STEPS = 6_000

# Counter, replay and learner.
_NUM_PORTS = 3
_NUM_CONNECTIONS = 1000


def _make_slow(seed):
  return _Slow(fakes.make_vector_spec(), 4, False, seed)


class _Slow(fakes.FakeEnvironment):
  """Gives an attack some time."""

  def step(self, action):
    time.sleep(0.02)
    return super().step(action)


def _find_ports():
  """Returns the process that listens on each port of this one's children."""
  found = {}
  for child in psutil.Process().children(recursive=True):
    try:
      for connection in child.net_connections('tcp'):
        if connection.status == psutil.CONN_LISTEN:
          found[connection.laddr.port] = child.pid
    except psutil.Error:
      pass  # It has ended.
  return found


def _run_attacked(attack, tmp_path):
  """Runs an experiment; `attack` gets its ports once learning goes on."""
  failures = []

  def watch():
    try:
      log = tmp_path / 'run' / 'logs' / 'learner.jsonl'
      while not (log.exists() and log.stat().st_size):
        time.sleep(0.1)
      attack(_find_ports())
    except BaseException as error:
      failures.append(error)

  thread = threading.Thread(target=watch, daemon=True)
  thread.start()
  result = distributed.run_experiment(
    distributed_helpers.make_experiment(
      environment=_make_slow, max_num_actor_steps=_NUM_STEPS
    ),
    run_dir=tmp_path / 'run',
  )
  assert not thread.is_alive(), 'the run ended before the attack'
  assert not failures
  assert result.counts.actor_steps == _NUM_STEPS
  return result


def test_malformed_messages_end_no_node(tmp_path):
  def attack(ports):
    assert len(ports) == _NUM_PORTS
    for seed, port in enumerate(ports):
      malformed_messages.send_bytes(port, seed)
      malformed_messages.send_calls(port, seed)
      client = courier.Client(f'localhost:{port}', call_timeout=1.0)
      for method in ('no_such_method', 'report_actor', 'get_variables'):
        with contextlib.suppress(Exception):
          getattr(client, method)(b'1', None)
      with malformed_messages.connections(port, _NUM_CONNECTIONS):
        time.sleep(1.0)
    assert _find_ports() == ports

  result = _run_attacked(attack, tmp_path)
  assert result.counts.episodes == _NUM_STEPS // 4
  assert result.counts.learner_steps == int(result.state.steps[0])


def test_a_replay_server_that_crashes_is_replaced(tmp_path):
  """Reverb 0.7.3 crashes at what does not parse; the run survives it."""

  def attack(ports):
    for port in ports:
      malformed_messages.crash_reverb(port)
    while len(now := _find_ports()) < _NUM_PORTS or now == ports:
      time.sleep(0.1)
    assert set(now) == set(ports)

  result = _run_attacked(attack, tmp_path)
  assert result.counts.learner_steps == int(result.state.steps[0])
