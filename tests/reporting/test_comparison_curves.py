import numpy as np

from ftwax.records import loggers
from ftwax.reporting import comparison_curves, curves


def _log(run_dir, rows):
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
    return _log(tmp_path / f'{name}{seed}', rows)

  figure = comparison_curves.plot_comparison(
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
  assert means == {'a, mean of 2': {2.0}, 'b, mean of 1': {7.0}}
  alone = [set(x.get_ydata()) for x in axes.lines if x.get_label()[0] == '_']
  assert alone == [{1.0}, {3.0}, {7.0}]
