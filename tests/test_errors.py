"""Errors of scripts: the line of the user and the message, nothing between."""

import os
import subprocess
import sys

import pytest

import ftwax
from ftwax import errors
from ftwax.agents import ppo
from ftwax.runtime import runs


def _experiment(environment):
  return ftwax.ExperimentConfig(
    ppo.PPOConfig(), environment, max_num_actor_steps=1_000
  )


_MISTAKES = {
  'run': lambda: ftwax.run(_experiment('CartPole-v9')),
  'load': lambda: ftwax.load('runs/none'),
  'make_train': lambda: ftwax.make_train(_experiment('CartPole-v1')),
  'check': lambda: ftwax.check_environment('CartPole-v9'),
}


def _frames(caught):
  return [entry.name for entry in caught.traceback][1:]  # Without the test.


@pytest.mark.parametrize('name', _MISTAKES)
def test_an_error_shows_the_line_of_the_user_alone(name, monkeypatch):
  monkeypatch.delenv(errors.TRACEBACK, raising=False)
  with pytest.raises(ValueError, match='must') as caught:
    _MISTAKES[name]()
  assert _frames(caught) == ['<lambda>', 'call']
  monkeypatch.setenv(errors.TRACEBACK, '1')
  with pytest.raises(ValueError, match='must') as caught:
    _MISTAKES[name]()
  assert len(_frames(caught)) > 2


def test_a_script_ends_with_the_remedy(tmp_path):
  path = tmp_path / 'script.py'
  path.write_text("import ftwax\nftwax.load('runs/none')\n")
  variables = {k: v for k, v in os.environ.items() if k != errors.TRACEBACK}
  result = subprocess.run(
    [sys.executable, str(path)],
    capture_output=True,
    text=True,
    timeout=120,
    check=False,
    env=variables,
  )
  assert result.returncode == 1
  lines = result.stderr.rstrip('\n').splitlines()
  assert len(lines) <= 8, result.stderr
  assert "ftwax.load('runs/none')" in result.stderr
  assert 'FTWAX_TRACEBACK=1 shows' in result.stderr
  assert lines[-1].startswith('ValueError: source (')


def _fail(error):
  raise error


def test_frames_of_other_code_stay():
  def train():
    _fail(ValueError('mine'))

  with pytest.raises(ValueError, match='mine') as caught:
    errors.shown_briefly(train)()
  assert _frames(caught)[-2:] == ['train', '_fail']


def test_bugs_keep_their_frames(monkeypatch):
  monkeypatch.setattr(runs.prepare, 'prepare', lambda experiment: experiment.a)
  with pytest.raises(AttributeError) as caught:
    ftwax.run(_experiment('CartPole-v1'))
  assert 'run_experiment' in _frames(caught)


def test_the_functions_are_those_of_their_modules():
  assert ftwax.run.__wrapped__ is runs.run_experiment
