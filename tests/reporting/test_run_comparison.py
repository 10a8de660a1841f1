import pytest

from ftwax.records import loggers, run_directory
from ftwax.reporting import run_comparison


def _make_run(root, seed, learning_rate):
  config = {'name': 'my_game', 'seed': seed, 'builder': learning_rate}
  run_dir = run_directory.create(root, 'a', seed, config)
  for label, rows in (
    ('train', [{'actor_steps': 10 * i, 'episode_return': i} for i in (1, 2)]),
    (
      'evaluation',
      [
        {
          'actor_steps': 20,
          'seconds': 1.0,
          'scores/random': 0.75,
          'member_elo': [90.0 + seed, 110.0 + seed],
        }
      ],
    ),
  ):
    logger = loggers.JSONLLogger(loggers.log_path(run_dir, label))
    for row in rows:
      logger.write(row)
    logger.close()
  return run_dir


def test_runs_stand_side_by_side(tmp_path):
  run_dirs = [_make_run(tmp_path, seed, 0.1 * (seed + 1)) for seed in (0, 1)]
  path = run_comparison.compare_runs(run_dirs, tmp_path / 'page' / 'two.html')
  text = path.read_text()
  for name in run_dirs:
    assert name.name in text
  assert '<td class="number">100</td><td class="number">101</td>' in text
  assert '<td>builder</td><td class="number">0.1</td>' in text
  assert '<td>experiment</td><td class="number">My game</td>' in text
  assert 'at the end 100 in' in text  # The description of the chart.
  assert text.count('<img') == 2
  same = run_comparison.compare_runs(run_dirs[:1] * 2, path).read_text()
  assert 'The configurations are equal.' in same


def test_what_cannot_be_compared(tmp_path):
  run_dir = _make_run(tmp_path, 0, 0.1)
  path = tmp_path / 'page.html'
  with pytest.raises(ValueError, match=r'run_dirs \(1\) must be two or more'):
    run_comparison.compare_runs([run_dir], path)
  with pytest.raises(ValueError, match='must be directories of runs'):
    run_comparison.compare_runs([run_dir, tmp_path], path)
  assert not path.exists()
