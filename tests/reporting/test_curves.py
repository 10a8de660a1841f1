import os

import matplotlib
import matplotlib.axes
import numpy as np
import pytest

from ftwax.records import loggers
from ftwax.reporting import curves


@pytest.fixture
def lines(monkeypatch):
  """Steps and values of all lines drawn, by label."""
  drawn = {}
  plot = matplotlib.axes.Axes.plot

  def record(self, x, y, **kwargs):
    drawn[kwargs['label']] = (np.asarray(x), np.asarray(y))
    return plot(self, x, y, **kwargs)

  monkeypatch.setattr(matplotlib.axes.Axes, 'plot', record)
  return drawn


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


def _assert_line(line, steps, values):
  np.testing.assert_array_equal(line[0], steps)
  np.testing.assert_allclose(line[1], values)


def test_rolling_mean_against_a_loop():
  generator = np.random.default_rng(0)
  returns = generator.normal(size=(17,))
  num_episodes = generator.integers(1, 9, size=(17,))
  episodes = np.repeat(returns, num_episodes)
  ends = np.cumsum(num_episodes)
  for window in (1, 5, 12, 1000):
    expected = [episodes[max(end - window, 0) : end].mean() for end in ends]
    means = curves.rolling_mean(returns, num_episodes, window)
    np.testing.assert_allclose(means, expected)


def test_rolling_mean_of_nothing():
  assert curves.rolling_mean(np.zeros((0,)), np.zeros((0,)), 5).shape == (0,)


def test_the_mean_is_over_episodes_and_not_over_rows(tmp_path, lines):
  rows = [(step, float(step > 10), 128) for step in range(1, 16)]
  _log(tmp_path, 'train', rows)
  _log(tmp_path, 'evaluation', [(5, 1.0, 1), (5, 2.0, 3)])
  curves.plot_curves(tmp_path)
  steps, means = lines['mean of the last episodes']
  np.testing.assert_array_equal(means, steps > 10)
  assert 'mean of up to 128 episodes' in lines
  _assert_line(lines['evaluation, mean'], [5], [1.75])


def test_draws_episodes_their_mean_and_evaluation(tmp_path, lines):
  steps = 10 * np.arange(1, 151)
  returns = np.random.default_rng(0).normal(size=(150,))
  _log(tmp_path, 'train', zip(steps, returns, strict=True))
  _log(tmp_path, 'evaluation', [(500, 1.0), (500, 2.0), (1000, 4.0)])
  path = curves.plot_curves(tmp_path)
  assert path == tmp_path / 'curves.png'
  assert path.read_bytes().startswith(b'\x89PNG\r\n')
  assert sorted(p.name for p in tmp_path.iterdir()) == ['curves.png', 'logs']
  _assert_line(lines.pop('episode'), steps, returns)
  mean = lines.pop('mean of the last episodes')
  window = np.clip(np.ceil(np.arange(1, 151) / 10), 20, 100)
  _assert_line(mean, steps, curves.rolling_mean(returns, np.ones(150), window))
  _assert_line(lines.pop('evaluation, mean'), [500, 1000], [1.5, 4.0])
  assert not lines


def test_leaves_out_what_is_not_finite(tmp_path, lines):
  _log(tmp_path, 'train', [(1, 1.0), (2, np.nan), (3, np.inf), (4, 2.0)])
  curves.plot_curves(tmp_path)
  line = lines['episode (2 not finite, left out)']
  _assert_line(line, [1, 4], [1.0, 2.0])


def test_joins_the_logs_of_several_actors(tmp_path, lines):
  _log(tmp_path, 'train', [(1, 1.0), (4, 4.0)], instance=0)
  _log(tmp_path, 'train', [(2, 2.0), (3, 3.0)], instance=11)
  _log(tmp_path, 'training_of_another_kind', [(5, 5.0)])
  curves.plot_curves(tmp_path)
  _assert_line(lines['episode'], [1, 2, 3, 4], [1.0, 2.0, 3.0, 4.0])


def test_what_a_resumed_run_does_again_replaces_the_rest(tmp_path, lines):
  _log(tmp_path, 'train', [(1, 1.0), (2, 2.0), (2, 2.5), (4, 4.0), (6, 6.0)])
  _log(tmp_path, 'train', [(3, 7.0), (5, 8.0)])
  curves.plot_curves(tmp_path)
  _assert_line(lines['episode'], [1, 2, 2, 3, 5], [1.0, 2.0, 2.5, 7.0, 8.0])


def test_rows_of_other_things_are_ignored(tmp_path, lines):
  _log(tmp_path, 'train', [(1, 1.0)])
  logger = loggers.JSONLLogger(loggers.log_path(tmp_path, 'train'))
  logger.write({'actor_steps': 2, 'loss': 3.0})
  logger.close()
  curves.plot_curves(tmp_path)
  _assert_line(lines['episode'], [1], [1.0])


def test_many_episodes_are_thinned_but_not_their_mean(
  tmp_path, lines, monkeypatch
):
  monkeypatch.setattr(curves, '_MAX_POINTS', 10)
  _log(tmp_path, 'train', [(t, float(t)) for t in range(25)])
  curves.plot_curves(tmp_path)
  assert len(lines['episode'][0]) == 9
  assert len(lines['mean of the last episodes'][0]) == 25


def test_a_run_without_episodes_has_a_picture_too(tmp_path, lines):
  _log(tmp_path, 'train', [])
  assert curves.plot_curves(tmp_path).exists()
  assert not lines


def test_a_run_without_a_log_has_none(tmp_path):
  assert not curves.can_plot(tmp_path)
  with pytest.raises(
    FileNotFoundError, match=r'training log \(.*train.jsonl\) must exist'
  ):
    curves.plot_curves(tmp_path)
  assert not list(tmp_path.iterdir())


def test_a_directory_of_any_name_has_a_picture(tmp_path):
  run_dir = tmp_path / os.fsdecode(b'run-\xfc')
  _log(run_dir, 'train', [(1, 1.0)])
  assert curves.plot_curves(run_dir).exists()


def test_the_backend_is_left_alone(tmp_path):
  before = matplotlib.get_backend(auto_select=False)
  _log(tmp_path, 'train', [(1, 1.0)])
  curves.plot_curves(tmp_path)
  assert matplotlib.get_backend(auto_select=False) == before
