import json
import pathlib

import pytest

from ftwax.runtime import comparison, experiment, run_records, runs


@pytest.fixture
def asked(monkeypatch, tmp_path):
  """Runs that only write their log; what was asked for, in order."""
  asked = []

  def run_experiment(config, runtime):
    asked.append((config.name, config.seed, runtime))
    directory = tmp_path / f'{len(asked)}'
    (directory / 'logs').mkdir(parents=True)
    rows = [
      {'episode_return': 1.0 + config.seed, 'actor_steps': 10},
      {
        'episode_return': 4.0 + config.seed,
        'num_episodes': 3,
        'actor_steps': 20,
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
      None, lambda spec: None, lambda seed: None, 10, seed=seed, name=name
    )

  return {'with tasks': make('a'), 'without': make('b')}


def test_each_variant_runs_with_each_seed(asked):
  scores = comparison.compare(_make_variants(), [3, 4], 'device')
  assert asked == [
    (name, seed, 'device') for seed in (3, 4) for name in ('a', 'b')
  ]
  # The mean over episodes, not over rows.
  assert scores['with tasks'] == [
    comparison.Score(8.0, 6.25, 2.0),
    comparison.Score(9.0, 7.25, 6.0),
  ]
  assert [score.seconds for score in scores['without']] == [4.0, 8.0]


def test_tables_have_a_row_for_each_variant(asked, capsys):
  comparison.compare(_make_variants(), [3, 4], 'local')
  lines = capsys.readouterr().out.splitlines()
  (curves,) = [line for line in lines if line.startswith('Curves: ')]
  content = pathlib.Path(curves.removeprefix('Curves: ')).read_bytes()
  assert content.startswith(b'\x89PNG')
  begin = lines.index('Mean return of all episodes of the run')
  assert [line.split() for line in lines[begin + 1 : begin + 4]] == [
    ['seed', '3', 'seed', '4', 'mean'],
    ['with', 'tasks', '6.250', '7.250', '6.750'],
    ['without', '6.250', '7.250', '6.750'],
  ]
