"""Vectors of actions are learned with the settings that the command takes."""

import numpy as np
import pytest

from ftwax.cli import launch
from ftwax.records import loggers
from ftwax.runtime import runs

pytestmark = pytest.mark.slow


def _last_training_episodes(tmp_path, task, steps):
  """Returns the mean return of the last training episodes, at most 100."""
  argv = [f'--steps={steps}', '--seed=5', '--eval_every=0']
  run_dir = tmp_path / 'run'
  result = runs.run_experiment(launch.find(task, argv).build(), run_dir=run_dir)
  rows = loggers.read_jsonl(loggers.log_path(run_dir, 'learner'))
  late = [row['kl_old_new'] for row in rows[-20:]]
  assert 1e-3 < np.mean(late) < 0.05
  return result.mean_return


def test_the_pendulum_swings_up(tmp_path):
  pytest.importorskip('gymnasium')
  # Without learning it is at -1,200.
  assert _last_training_episodes(tmp_path, 'Pendulum-v1', 100_000) > -300


def test_the_hopper_hops(tmp_path):
  pytest.importorskip('mujoco')
  # What stands still gets 1 a step; 250 is an early fall.
  assert _last_training_episodes(tmp_path, 'Hopper-v5', 200_000) > 400
