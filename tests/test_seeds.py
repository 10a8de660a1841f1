"""Statistics over seeds and tasks, of the numbers that pages have."""

import argparse
import json
import pathlib
import sys

import numpy as np
import pytest
import scipy.stats

sys.path.append(str(pathlib.Path(__file__).parents[1] / 'benchmarks'))

import memory
import seeds

_DEFAULTS = """
| task, score | agent | steps, seeds 0, 1, 2 | peer |
| --- | --- | --- | --- |
| CartPole-v1, 475 | PPO | 30k, 15k, 90k | 20k, 15k, 25k |
| | A3C | 15k, 15k, 45k | |
| catch, 0.9 | PPO | 20k, 10k, 30k | never, 10k, never |
| Acrobot-v1, -100 | PPO | 30k, 60k, 90k | 60k, 30k, 20k |
| LunarLander-v3, 200 | PPO | 150k, 225k, 175k | |

| CartPole-v1, 475 | another table | 1k, 2k, 3k | |
"""

_CUE = """
| core | scores |
| --- | --- |
| LSTM | 0.9, 0.8, 0.7 |
| RPTH | 0.75, 0.6, 0.5 |
"""

_CORES = """
| task | LSTM | RPTH |
| --- | --- | --- |
| ten symbols in order, 2.5M steps | 0.8, 0.7, 0.6 | 1.0, 0.7, 0.25 |
| six pairs by random keys, 4M steps | 0.5, 0.5, 0.5 | 0.25, 0.4, 0.25 |
"""


def test_each_seed_of_a_page_is_read(tmp_path, monkeypatch):
  (tmp_path / 'results.md').write_text(_DEFAULTS + _CUE)
  (tmp_path / 'which_core.md').write_text(_CORES)
  monkeypatch.setattr(seeds, '_DOCS', tmp_path)
  scores = seeds.read_defaults()
  assert list(scores) == ['PPO', "SB3's PPO"]
  # Shares of the 150k, 200k and 300k steps that tasks have; and never.
  np.testing.assert_allclose(
    scores['PPO'], [[0.8, 0.9, 0.9], [0.9, 0.95, 0.8], [0.4, 0.85, 0.7]]
  )
  np.testing.assert_array_equal(scores["SB3's PPO"][:, 1], [0.0, 0.95, 0.0])
  cores = seeds.read_cores()
  assert list(cores) == ['LSTM', 'RPTH']
  np.testing.assert_allclose(
    cores['RPTH'], [[1.0, 0.0, 0.5], [0.6, 0.2, 0.2], [0.0, 0.0, 0.0]]
  )


def test_pages_have_three_seeds_of_all():
  scores = seeds.read_defaults()
  assert list(scores) == ['PPO', "SB3's PPO", 'IMPALA', 'A2C', "SB3's A2C"]
  for name, values in scores.items():
    assert values.shape == (3, 3), name
    assert values.min() >= 0.0 and 0.0 < values.max() < 1.0, name
  cores = seeds.read_cores()
  assert list(cores) == ['LSTM', 'RPTH']
  for name, values in cores.items():
    assert values.shape == (3, 3), name


def test_the_figure_shows_means_of_the_middle_half(tmp_path, capsys):
  pytest.importorskip('rliable')
  rng = np.random.default_rng(0)
  scores = {'low': rng.uniform(0, 1, (4, 5)), 'high': np.ones((4, 5))}
  seeds.draw(scores, [('high', 'low')], 'score', tmp_path / 'figure.png')
  low, high, better, _ = capsys.readouterr().out.splitlines()
  middle = scipy.stats.trim_mean(scores['low'], 0.25, axis=None)
  assert low.startswith(f"'low': {middle:.2f} (")
  assert high == "'high': 1.00 (1.00 to 1.00)"
  assert better.endswith(': 1.00 (1.00 to 1.00)')
  assert (tmp_path / 'figure.png').stat().st_size > 10_000


def test_cores_that_have_done_all_tasks_are_compared(tmp_path, monkeypatch):
  drawn = {}
  monkeypatch.setattr(seeds, 'draw', lambda *args: drawn.update(args[0]))
  args = argparse.Namespace(
    directory=str(tmp_path), num_steps=1000, set=[], task='', core=''
  )
  for core, tasks in (
    ('lstm', memory._COMPARED), ('gru', memory._COMPARED[1:])
  ):  # fmt: skip
    for task in tasks:
      chance = memory._TASKS[task].chance
      rows = [
        {'returns': [chance, (1 + chance) / 2, part / 19]} for part in range(20)
      ]
      path = tmp_path / f'{task}-{core}-1000.jsonl'
      path.write_text('\n'.join(map(json.dumps, rows)))
  memory.profile(args)
  assert list(drawn) == ['lstm']
  expected = np.tile([[0.0], [0.5]], len(memory._COMPARED))
  np.testing.assert_allclose(drawn['lstm'][:2], expected, atol=1e-12)
  guess = memory._TASKS['recall_30'].chance
  assert guess == 0.0
  last = drawn['lstm'][2][memory._COMPARED.index('recall_30')]
  np.testing.assert_allclose(last, (18 / 19 + 1) / 2)
