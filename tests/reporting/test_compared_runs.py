import json
import re

import numpy as np
import pytest

from ftwax.environments import process_games
from ftwax.records import loggers, run_directory
from ftwax.reporting import comparison, curves, sweep_figures


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


def _make_run(root, folder, steps=20, returns=(1, 2), **config):
  config = {
    'name': 'my_game', 'seed': 0, 'max_num_actor_steps': 20, **config
  }  # fmt: skip
  run_dir = run_directory.create_at(root / folder, config)
  for label, rows in (
    ('train', [{'actor_steps': steps * i / 2, 'episode_return': returns[i - 1]}
               for i in (1, 2)]),
    (
      'evaluation',
      [
        {
          'actor_steps': 20,
          'seconds': 1.0,
          'scores/random': 0.75,
          'member_scores': [[0.5 + 0.25 * config['seed']]] * 2,
          'member_games': [[100]] * 2,
        }
      ],
    ),
  ):  # fmt: skip
    logger = loggers.JSONLLogger(loggers.log_path(run_dir, label))
    for row in rows:
      logger.write(row)
    logger.close()
  return comparison.read(run_dir)


def _agent(kind, **fields):
  return {'__type__': f'{kind.lower()}.{kind}Config', **fields}


def _game(name):
  return {'__type__': f'games:{name}', 'size': 3}


def test_only_finished_runs_that_differ_in_their_seeds_share_a_row(tmp_path):
  runs = [
    _make_run(tmp_path, 'a', seed=0),
    _make_run(tmp_path, 'b', seed=1),
    _make_run(tmp_path, 'again', seed=1),
    _make_run(tmp_path, 'stopped', seed=2, steps=10),
    _make_run(tmp_path, 'short', seed=3, steps=10, max_num_actor_steps=10),
    _make_run(tmp_path, 'slow', seed=3, stepping=process_games.Stepping(4)),
  ]
  rows = comparison.group(runs)
  assert [[run.directory.name for run in row] for row in rows.values()] == [
    ['a', 'b', 'slow'], ['again'], ['stopped'], ['short'],
  ]  # fmt: skip
  head, *lines = comparison.make_table(rows)
  steps = [line[head.index('steps')] for line in lines]
  assert steps == ['20', '20', '10 of 20', '10']
  assert list(rows)[-1] == 'max_num_actor_steps=10'
  assert list(rows)[2].endswith('stopped')


def test_runs_are_named_by_what_distinguishes_them(tmp_path):
  def names(*configs):
    runs = [
      _make_run(tmp_path / str(len(configs)), f'{index}', **config)
      for index, config in enumerate(configs)
    ]
    return list(comparison.group(runs))

  assert names({'seed': 1}) == ['my_game']
  assert names({'seed': 0}, {'name': 'other'}) == ['my_game', 'other']
  assert names(
    {'environment': _game('Maze'), 'agent': _agent('PPO', rate=0.1)},
    {'environment': _game('Maze'), 'agent': _agent('PPO', rate=0.2)},
    {'environment': _game('Pit'), 'agent': _agent('PPO', rate=0.2)},
    {'environment': _game('Pit'), 'agent': _agent('IMPALA', depth=2, rate=0.2)},
  ) == [
    'environment=Maze rate=0.1',
    'environment=Maze rate=0.2',
    'environment=Pit agent=ppo.PPOConfig',
    'environment=Pit agent=impala.IMPALAConfig',
  ]


def test_runs_stand_side_by_side(tmp_path):
  runs = [
    _make_run(tmp_path, 'first', agent=_agent('PPO', rate=0.1, clip=0.2)),
    _make_run(tmp_path, 'second', seed=1, agent=_agent('IMPALA', rate=0.3)),
  ]
  (tmp_path / 'first' / 'command.txt').write_text('2026 ftwax train ' * 30)
  rows = comparison.group(runs)
  text = comparison.write_page(rows, tmp_path / 'two.html').read_text()
  cell = '<td class="number">{}</td>'.format
  # The first table has the numbers, and no table has a cell of prose.
  first_table, *others = re.findall('<table>(.*?)</table>', text, re.S)
  assert f'<td>agent=ppo.PPOConfig</td>{cell(1.5)}{cell(1)}' in first_table
  assert 'ftwax train' not in first_table and 'absent' not in text
  differences, strengths, commands = others
  assert (
    f'<td>agent</td>{cell("ppo.PPOConfig")}{cell("impala.IMPALAConfig")}'
    in (differences)
  )
  assert f'<td>agent.rate</td>{cell(0.1)}{cell(0.3)}' in differences
  assert 'clip' not in differences  # IMPALA has no such field.
  assert cell(1.5) + cell('0.75') + cell(191) in strengths
  assert '<td class="text">' in commands and 'ftwax train' in commands
  assert 'at the end 2 in' in text  # The description of the chart.
  assert text.count('class="figure"') == 3 and '<img' not in text
  same = comparison.write_page({'a': runs[:1] * 2}, tmp_path / 'two.html')
  assert 'differ in their seeds alone.' in same.read_text()


def test_intervals_stay_within_what_was_measured(tmp_path):
  runs = [
    _make_run(tmp_path, f'{seed}', seed=seed, returns=(0, value))
    for seed, value in enumerate((-1.0, 1.0, 1.0))
  ]
  rows = comparison.group(runs)
  assert comparison.make_table(rows)[1][1] == '0.5 (-0.5 to 0.5)'
  text = comparison.write_page(rows, tmp_path / 'two.html').read_text()
  found = re.findall('class="figure">(.*?)</script>', text)
  points, returns, elo = map(json.loads, found)
  (row,) = points['rows']
  assert row['points'] == [-0.5, 0.5, 0.5] and row['value'] == 0.5
  assert (row['low'], row['high']) == (-0.5, 0.5)
  (line,) = returns['lines']
  assert line['name'] == 'my_game, 3 seeds'
  assert line['low'] == [0.0, -1.0] and line['high'] == [0.0, 1.0]
  (line,) = elo['lines']
  assert line['low'][0] == 0.0 and line['high'][0] >= line['y'][0]
  # Of more seeds the interval narrows.
  many = np.linspace(-1.0, 1.0, 20)
  low, high = comparison.interval(many)
  assert -0.4 < low < -0.15 and 0.15 < high < 0.4


def test_what_cannot_be_compared(tmp_path):
  with pytest.raises(ValueError, match='must be the directory of a run with'):
    comparison.read(tmp_path)


def _cell(rate, returns):
  returns = np.array(returns)[:, None]
  return sweep_figures.Cell(
    {'rate': rate}, range(len(returns)), np.ones(1), returns,
    np.ones(returns.shape, int),
  )  # fmt: skip


def test_the_best_cell_is_named_if_its_seeds_are_apart():
  name = sweep_figures.name_best
  low = _cell(0.1, [0.0, 1.0, 2.0])
  assert name([low, _cell(0.2, [2.1, 4.0, 5.0])]) == 'Best: rate=0.2.'
  assert 'overlap' in name([low, _cell(0.2, [1.9, 4.0, 5.0])])
  assert 'overlap' in name([low, _cell(0.2, [np.nan] * 3), low])
  assert 'fewer than 3' in name([low, _cell(0.2, [4.0, 5.0])])
