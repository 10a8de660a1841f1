"""The paper's quadratic, by the command that a user types."""

import json
import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).parents[2]
NUM_STEPS = 200
LEARNING_RATE = 0.02


@pytest.fixture(scope='module')
def run(tmp_path_factory):
  directory = tmp_path_factory.mktemp('pbt_quadratic')
  result = subprocess.run(
    [
      sys.executable,
      str(ROOT / 'tests' / 'research' / 'pbt_quadratic.py'),
      f'--directory={directory}',
    ],
    capture_output=True,
    text=True,
    timeout=300,
    check=False,
  )
  assert result.returncode == 0, result.stderr
  heights = {
    name: float(height)
    for name, height in re.findall(
      r'(\w+) +best height ([\d.]+)', result.stdout
    )
  }
  return heights, directory


def _heights(birth, rows):
  """Climbs both surrogates in NumPy, with the copies that `rows` tell of."""
  names = ('h_x', 'h_y')
  weights = np.array([birth['hyperparameters'][name] for name in names]).T
  theta = np.array([[0.9, 0.9], [0.9, 0.90001]])
  heights = []
  for step in range(1, NUM_STEPS + 1):
    theta = theta * (1.0 - 2.0 * LEARNING_RATE * weights)
    before = theta.copy()
    for row in rows:
      if row['generation'] == step:
        theta[row['member']] = before[row['parent']]
        traits = row['hyperparameters']
        weights[row['member']] = [traits[name] for name in names]
    heights.append(1.2 - np.square(theta).sum(axis=1))
  return np.array(heights)


@pytest.mark.slow
def test_fixed_members_stop_half_way_up(run):
  # One coordinate stays at 0.9, the other shrinks by 0.96 a step.
  expected = 1.2 - 0.81 - 0.81 * 0.96 ** (2 * NUM_STEPS)
  assert abs(run[0]['fixed'] - expected) <= 5.1e-5


def test_the_population_reaches_the_top(run):
  assert run[0]['population'] >= 1.199


def test_the_lineage_tells_the_whole_run(run):
  heights, directory = run
  lines = (directory / 'lineage.jsonl').read_text().splitlines()
  birth, *rows = map(json.loads, lines)
  assert birth['hyperparameters'] == {'h_x': [1.0, 0.0], 'h_y': [0.0, 1.0]}
  climbed = _heights(birth, rows)
  assert abs(climbed[-1].max() - heights['population']) <= 6e-5
  # Whoever copied was lower, by as much as was written.
  for row in rows:
    before = _heights(
      birth, [r for r in rows if r['generation'] < row['generation']]
    )
    lower, higher = before[row['generation'] - 1][
      [row['member'], row['parent']]
    ]
    assert 0.0 < row['evidence']
    assert abs(higher - lower - row['evidence']) < 1e-5
  # Without the first copy both would have stopped half way up.
  assert _heights(birth, [])[-1].max() < 0.4


def test_the_picture_is_there(run):
  picture = run[1] / 'pbt_quadratic.png'
  assert picture.read_bytes().startswith(b'\x89PNG')
