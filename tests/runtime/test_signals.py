"""Signals wait until a run asks for them."""

import os
import signal
import subprocess
import sys
import time

import pytest

from ftwax.runtime import signals

NOTICES = ['SIGUSR1', 'SIGUSR2', 'SIGXCPU']


@pytest.mark.parametrize('name', ['SIGINT', 'SIGTERM', 'SIGHUP', *NOTICES])
def test_a_signal_waits(name):
  signum = signal.Signals[name]
  before = signal.getsignal(signum)
  with signals.deferred_interrupts() as check:
    check()
    os.kill(os.getpid(), signum)
    with pytest.raises(KeyboardInterrupt, match=name):
      check()
  # The next second of CPU time would end the process.
  after = signal.SIG_IGN if name == 'SIGXCPU' else before
  assert signal.getsignal(signum) is after
  signal.signal(signum, before)


def test_what_is_ignored_stays_ignored():
  before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
  try:
    with signals.deferred_interrupts() as check:
      os.kill(os.getpid(), signal.SIGHUP)
      check()
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
  finally:
    signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize('name', NOTICES)
def test_a_notice_may_come_again(name):
  before = signal.getsignal(signal.Signals[name])
  with signals.deferred_interrupts() as check:
    for _ in range(3):
      os.kill(os.getpid(), signal.Signals[name])
    with pytest.raises(KeyboardInterrupt, match=name):
      check()
  signal.signal(signal.Signals[name], before)


def test_a_program_keeps_the_signals_that_it_uses():
  seen = []
  before = signal.signal(signal.SIGUSR1, lambda *_: seen.append('own'))
  try:
    with signals.deferred_interrupts() as check:
      os.kill(os.getpid(), signal.SIGUSR1)
      check()
    assert seen == ['own']
  finally:
    signal.signal(signal.SIGUSR1, before)


def test_other_systems_have_fewer_signals():
  code = (
    'import signal\n'
    "for name in 'HUP', 'USR1', 'USR2', 'XCPU':\n"
    "  delattr(signal, f'SIG{name}')\n"
    'from ftwax.runtime import signals\n'
    'with signals.deferred_interrupts() as check:\n'
    '  check()\n'
  )
  subprocess.run([sys.executable, '-c', code], check=True)


_RUN = """
import os, signal, sys, time
import gymnasium, ftwax
from ftwax.agents import ppo
from ftwax.environments import process_games

experiment = ftwax.ExperimentConfig(
  agent=ppo.PPOConfig(core='feed_forward', batch_size=4, num_minibatches=2),
  environment='{environment}',
  max_num_actor_steps=10**9,
  num_environments=2,
  stepping=process_games.Stepping(processes={processes}),
)
ftwax.run(experiment, run_dir=sys.argv[1], runtime={runtime!r})
"""


@pytest.mark.parametrize(
  ('runtime', 'processes', 'name'),
  [
    pytest.param('local', 2, 'SIGUSR1', marks=pytest.mark.ci),
    ('local', 2, 'SIGTERM'),
    pytest.param('local', 0, 'SIGXCPU', marks=pytest.mark.slow),
    pytest.param('local', 2, 'SIGUSR2', marks=pytest.mark.slow),
  ],
)
def test_a_signal_to_all_processes_saves(runtime, processes, name, tmp_path):
  """As Slurm's `--signal` does without `B:`."""
  code = _RUN.format(
    environment='CartPole-v1', processes=processes, runtime=runtime
  )
  with subprocess.Popen(
    [sys.executable, '-c', code, tmp_path / 'run'],
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
    text=True,
  ) as process:
    log = tmp_path / 'run/logs/train.jsonl'
    deadline = time.monotonic() + 120.0
    while not (log.exists() and log.stat().st_size):
      assert process.poll() is None and time.monotonic() < deadline
      time.sleep(0.2)
    for pid in [*_children(process.pid), process.pid]:
      os.kill(pid, signal.Signals[name])
    output, errors = process.communicate(timeout=60.0)
  assert 'Interrupted. Saved at' in output
  assert f'KeyboardInterrupt: {name}' in errors
  assert process.returncode in (-signal.SIGINT, 130)
  assert any((tmp_path / 'run/checkpoints').iterdir())


def _children(pid):
  """Returns the processes that a process has started."""
  path = f'/proc/{pid}/task/{pid}/children'
  with open(path, encoding='ascii') as file:
    found = [int(word) for word in file.read().split()]
  return [*found, *(other for child in found for other in _children(child))]
