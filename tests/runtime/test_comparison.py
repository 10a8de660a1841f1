import json
import pathlib
import re

import pytest

from ftwax.agents import ppo
from ftwax.runtime import comparison, experiment, run_records, runs


@pytest.fixture
def asked(monkeypatch, tmp_path):
  """Runs that only write their log; what was asked for, in order."""
  asked = []

  def run_experiment(config, runtime):
    asked.append((config.name, config.seed, runtime))
    directory = tmp_path / f'{len(asked)}'
    (directory / 'logs').mkdir(parents=True)
    (directory / 'config.json').write_text(json.dumps({'seed': config.seed}))
    rows = [
      {
        'episode_return': 1.0 + config.seed,
        'num_episodes': 100,
        'actor_steps': 10,
      },
      {
        'episode_return': 4.0 + config.seed,
        'num_episodes': 300,
        'actor_steps': 20,
        'seconds': 2.0 * len(asked),
      },
    ]
    (directory / 'logs' / 'train.jsonl').write_text(
      ''.join(json.dumps(row) + '\n' for row in rows)
    )
    counts = run_records.Counts(episodes=4, seconds=2.0 * len(asked))
    return runs.RunResult(directory, counts, 5.0 + config.seed, None)

  monkeypatch.setattr(runs, 'run_experiment', run_experiment)
  return asked


def _make_variants():
  def make(name):
    return lambda seed: experiment.ExperimentConfig(
      ppo.PPOConfig(), 'CartPole-v1', 10, seed=seed, name=name
    )

  return {'with tasks': make('a'), 'without': make('b')}


def test_each_variant_runs_with_each_seed(asked):
  scores = comparison.compare(_make_variants(), [3, 4], 'device')
  assert asked == [
    (name, seed, 'device') for seed in (3, 4) for name in ('a', 'b')
  ]
  # Means over episodes, not over rows.
  assert [one[2:6] for one in scores['with tasks']] == [
    (7.0, 6.25, 20, 2.0),
    (8.0, 7.25, 20, 6.0),
  ]
  assert [score.seconds for score in scores['without']] == [4.0, 8.0]


def test_the_table_has_a_row_for_each_variant(asked, capsys):
  comparison.compare(_make_variants(), [3, 4], 'local')
  lines = capsys.readouterr().out.splitlines()
  (curves,) = [line for line in lines if line.startswith('Curves: ')]
  content = pathlib.Path(curves.removeprefix('Curves: ')).read_text('utf-8')
  assert 'with tasks, 2 seeds' in content
  means = ['7.5 (7 to 8)', '6.75 (6.25 to 7.25)']
  assert [re.split('  +', line.strip()) for line in lines[1:4]] == [
    ['mean return', 'runs', 'over all episodes', 'steps',
     'seconds', 'each run'],
    ['with tasks', means[0], '2', means[1], '20', '4', '7 8'],
    ['without', means[0], '2', means[1], '20', '6', '7 8'],
  ]  # fmt: skip
