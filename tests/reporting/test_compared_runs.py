import json
import re

import numpy as np
import pytest

from ftwax.records import loggers, run_directory
from ftwax.reporting import comparison, curves


def _log(run_dir, rows):
  run_dir.mkdir(exist_ok=True)
  (run_dir / 'config.json').write_text(json.dumps({'name': 'catch'}))
  logger = loggers.JSONLLogger(loggers.log_path(run_dir, 'train'))
  for steps, episode_return, num_episodes in rows:
    logger.write(
      {
        'episode_return': episode_return,
        'num_episodes': num_episodes,
        'actor_steps': steps,
      }
    )
  logger.close()
  return run_dir


def test_means_are_of_episodes_between_steps(tmp_path):
  run_dir = _log(tmp_path, [(1, 0.0, 1), (2, 1.0, 3), (9, 5.0, 1)])
  episodes = curves.read_returns(run_dir, 'train')
  means = curves.mean_by_step(episodes, np.array([0.0, 3.0, 6.0, 9.0]))
  np.testing.assert_array_equal(means, [0.75, np.nan, 5.0])


def test_each_run_has_a_line_and_each_variant_a_mean(tmp_path):
  def run_dir(name, seed, episode_return):
    rows = [(step, episode_return, 1) for step in range(1, 81)]
    return comparison.read(_log(tmp_path / f'{name}{seed}', rows))

  figure = comparison.plot(
    {
      'a': [run_dir('a', seed, float(seed)) for seed in (1, 3)],
      'b': [run_dir('b', 0, 7.0)],
    },
    'two variants',
  )
  (axes,) = figure.axes
  means = {
    line.get_label(): set(line.get_ydata())
    for line in axes.lines
    if not line.get_label().startswith('_')
  }
  assert means == {'a, mean of 2': {2.0}, 'b': {7.0}}
  alone = [set(x.get_ydata()) for x in axes.lines if x.get_label()[0] == '_']
  assert alone == [{1.0}, {3.0}]


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
          'member_scores': [[0.5 + 0.25 * seed]] * 2,
          'member_games': [[100]] * 2,
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
  runs = [comparison.read(run_dir) for run_dir in run_dirs]
  path = comparison.write_page(runs, tmp_path / 'page' / 'two.html')
  text = path.read_text()
  for name in run_dirs:
    assert name.name in text
  assert '<td class="number">0</td><td class="number">191</td>' in text
  assert '<td>builder</td><td class="number">0.1</td>' in text
  assert '<td>experiment</td><td class="number">My game</td>' in text
  assert 'at the end 0 in' in text  # The description of the chart.
  assert text.count('class="figure"') == 2 and '<img' not in text
  same = comparison.write_page(runs[:1] * 2, path).read_text()
  assert 'The configurations are equal.' in same


def test_a_page_shows_intervals_over_seeds(tmp_path):
  run_dirs = [_make_run(tmp_path, seed, 0.1) for seed in (0, 1)]
  runs = [comparison.read(run_dir) for run_dir in run_dirs]
  text = comparison.write_page(runs, tmp_path / 'two.html').read_text()
  found = re.findall('class="figure">(.*?)</script>', text)
  returns, elo = map(json.loads, found)
  (line,) = returns['lines']
  assert line['name'] == 'my_game, mean of 2'
  assert line['low'] == line['y'] == [1.0, 2.0]  # Both runs are equal there.
  (line,) = elo['lines']
  half = line['high'][0] - line['y'][0]
  # Of 0 and 191, by Student's distribution of one degree of freedom.
  assert half == pytest.approx(12.706 * line['y'][0], rel=1e-3)


def test_what_cannot_be_compared(tmp_path):
  run = comparison.read(_make_run(tmp_path, 0, 0.1))
  path = tmp_path / 'page.html'
  with pytest.raises(ValueError, match=r'runs \(1\) must be two or more'):
    comparison.write_page([run], path)
  with pytest.raises(ValueError, match='must be the directory of a run with'):
    comparison.read(tmp_path)
  assert not path.exists()
