"""What environments measure beside rewards: logs, evaluations, terminal."""

import itertools
import json

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import slow_cases
from dm_env import specs
from gymnasium import spaces

import ftwax
from ftwax import population, types
from ftwax.agents import ppo
from ftwax.cli import evaluate_command
from ftwax.environments import (
  episode_metrics,
  functional,
  game_vectors,
  gymnasium_adapter,
  pettingzoo_adapter,
  process_games,
  vector,
)
from ftwax.records import trackers
from ftwax.reporting import comparison, history, report
from ftwax.runtime import callbacks, evaluation, sweeps
from ftwax.runtime import experiment as experiment_lib

pettingzoo = pytest.importorskip(
  'pettingzoo', reason='the extra envs is not there'
)

MODES = gymnasium.vector.AutoresetMode


class Reach(gymnasium.Env):
  """Four steps; each costs 0.5 of energy, every other episode succeeds."""

  observation_space = spaces.Box(0.0, 1.0, (2,), np.float32)
  action_space = spaces.Discrete(2)

  def __init__(self):
    self._num_episodes = 0

  def reset(self, *, seed=None, options=None):
    super().reset(seed=seed)
    self._num_episodes += 1
    self._step = 0
    return np.zeros(2, np.float32), {'energy': 0.0}

  def step(self, action):
    self._step += 1
    is_over = self._step == 4
    info = {'energy': 0.5, 'distance': float(4 - self._step), 'name': 'arm'}
    info['part'] = {'heat': np.array([2.0 * self._step])}
    if is_over:
      info['is_success'] = self._num_episodes % 2 == 1
    return np.zeros(2, np.float32), 1.0, is_over, False, info


def _factory(way):
  if way in ('single', 'process'):
    return lambda seed: Reach()
  kind = gymnasium.vector.SyncVectorEnv
  if way == 'async_same_step':
    kind = gymnasium.vector.AsyncVectorEnv
  mode = MODES.NEXT_STEP if way == 'next_step' else MODES.SAME_STEP
  return vector.VectorFactory(
    lambda num, seed: gymnasium_adapter.GymnasiumVectorEnvironment(
      kind([Reach] * num, autoreset_mode=mode), seed
    )
  )


WAYS = 'single', 'process', 'next_step', 'same_step', 'async_same_step'


# Gymnasium's vectors fork.
@pytest.mark.filterwarnings('ignore:os.fork')
@pytest.mark.parametrize('way', WAYS)
def test_metrics_are_those_of_the_last_step_and_of_all_steps(way):
  if way == 'process':
    games = process_games.ProcessGames(_factory(way), [0, 1], 'reach', 2, 30.0)
  else:
    games = game_vectors.make_games(_factory(way), [0, 1], 'reach')
  games.measure(('energy/sum', 'distance/mean', 'part/heat'))
  games.reset()
  found = []
  for _ in range(14):
    timestep = games.step(np.zeros(2, np.int32))
    ended = np.flatnonzero(timestep.step_type == types.LAST).tolist()
    if ended:
      found.append(games.episode_metrics(ended))
  games.close()
  own = {'energy/sum': 2.0, 'distance/mean': 1.5, 'part/heat': 8.0}
  assert found[:2] == [
    [{**own, 'is_success': 1.0}] * 2,
    [{**own, 'is_success': 0.0}] * 2,
  ]


def test_all_numbers_or_success_alone():
  for names, expected in (
    (
      'all',
      {'energy': 0.5, 'distance': 0.0, 'part/heat': 8.0, 'is_success': 1.0},
    ),
    ((), {'is_success': 1.0}),
  ):
    games = game_vectors.make_games(_factory('single'), [0], 'reach')
    games.measure(names)
    games.reset()
    for _ in range(4):
      games.step(np.zeros(1, np.int32))
    assert games.episode_metrics([0]) == [expected]


def _rows(directory, label):
  lines = (directory / 'logs' / f'{label}.jsonl').read_text().splitlines()
  return [json.loads(line) for line in lines]


def _experiment(environment, **options):
  return ftwax.ExperimentConfig(
    agent=ppo.PPOConfig(core='feed_forward', batch_size=4, num_minibatches=2),
    environment=environment,
    max_num_actor_steps=800,
    num_environments=2,
    **options,
  )


class _Infos(experiment_lib.Observer):
  def __init__(self):
    self.seen = []

  def observe(self, environment, timestep, action):
    self.seen += [info.get('energy') for info in environment.infos]


def test_logs_terminal_and_callbacks_have_metrics(tmp_path, capsys):
  infos = _Infos()
  best = callbacks.BestCheckpoint(key='metrics/is_success')
  ftwax.run(
    _experiment(
      _factory('single'), metrics=('energy/sum',), observers=[best, infos]
    ),
    run_dir=tmp_path,
    eval_every=400,
  )
  train = _rows(tmp_path, 'train')
  assert all(row['metrics/energy/sum'] == 2.0 for row in train)
  assert np.mean([row['metrics/is_success'] for row in train]) == pytest.approx(
    0.5, abs=0.1
  )
  last = _rows(tmp_path, 'evaluation')[-1]
  assert last['metrics/energy/sum'] == 2.0
  assert 0.0 <= last['metrics/is_success'] <= 1.0
  assert json.loads((tmp_path / 'best/score.json').read_text()).keys() >= {
    'metrics/is_success'
  }
  text = capsys.readouterr().out
  assert 'metrics/energy/sum 2' in text and 'metrics/is_success' in text
  assert set(infos.seen) == {0.0, 0.5}


def test_an_unknown_metric_is_named(caplog):
  games = game_vectors.make_games(_factory('single'), [0], 'reach')
  games.measure(('torque',))
  games.reset()
  for _ in range(4):
    games.step(np.zeros(1, np.int32))
  games.episode_metrics([0])
  assert 'metrics (torque) are not in the info of the first episode' in (
    caplog.text
  )
  with pytest.raises(ValueError, match=r"metrics \('torque'\) must be names"):
    _experiment(Reach, metrics='torque')


class Pair(pettingzoo.ParallelEnv):
  """Two agents, of whom the first succeeds."""

  metadata = {'name': 'pair'}
  possible_agents = ['a', 'b']

  def observation_space(self, agent):
    return spaces.Box(0.0, 1.0, (2,), np.float32)

  def action_space(self, agent):
    return spaces.Discrete(2)

  def reset(self, seed=None, options=None):
    self.agents, self._step = ['a', 'b'], 0
    return self._see(), {agent: {} for agent in self.agents}

  def _see(self):
    return {agent: np.ones(2, np.float32) for agent in 'ab'}

  def step(self, actions):
    self._step += 1
    is_over = self._step == 3
    infos = {'a': {'success': is_over}, 'b': {'success': False}}
    if is_over:
      self.agents = []
    every = dict.fromkeys('ab', is_over)
    none, rewards = dict.fromkeys('ab', False), dict.fromkeys('ab', 0.0)
    return self._see(), rewards, every, none, infos


def test_a_game_has_the_means_of_its_agents(tmp_path):
  ftwax.run(
    _experiment(
      lambda seed: pettingzoo_adapter.PettingZooGame(
        Pair(), teams=(0, 0), seed=seed
      )
    ),
    run_dir=tmp_path,
    eval_every=800,
  )
  assert _rows(tmp_path, 'train')[-1]['metrics/success'] == 0.5
  assert _rows(tmp_path, 'evaluation')[-1]['metrics/success'] == 0.5


def _walk(num_steps=5):
  """A JAX environment whose state measures the steps and the success."""
  spec = types.EnvironmentSpec(
    specs.Array((2,), np.float32),
    specs.DiscreteArray(2),
    specs.Array((), np.float32),
    specs.BoundedArray((), np.float32, 0.0, 1.0),
  )

  def reset(key):
    del key
    return jnp.int32(0), functional.restart(jnp.zeros(2))

  def step(state, action):
    del action
    state = state + 1
    return state, functional.transition(
      1.0, jnp.zeros(2), state == num_steps, False
    )

  return functional.FunctionalEnvironment(
    spec,
    reset,
    step,
    metrics=lambda state: {
      'steps': state,
      'success': state == num_steps,
      'place': jnp.zeros(3),
    },
  )


@pytest.mark.parametrize(
  ('names', 'runtime'),
  slow_cases.rows(
    itertools.product([(), ('steps',)], ['local', 'device']),
    [((), 'local'), (('steps',), 'device')],
  ),
)
def test_states_in_jax_measure_too(runtime, names, tmp_path):
  ftwax.run(
    _experiment(_walk(), metrics=names),
    run_dir=tmp_path,
    eval_every=800,
    runtime=runtime,
  )
  for label in ('train', 'evaluation'):
    row = _rows(tmp_path, label)[-1]
    assert row['metrics/success'] == 1.0
    assert ('metrics/steps' in row) == bool(names)
    assert row.get('metrics/steps', 5.0) == 5.0


def test_nothing_is_measured_unasked():
  def of(names):
    game = functional.as_game(_walk())
    return functional.choose_metrics(
      game._replace(metrics=lambda state: {'steps': state}), names
    )

  assert of(()).metrics is None
  state, _ = of(('steps',)).reset(jax.random.PRNGKey(0))
  assert of(('steps',)).metrics(state)['steps'] == 0.0


def test_means_are_over_the_episodes_that_have_a_metric():
  means = episode_metrics.average([{'a': 1.0}, {'a': 3.0, 'b': 5.0}, {}])
  assert means == {'metrics/a': 2.0, 'metrics/b': 5.0}


def test_a_criterion_is_the_return_or_a_metric():
  read = episode_metrics.read_criterion
  assert read('fitness', 'episode_return') == ('', 1.0)
  assert read('fitness', 'metrics/energy/sum') == ('energy/sum', 1.0)
  assert read('fitness', '-metrics/distance') == ('distance', -1.0)
  message = (
    r"fitness \('is_success'\) must be 'episode_return' or a metric .*;"
    " choose 'metrics/is_success'"
  )
  with pytest.raises(ValueError, match=message):
    _experiment(Reach, population=_population('is_success'))


def _population(fitness, **options):
  return population.PopulationConfig(
    num_members=2,
    burn_in_games=4,
    num_returns=4,
    select=population.Truncation(0.5),
    fitness=fitness,
    **options,
  )


class Judged(gymnasium.Env):
  """Returns rise with the seed, what is measured falls: fitness decides."""

  observation_space = spaces.Box(0.0, 1.0, (2,), np.float32)
  action_space = spaces.Discrete(2)

  def reset(self, *, seed=None, options=None):
    super().reset(seed=seed)
    self._step = 0
    return np.zeros(2, np.float32), {}

  def step(self, action):
    self._step += 1
    info = {'distance': 3.0 + 0.1 * self._step, 'steps': self._step}
    return np.zeros(2, np.float32), 1.0, self._step == 4, False, info


@pytest.mark.parametrize(
  ('fitness', 'expected'),
  [
    ('episode_return', 4.0),
    ('metrics/steps/mean', 2.5),
    ('-metrics/distance', -3.4),
  ],
)
def test_a_population_is_judged_by_its_fitness(fitness, expected, tmp_path):
  ftwax.run(
    _experiment(Judged, population=_population(fitness), steps_per_round=20),
    run_dir=tmp_path,
  )
  for row in _rows(tmp_path, 'population'):
    assert row['mean_returns'] == pytest.approx([expected] * 2)
  assert _rows(tmp_path, 'train')[-1]['episode_return'] == 4.0


@pytest.mark.parametrize(
  'runtime', ['local', pytest.param('device', marks=pytest.mark.ci)]
)
def test_members_copy_whoever_has_the_better_metric(runtime, tmp_path):
  """Rewards are the same for all; the metric is the number of ones taken."""
  ftwax.run(
    _experiment(
      _count_ones(),
      population=_population('metrics/ones'),
      steps_per_round=20,
    ),
    run_dir=tmp_path,
    runtime=runtime,
  )
  # Ones of ten steps; returns are all 10.
  fitness = {
    row['generation']: row['mean_returns']
    for row in _rows(tmp_path, 'population')
  }
  copies = [r for r in history.read_lineage(tmp_path, 2) if 'parent' in r]
  assert copies
  for row in copies:
    before = fitness[row['generation'] - 1]
    assert 0.0 <= before[row['member']] < before[row['parent']] < 10.0


def _count_ones():
  game = _walk(10)

  def reset(key):
    state, timestep = game.reset(key)
    return (state, jnp.int32(0)), timestep

  def step(state, action):
    place, timestep = game.step(state[0], action)
    return (place, state[1] + action), timestep

  return functional.FunctionalEnvironment(
    game.spec, reset, step, metrics=lambda state: {'ones': state[1]}
  )


def test_a_game_of_one_team_is_judged_by_its_metric(tmp_path):
  ftwax.run(
    _experiment(
      lambda seed: pettingzoo_adapter.PettingZooGame(
        Pair(), teams=(0, 0), seed=seed
      ),
      population=_population('metrics/success'),
      steps_per_round=20,
    ),
    run_dir=tmp_path,
  )
  assert _rows(tmp_path, 'population')[-1]['mean_returns'] == [0.5, 0.5]


def test_a_fitness_that_is_not_measured_is_refused(tmp_path):
  def run(environment, fitness, **options):
    ftwax.run(
      _experiment(
        environment, population=_population(fitness), steps_per_round=20
      ).replace(**options),
      run_dir=tmp_path / 'run',
    )

  with pytest.raises(ValueError, match=r'metrics/torque.*is not in the info'):
    run(Judged, 'metrics/torque')
  message = r"must be a scalar .*; choose from \['episode_return', 'metrics/"
  with pytest.raises(ValueError, match=f'fitness .*metrics/place.*{message}'):
    run(_walk(), 'metrics/place')
  with pytest.raises(ValueError, match='choose selection.Truncation'):
    run(
      Judged,
      'episode_return',
      population=population.PopulationConfig(
        num_members=2, fitness='metrics/steps'
      ),
    )
  with pytest.raises(
    ValueError, match=r"must be 'episode_return' in a game of"
  ):
    run(
      lambda seed: pettingzoo_adapter.PettingZooGame(
        Pair(), teams=(0, 1), seed=seed
      ),
      'metrics/success',
    )


def test_callbacks_keep_the_least_of_a_negative_metric(tmp_path):
  row = {'metrics/distance': 2.0, 'episode_return': 1.0}
  assert callbacks.read_score(row, '-metrics/distance') == -2.0
  with pytest.raises(ValueError, match=r"key \('-metrics/gap'\) must be"):
    callbacks.read_score(row, '-metrics/gap')


@pytest.mark.ci
def test_make_train_and_sweeps_have_metrics(tmp_path, capsys):
  experiment = _experiment(_count_ones(), metrics=('ones',))
  init, train = ftwax.make_train(experiment)
  _, measured = jax.jit(train)(init(jax.random.PRNGKey(0)))
  ones = measured['metrics/ones']
  has_ended = measured['num_episodes'] > 0
  np.testing.assert_array_equal(np.isfinite(ones), has_ended)
  assert 0.0 < np.nanmean(ones) < 10.0
  (cell,) = sweeps.run(
    experiment.replace(metrics=()),
    [{}],
    [0],
    tmp_path / 'sweep',
    objective='-metrics/ones',
  )
  assert -10.0 < cell.last[0] < 0.0
  assert '-metrics/ones' in capsys.readouterr().out
  assert '-metrics/ones' in (tmp_path / 'sweep/sweep.csv').read_text()
  page = (tmp_path / 'sweep/sweep.html').read_text('utf-8')
  assert '-metrics/ones in training' in page
  with pytest.raises(ValueError, match=r"choose from \['episode_return', 'met"):
    sweeps.run(
      experiment, [{}], [0], tmp_path / 'none', objective='metrics/twos'
    )
  assert not (tmp_path / 'none').exists()


class _Tracker:
  seen = set()

  def __init__(self, run_dir, name, config):
    del run_dir, name, config

  def log(self, label, values, step):
    self.seen.update(f'{label}/{name}' for name in values)

  def close(self):
    pass


def test_tables_pages_and_trackers_have_metrics(tmp_path, monkeypatch):
  monkeypatch.setitem(trackers._MAKERS, 'wandb', _Tracker)
  for seed in range(2):
    ftwax.run(
      _experiment(
        _factory('single'),
        metrics=('energy/sum',),
        seed=seed,
        loggers=('wandb',),
      ),
      run_dir=tmp_path / f'run_{seed}',
      eval_every=400,
    )
  run = tmp_path / 'run_0'
  text = report.to_html(run)
  assert 'Metrics' in text and 'Line chart of metrics/energy/sum over' in text
  rows = comparison.group(
    [comparison.read(run), comparison.read(tmp_path / 'run_1')]
  )
  head, line = comparison.make_table(rows)
  assert head[:4] == ['', 'mean return', 'success', 'runs']
  assert 0.3 < float(line[2].split()[0]) < 0.7
  path = comparison.write_page(rows, tmp_path / 'page.html')
  assert 'success' in path.read_text('utf-8')
  board = b''.join(
    file.read_bytes() for file in (run / 'tensorboard').rglob('*tfevents*')
  )
  for name in 'train/metrics/is_success', 'evaluation/metrics/energy/sum':
    assert name in _Tracker.seen and name.encode() in board
  row = _rows(run, 'evaluation')[-1]
  assert 'mean energy/sum: 2' in evaluate_command.describe(row)
  line = evaluation.describe({f'metrics/{i}': 0.0 for i in 'abc'} | row, 800)
  assert line.count('metrics/') == 3 and 'metrics/is_success' in line
