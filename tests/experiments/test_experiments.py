"""Every experiment by the command that a user types, for a few steps."""

import os
import re
import signal
import subprocess
import time

import experiment_commands as commands
import pytest

from ftwax.records import loggers

COMMANDS = {
  'catch': ['catch.py', '--eval_every=600'],
  'memory_lstm': ['memory.py', '--setting=2'],
  'memory_feed_forward': ['memory.py', '--core=feed_forward', '--setting=2'],
  'impala_pong': ['atari.py', '--size=42', '--num_environments=2'],
  'ppo_CartPole-v1': ['any_environment.py', '--environment=CartPole-v1'],
  'ppo_Pendulum-v1': ['any_environment.py', '--environment=Pendulum-v1'],
  'rl2_bandits': ['rl2_bandits.py', '--runtime=local', '--num_environments=2'],
  'unreal_pong': [
    'atari.py',
    '--agent=unreal',
    '--size=42',
    '--num_environments=2',
  ],
}


@pytest.mark.slow
@pytest.mark.parametrize('name', COMMANDS)
def test_experiments_run(tmp_path, name):
  run_dir = tmp_path / 'run'
  result = commands.run(
    [*COMMANDS[name], '--max_num_actor_steps=1200'], run_dir
  )
  assert result.returncode == 0, result.stderr
  # Plain lines: this is no terminal. A run ends with a whole iteration.
  assert re.search(rf'{name}: [12],\d\d\d of 1,200 steps', result.stdout)
  assert '\x1b' not in result.stdout
  assert re.search(rf'steps/s\): .* See {run_dir}\n', result.stdout)
  assert (run_dir / 'checkpoints').exists()


@pytest.mark.parametrize(
  ('arguments', 'message'),
  [
    pytest.param(
      ['atari.py', '--game=pongg', '--size=42'],
      r'ValueError: game .*pongg.*pong',
      marks=pytest.mark.slow,
    ),
    (['catch.py', '--num_environments=0'], r'num_environments \(0\) must be'),
    (['catch.py', '--resume'], r'RunDirectoryError: .*must hold a readable'),
    pytest.param(
      ['memory.py', '--setting=99', '--runtime=device'],
      r'setting \(99\) must be from 0 to 22',
      marks=pytest.mark.slow,
    ),
    (
      ['catch.py', '--runtime=device', '--num_devices=9'],
      r'num_devices \(9\) must be from 1 to 4',
    ),
  ],
)
def test_a_bad_value_ends_in_one_message(tmp_path, arguments, message):
  result = commands.run(arguments, tmp_path / 'run')
  assert result.returncode == 1
  assert 'Traceback' not in result.stderr
  assert re.search(message, result.stderr), result.stderr


def _start(arguments, run_dir):
  return subprocess.Popen(
    commands.command(arguments, run_dir),
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
    text=True,
  )


def _wait_for(condition, process, timeout_s=120.0):
  deadline = time.monotonic() + timeout_s
  while not condition():
    assert process.poll() is None, process.stderr.read()
    assert time.monotonic() < deadline
    time.sleep(0.1)


def _num_episodes(run_dir):
  path = loggers.log_path(run_dir, 'train')
  rows = loggers.read_jsonl(path) if path.exists() else []
  return sum(row.get('num_episodes', 1) for row in rows)


@pytest.mark.slow
@pytest.mark.parametrize('signum', [signal.SIGINT, signal.SIGKILL])
def test_a_run_that_was_stopped_goes_on(tmp_path, signum):
  run_dir = tmp_path / 'run'
  arguments = ['catch.py', '--save_every_seconds=1']
  process = _start([*arguments, '--max_num_actor_steps=1000000000'], run_dir)
  try:
    checkpoints = run_dir / 'checkpoints'
    _wait_for(
      lambda: (
        checkpoints.exists()
        and any(path.name.isdecimal() for path in checkpoints.iterdir())
        and _num_episodes(run_dir) > 200
      ),
      process,
    )
    os.kill(process.pid, signum)
    process.communicate(timeout=60)
  finally:
    process.kill()
  assert process.returncode == (130 if signum == signal.SIGINT else -9)
  saved = max(int(p.name) for p in checkpoints.iterdir() if p.name.isdecimal())
  total = saved + 2000
  result = commands.run(
    [*arguments, '--resume', f'--max_num_actor_steps={total}'], run_dir
  )
  assert result.returncode == 0, result.stderr
  rows = loggers.read_jsonl(loggers.log_path(run_dir, 'train'))
  assert rows[-1]['actor_steps'] >= total - 100
  # The learner goes on counting from the checkpoint.
  learner = loggers.read_jsonl(loggers.log_path(run_dir, 'learner'))
  assert learner[-1]['learner_steps'] >= rows[-1]['actor_steps'] // 400
