"""What of a run is saved when it ends before its end, and how it is told."""

import os
import shutil
import signal
import subprocess
import sys
import time

import fakes
import functional_fakes
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import run_helpers

from ftwax.agents import impala
from ftwax.environments import environment_faults, process_games
from ftwax.networks import cores
from ftwax.records import checkpoints
from ftwax.replay import replay_options
from ftwax.runtime import run_records, signals
from ftwax.runtime.device import sizes

SPEC = fakes.make_vector_spec()


class _Faulty(fakes.FakeEnvironment):
  """Raises once in a while, in all of them together."""

  num_steps = 0
  period = 10**9

  def __init__(self, seed):
    super().__init__(SPEC, episode_length=4, seed=seed)

  def step(self, action):
    type(self).num_steps += 1
    if type(self).num_steps % self.period == 0:
      raise KeyError('door')
    return super().step(action)


def _make_matching(seed):
  del seed
  return functional_fakes.make_matching()


@pytest.fixture
def faulty(monkeypatch):
  monkeypatch.setattr(_Faulty, 'num_steps', 0)
  return lambda period: monkeypatch.setattr(_Faulty, 'period', period)


@pytest.fixture
def make_experiment():
  def make(environment=_Faulty, **options):
    config = impala.IMPALAConfig(
      core=cores.LSTM(8),
      sequence_length=5,
      batch_size=4,
      queue=replay_options.Queue(max_size=8),
    )
    options = {'num_environments': 2, **options}
    return run_helpers.make_experiment(config, environment, **options)

  return make


def test_a_fault_is_saved_told_and_traced(
  tmp_path, faulty, make_experiment, capsys
):
  faulty(100)
  run = run_helpers.make_run('local', tmp_path)
  with pytest.raises(environment_faults.EnvironmentFault, match='KeyError'):
    run(make_experiment())
  told = capsys.readouterr().out
  directory = tmp_path / 'run'
  assert f'Stopped by an error; see {directory / "error.txt"}' in told
  assert f'--resume --run_dir={directory}' in told
  trace = (directory / 'error.txt').read_text()
  assert "raise KeyError('door')" in trace
  (steps,) = checkpoints.saved_steps(directory / 'checkpoints')
  assert f'Saved at {steps} steps.' in told
  faulty(10**9)
  assert run(make_experiment(), resume=True).counts.actor_steps >= 200


@pytest.mark.slow
def test_environments_are_made_anew_within_a_limit(
  tmp_path, faulty, make_experiment
):
  run = run_helpers.make_run('local', tmp_path)
  config = make_experiment(stepping=process_games.Stepping(on_error='restart'))
  faulty(90)
  result = run(config)
  assert result.counts.actor_steps >= 200
  assert _Faulty.num_steps > 180
  faulty(1)
  with pytest.raises(
    environment_faults.EnvironmentFault,
    match=r'not fail more than 10 times in 300 s, but did: .*KeyError',
  ):
    run(config, name='other')


@pytest.mark.parametrize(
  'runtime', ['local', pytest.param('device', marks=pytest.mark.slow)]
)
def test_a_run_without_a_checkpoint_resumes_from_its_start(
  tmp_path, make_experiment, runtime, monkeypatch, capsys
):
  factory = _Faulty
  if runtime == 'device':
    factory = _make_matching
  config = make_experiment(factory)
  if runtime == 'device':
    config = config.replace(num_environments=4)
  run = run_helpers.make_run(runtime, tmp_path)

  def interrupt(*args, **options):
    raise KeyboardInterrupt

  with monkeypatch.context() as patched:
    patched.setattr(run_records.RunRecords, 'open_logger', interrupt)
    with pytest.raises(KeyboardInterrupt):
      run(config)
  assert 'Nothing is saved yet. To start again, add' in capsys.readouterr().out
  assert run(config, resume=True).counts.actor_steps >= 200


def test_a_run_that_was_removed_is_told(
  tmp_path, make_experiment, monkeypatch, capsys
):
  run = run_helpers.make_run('local', tmp_path)

  def interrupt(*args, **options):
    shutil.rmtree(tmp_path / 'run')
    raise KeyboardInterrupt

  with monkeypatch.context() as patched:
    patched.setattr(run_records.RunRecords, 'save_if_due', interrupt)
    with pytest.raises(KeyboardInterrupt):
      run(make_experiment(_Faulty))
  told = capsys.readouterr().out
  assert 'was removed in the meantime, so nothing is saved' in told
  assert '--resume' not in told


def test_what_a_failed_computation_took_is_saved_from_a_copy(
  tmp_path, make_experiment, monkeypatch, capsys
):
  monkeypatch.setattr(run_records, '_COPY_PERIOD_S', 0.0)
  monkeypatch.setattr(run_records, '_COPY_SHARE', 1.0)
  calls = []

  def check(value):
    calls.append(value)
    if len(calls) > 150:
      raise ValueError('no water')
    return np.float32(value)

  def observe(timestep):
    reward = jax.pure_callback(
      check,
      jax.ShapeDtypeStruct((), jnp.float32),
      timestep.reward,
      vmap_method='sequential',
    )
    return timestep._replace(reward=reward)

  def make_watched(seed):
    return functional_fakes.map_timesteps(_make_matching(seed), observe)

  monkeypatch.setattr(sizes, '_STEPS_PER_CALL', 1)
  config = make_experiment(
    make_watched, replay=None, num_environments=4, max_num_actor_steps=1000
  )
  run = run_helpers.make_run('device', tmp_path)
  with pytest.raises(
    environment_faults.EnvironmentFault,
    match=rf'no water.*at {__file__}:\d+ in check',
  ):
    run(config)
  (steps,) = checkpoints.saved_steps(tmp_path / 'run' / 'checkpoints')
  assert 0 < steps < 150
  assert f'Saved at {steps} steps' in capsys.readouterr().out


_HANG = """
import sys, time
sys.path.insert(0, sys.argv[1])
import signals  # Without JAX.
with (
  signals.answered_in_time(lambda: print('saved'), patience_s=0.2),
  signals.deferred_interrupts(),
):
  print('up', flush=True)
  {hang}
"""

_HANGS = {
  'python': 'while True: time.sleep(100)',
  # In C, in a call that no signal ends: a lock that is taken twice.
  'c': (
    'import ctypes; c = ctypes.CDLL(None); lock = ctypes.create_string_buffer('
    '64); c.pthread_mutex_lock(lock); c.pthread_mutex_lock(lock)'
  ),
}


@pytest.mark.parametrize('hang', _HANGS)
@pytest.mark.parametrize('name', ['SIGTERM', 'SIGINT', 'SIGHUP', 'SIGUSR1'])
def test_a_signal_ends_what_hangs(hang, name):
  directory = os.path.dirname(signals.__file__)
  with subprocess.Popen(
    [sys.executable, '-c', _HANG.format(hang=_HANGS[hang]), directory],
    stdout=subprocess.PIPE,
    text=True,
  ) as process:
    assert process.stdout.readline() == 'up\n'
    start = time.monotonic()
    process.send_signal(signal.Signals[name])
    assert process.wait(10.0) == 130
    assert time.monotonic() - start < 5.0
    assert process.stdout.read() == 'saved\n'


def test_who_answers_in_time_is_left_alone():
  def fail():
    raise AssertionError

  before = signal.set_wakeup_fd(-1)
  signal.set_wakeup_fd(before)
  with (
    pytest.raises(KeyboardInterrupt),
    signals.answered_in_time(fail, patience_s=0.2) as answer,
    signals.deferred_interrupts() as check,
  ):
    os.kill(os.getpid(), signal.SIGTERM)
    answer()
    time.sleep(0.4)  # As long as it takes to save.
    check()
  assert signal.set_wakeup_fd(before) == before
