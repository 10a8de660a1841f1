import os

import numpy as np

from ftwax.records import loggers
from ftwax.reporting import curves


def _log(run_dir, label, rows, instance=None):
  logger = loggers.JSONLLogger(loggers.log_path(run_dir, label, instance))
  for steps, episode_return, *num_episodes in rows:
    row = {
      'episode_return': episode_return,
      'episode_length': 10,
      'actor_steps': steps,
    }
    if num_episodes:
      (row['num_episodes'],) = num_episodes
    logger.write(row)
  logger.close()


def _read(run_dir):
  episodes = curves.read_returns(run_dir, 'train')
  return episodes.steps.tolist(), episodes.returns.tolist()


def test_the_mean_is_over_episodes_and_not_over_rows():
  rng = np.random.default_rng(0)
  for num_rows in (1, 2, 17, 150):
    returns = rng.normal(size=num_rows)
    counts = rng.integers(1, 9, size=num_rows).astype(float)
    steps = np.cumsum(rng.integers(1, 9, size=num_rows)).astype(float)
    is_last = steps > 0.9 * steps[-1]
    window = int(np.clip(counts[is_last].sum(), 20, 100))
    episodes = curves.Returns(steps, returns, counts)
    expected = np.repeat(returns, counts.astype(int))[-window:].mean()
    np.testing.assert_allclose(curves.last_mean(episodes), expected)


def test_a_figure_has_training_and_evaluation(tmp_path):
  assert curves.figure(tmp_path) is None
  _log(tmp_path, 'train', [(1, 1.0, 1), (2, 4.0, 3), (9, 2.0, 1)])
  _log(tmp_path, 'evaluation', [(5, 1.0, 1), (9, 2.0, 3)])
  found = curves.figure(tmp_path)
  train, evaluation = found['lines']
  assert (train['name'], evaluation['name']) == ('training', 'evaluation')
  assert train['x'] == [2.0, 9.0]
  assert train['y'] == [3.25, 2.0] and train['low'] == [1.0, 2.0]
  assert evaluation['y'] == [1.0, 2.0]
  assert found['alt'].endswith('at the end: training 2, evaluation 2.')


def test_leaves_out_what_is_not_finite(tmp_path):
  _log(tmp_path, 'train', [(1, 1.0), (2, np.nan), (3, np.inf), (4, 2.0)])
  assert _read(tmp_path) == ([1, 4], [1.0, 2.0])


def test_joins_the_logs_of_several_actors(tmp_path):
  _log(tmp_path, 'train', [(1, 1.0), (4, 4.0)], instance=0)
  _log(tmp_path, 'train', [(2, 2.0), (3, 3.0)], instance=11)
  _log(tmp_path, 'training_of_another_kind', [(5, 5.0)])
  assert _read(tmp_path) == ([1, 2, 3, 4], [1.0, 2.0, 3.0, 4.0])


def test_what_a_resumed_run_does_again_replaces_the_rest(tmp_path):
  _log(tmp_path, 'train', [(1, 1.0), (2, 2.0), (2, 2.5), (4, 4.0), (6, 6.0)])
  _log(tmp_path, 'train', [(3, 7.0), (5, 8.0)])
  assert _read(tmp_path) == ([1, 2, 2, 3, 5], [1.0, 2.0, 2.5, 7.0, 8.0])


def test_rows_of_other_things_are_ignored(tmp_path):
  _log(tmp_path, 'train', [(1, 1.0)])
  logger = loggers.JSONLLogger(loggers.log_path(tmp_path, 'train'))
  logger.write({'actor_steps': 2, 'loss': 3.0})
  logger.close()
  assert _read(tmp_path) == ([1], [1.0])


def test_a_run_without_episodes_has_no_curve(tmp_path):
  assert not curves.can_plot(tmp_path)
  _log(tmp_path, 'train', [])
  assert curves.can_plot(tmp_path) and curves.figure(tmp_path) is None


def test_a_directory_may_have_any_name(tmp_path):
  run_dir = tmp_path / os.fsdecode(b'run-\xfc')
  _log(run_dir, 'train', [(1, 1.0)])
  assert _read(run_dir) == ([1], [1.0])
