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


def test_each_seed_of_a_page_is_read():
  scores = seeds.read_defaults()
  assert list(scores) == ['PPO', "SB3's PPO", 'IMPALA', 'A2C', "SB3's A2C"]
  assert {values.shape for values in scores.values()} == {(3, 3)}
  # 20k of 150k steps, 7k of 200k and 30k of 300k; and never.
  np.testing.assert_allclose(scores['PPO'][0], [1 - 20 / 150, 0.965, 0.9])
  np.testing.assert_array_equal(scores["SB3's A2C"][[0, 2], 1], 0.0)
  cores = seeds.read_cores()
  assert list(cores) == ['LSTM', 'RPTH']
  np.testing.assert_allclose(
    cores['RPTH'][1], [(0.85 - 0.25) / 0.75, (0.64 - 0.25) / 0.75, 0.26]
  )


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
