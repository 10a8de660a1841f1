"""Nothing of a run is reached from another host."""

import os
import pathlib
import signal
import subprocess
import sys
import time

import distributed_helpers
import network_namespaces
import pytest
import run_helpers

from ftwax import loopback
from ftwax.runtime import distributed

ROOT = pathlib.Path(__file__).parents[2]

_START_S = 120.0

# A port that is open, to be found by a scan that finds none else.
CONTROL = """
import socket
with socket.create_server(('', 0)) as server:
  print(server.getsockname()[1], flush=True)
  input()
"""


def _listening(host):
  """Returns the ports on which processes of a host listen."""
  lines = host.run(['cat', '/proc/net/tcp', '/proc/net/tcp6']).stdout
  rows = [line.split() for line in lines.splitlines()]
  return {int(row[1].split(':')[1], 16) for row in rows if row[3] == '0A'}


def _learns(directory):
  return any(path.stat().st_size for path in directory.rglob('learner.jsonl'))


def _wait_for(condition):
  deadline = time.monotonic() + _START_S
  while not condition():
    assert time.monotonic() < deadline
    time.sleep(0.2)


@pytest.mark.slow
@pytest.mark.parametrize(
  ('runtime', 'num_ports'), [('local', 1), ('distributed', 4)]
)
def test_a_scan_of_a_default_run_finds_no_port(tmp_path, runtime, num_ports):
  """With the parts of a run that have a port: all there are."""
  command = [
    *(sys.executable, 'experiments/catch.py', f'--runtime={runtime}'),
    *(f'--run_dir={tmp_path / "run"}', '--max_num_actor_steps=100000000'),
  ]
  if runtime == 'distributed':
    command.append('--inference_server')
  with (
    network_namespaces.hosts(2) as (home, outside),
    home.popen(
      command,
      cwd=ROOT,
      env={**os.environ, 'PYTHONPATH': str(ROOT)},
      stdout=subprocess.DEVNULL,
      stderr=subprocess.DEVNULL,
      stdin=subprocess.DEVNULL,
    ) as run,
    home.popen(
      [sys.executable, '-c', CONTROL],
      stdin=subprocess.PIPE,
      stdout=subprocess.PIPE,
      text=True,
    ) as control,
  ):
    _wait_for(lambda: run.poll() is not None or _learns(tmp_path))
    assert run.poll() is None
    port = int(control.stdout.readline())
    assert len(_listening(home) - {port}) == num_ports
    for address in (home.address, home.address_v6):
      assert outside.scan(address) == ([port] if '.' in address else [])
    assert run.poll() is None
    run.send_signal(signal.SIGTERM)
    control.terminate()
    assert run.wait(timeout=60) == 130


@pytest.mark.parametrize('runtime', ['local', 'distributed'])
def test_a_run_is_refused_where_ports_stay_open(tmp_path, monkeypatch, runtime):
  monkeypatch.delattr(loopback.socket, 'SO_BINDTODEVICE')
  experiment = distributed_helpers.make_experiment()
  with pytest.raises(OSError, match='ports of Reverb and Courier must be clos'):
    run_helpers.make_run(runtime, tmp_path)(experiment)
  assert not any(tmp_path.iterdir())


@pytest.mark.slow
def test_a_local_run_may_be_exposed(tmp_path, monkeypatch, caplog):
  monkeypatch.delattr(loopback.socket, 'SO_BINDTODEVICE')
  experiment = distributed_helpers.make_experiment(
    expose=True, max_num_actor_steps=8
  )
  run_helpers.make_run('local', tmp_path)(experiment)
  assert 'anyone who can reach it can read, change and delete' in caplog.text


def test_a_program_may_be_exposed(tmp_path, monkeypatch):
  monkeypatch.delattr(loopback.socket, 'SO_BINDTODEVICE')
  experiment = distributed_helpers.make_experiment(expose=True)
  distributed.make_distributed_experiment(experiment, run_dir=tmp_path)
