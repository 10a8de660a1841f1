"""Observers of evaluations and generations."""

import json

import pytest
import run_helpers

from ftwax.environments import catch
from ftwax.population import population_config
from ftwax.runtime import callbacks, experiment

pytestmark = pytest.mark.usefixtures('compiles_once')


class _Watcher(experiment.Observer):
  def __init__(self):
    self.rows, self.generations = [], []

  def observe_evaluation(self, row, run):
    assert row['actor_steps'] == run.counts['actor_steps']
    self.rows.append((row['actor_steps'], row['episode_return']))
    return len(self.rows) == 2

  def observe_generation(self, population):
    self.generations.append(int(population.generation))


def _make_catch(seed):
  del seed
  return catch.make()


@pytest.mark.parametrize(
  'runtime', ['device', pytest.param('local', marks=pytest.mark.slow)]
)
def test_observers_see_evaluations_and_generations(runtime, tmp_path):
  watcher = _Watcher()
  made = run_helpers.make_experiment(
    run_helpers.FEED_FORWARD,
    _make_catch,
    max_num_actor_steps=2000,
    steps_per_round=20,
    population=population_config.PopulationConfig(num_members=2),
    observers=[watcher, callbacks.BestCheckpoint()],
    replay=None if runtime == 'device' else 'functional',
  )
  run = run_helpers.make_run(runtime, tmp_path)
  result = run(made, eval_every=200, num_eval_episodes=2)
  # The second evaluation ended the run.
  steps, returns = zip(*watcher.rows, strict=True)
  assert len(steps) == 2 and 400 <= steps[1] == result.counts.actor_steps < 2000
  assert watcher.generations and watcher.generations == sorted(
    watcher.generations
  )
  best = json.loads((result.run_dir / 'best' / 'score.json').read_text())
  assert best['episode_return'] == max(returns)
  assert best['step'] == steps[returns.index(max(returns))]


def test_a_run_ends_at_a_score():
  stop = callbacks.EarlyStopping(score=0.5)
  assert not stop.observe_evaluation({'episode_return': 0.4}, None)
  assert stop.observe_evaluation({'episode_return': 0.5}, None)


def test_a_run_ends_when_it_gets_no_better():
  stop = callbacks.EarlyStopping(patience=2, key='elo')
  ends = [
    stop.observe_evaluation({'elo': value}, None)
    for value in (1.0, 2.0, 2.0, 3.0, 1.0, 2.9)
  ]
  assert ends == [False] * 5 + [True]


def test_what_is_no_number_is_never_the_best(tmp_path):
  best = callbacks.BestCheckpoint()
  # Without a look at the run, which is None beyond its directory and counts.
  run = experiment.RunView(tmp_path, {'actor_steps': 1}, None)
  assert not best.observe_evaluation({'episode_return': float('nan')}, run)
  assert not list(tmp_path.iterdir())


def test_another_score_is_compared_anew(tmp_path):
  directory = tmp_path / callbacks.BEST_DIRECTORY
  directory.mkdir()
  (directory / 'score.json').write_text('{"episode_return": 5.0, "step": 1}')
  saved = []

  def snapshot():
    saved.append(True)
    raise InterruptedError

  run = experiment.RunView(tmp_path, {'actor_steps': 2}, snapshot)
  with pytest.raises(InterruptedError):
    callbacks.BestCheckpoint('elo').observe_evaluation({'elo': 1.0}, run)
  assert saved == [True]


def test_wrong_options_are_refused():
  with pytest.raises(ValueError, match=r'score \(None\) or patience'):
    callbacks.EarlyStopping()
  with pytest.raises(ValueError, match=r'patience \(0\) must be at least 1'):
    callbacks.EarlyStopping(patience=0)
  stop = callbacks.EarlyStopping(score=1.0, key='elo')
  with pytest.raises(ValueError, match=r"key \('elo'\).*\['episode_return'\]"):
    stop.observe_evaluation({'episode_return': 1.0}, None)
