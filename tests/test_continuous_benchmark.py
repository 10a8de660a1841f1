"""The table of continuous control: what its cells are, and that it goes on."""

import json
import pathlib
import sys

import numpy as np
import pytest
from absl import flags

ROOT = pathlib.Path(__file__).parents[1]


@pytest.fixture(scope='module')
def benchmark():
  sys.path.insert(0, str(ROOT / 'benchmarks'))
  try:
    import continuous_control as module
  finally:
    sys.path.pop(0)
  return module


def _rows(returns, num_episodes=40, steps_each=1000):
  return [
    {
      'actor_steps': steps_each * (index + 1),
      'episode_return': float(value),
      'num_episodes': num_episodes,
    }
    for index, value in enumerate(returns)
  ]


def test_training_counts_the_last_hundred_episodes(benchmark):
  rows = _rows([9.0, 1.0, 2.0, 3.0])
  assert benchmark.last_episodes(rows, np.inf) == 2.0
  assert benchmark.last_episodes(rows, 2000) == 5.0
  uneven = [*_rows([1.0], 100), *_rows([4.0], 50)]
  assert benchmark.last_episodes(uneven, np.inf) == 2.0


def test_evaluation_counts_the_last_quarter(benchmark):
  rows = _rows([0.0, 0.0, 7.0, 3.0, 5.0], steps_each=200)
  assert benchmark.last_quarter(rows, 1000) == 4.0


def test_finished_runs_are_not_repeated(benchmark, monkeypatch, tmp_path):
  if not flags.FLAGS.is_parsed():
    flags.FLAGS(['test'])
  monkeypatch.setattr(flags.FLAGS, 'directory', str(tmp_path))
  done = []

  def run(task, side, seed):
    done.append((task, side, seed))
    return {'training': 1.0, 'evaluation': 2.0, 'cpu_seconds': 3.0}

  monkeypatch.setattr(benchmark, '_run_ours', run)
  for seed in ('0', '0', '1'):
    benchmark._run_missing('Hopper-v5', 'ftwax', seed)
  assert done == [
    ('Hopper-v5', 'ftwax', '0'),
    ('Hopper-v5', 'ftwax', '1'),
  ]
  assert [run['training'] for run in benchmark._read('Hopper-v5', 'ftwax')] == [
    1.0,
    1.0,
  ]
  (first, _) = sorted(tmp_path.iterdir())
  assert json.loads(first.read_text())['evaluation'] == 2.0
