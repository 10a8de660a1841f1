"""The table of ablations, from runs that are kept."""

import json
import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[1]


@pytest.fixture(scope='module')
def ablation():
  """The program, which is outside of the package."""
  sys.path.insert(0, str(ROOT / 'benchmarks'))
  try:
    import ablation as module
  finally:
    sys.path.pop(0)
  return module


def _keep_run(directory, scores, seconds):
  (directory / 'logs').mkdir(parents=True)
  rows = [
    {
      'actor_steps': 1000 * (i + 1),
      'scores/random': score,
      'member_scores': [[score]],
      'member_games': [[8]],
    }
    for i, score in enumerate(scores)
  ]
  log = directory / 'logs' / 'evaluation.jsonl'
  log.write_text(''.join(json.dumps(row) + '\n' for row in rows), 'utf-8')
  (directory / 'cpu_seconds.txt').write_text(seconds, 'utf-8')


def test_variants_are_compared_at_equal_processor_time(
  ablation, tmp_path, capsys
):
  options = ablation.Options(
    directory=str(tmp_path), max_num_actor_steps=2000, num_seeds=1
  )
  # The second one was interrupted, and takes twice the time in all.
  _keep_run(tmp_path / 'main_experiment-seed0', [0.5, 0.6], '50\n')
  _keep_run(tmp_path / 'with_noise-seed0', [0.7, 0.9], '60\n40\n')
  ablation._compare(options, ['main_experiment', 'with_noise'], [0])
  output = capsys.readouterr().out
  rows = {line.split()[0]: line for line in output.splitlines() if line}
  assert '0.60 (0.60 to 0.60)' in rows['main_experiment']
  assert '0.90 (0.90 to 0.90)' in rows['with_noise']
  assert '0.70 (0.70 to 0.70)' in rows['with_noise']  # At equal time.
  assert (tmp_path / 'ablation.png').exists()


def test_runs_are_evaluated_on_maps_of_full_size(
  ablation, tmp_path, monkeypatch
):
  seen = []
  monkeypatch.setattr(ablation.os, 'sched_setaffinity', lambda *unused: None)
  monkeypatch.setattr(
    ablation.ftwax, 'run', lambda made, *unused, **options: seen.append(made)
  )
  options = ablation.Options(directory=str(tmp_path))
  ablation.run(options, 'with_gru')
  (made,) = seen
  game = made.evaluation.environment
  assert game.func is ablation.capture_the_flag.make_game
  assert not made.evaluation.greedy
