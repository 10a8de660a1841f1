"""Parameters of environments that change while agents train."""

import dataclasses
import json

import gymnasium
import in_process
import jax.numpy as jnp
import numpy as np
import pytest
import slow_cases
from dm_env import specs
from gymnasium import spaces

import ftwax
from ftwax import types
from ftwax.agents import ppo
from ftwax.environments import (
  checking,
  curricula,
  functional,
  game_vectors,
  gymnasium_adapter,
  process_games,
  vector,
)
from ftwax.runtime import evaluation, prepare, runs
from ftwax.runtime import experiment as experiment_lib
from ftwax.runtime.distributed import runner


class Gap(gymnasium.Env):
  """Four steps; the observation and `info` have the gap of the episode."""

  observation_space = spaces.Box(-9.0, 99.0, (1,), np.float32)
  action_space = spaces.Discrete(2)
  _gap = 0.5

  def reset(self, *, seed=None, options=None):
    super().reset(seed=seed)
    self._gap = (options or {}).get('gap', self._gap)
    self._step = 0
    return np.array([self._gap], np.float32), {}

  def step(self, action):
    self._step += 1
    is_over = self._step == 4
    info = {'success': True, 'gap': self._gap}
    return np.array([self._gap], np.float32), 1.0, is_over, False, info


class GapByMethod(Gap):
  """The same, with a method in place of options."""

  _next = 0.5

  def set_parameters(self, values):
    self._next = values['gap']

  def reset(self, *, seed=None, options=None):
    assert not options
    return super().reset(seed=seed, options={'gap': self._next})


def _jax_gap():
  spec = types.EnvironmentSpec(
    specs.Array((1,), np.float32),
    specs.DiscreteArray(2),
    specs.Array((), np.float32),
    specs.BoundedArray((), np.float32, 0.0, 1.0),
  )

  def reset(key, parameters={'gap': 0.5}):  # noqa: B006
    del key
    gap = jnp.float32(parameters['gap'])
    return (jnp.int32(0), gap), functional.restart(gap[None])

  def step(state, action):
    del action
    state = state[0] + 1, state[1]
    return state, functional.transition(
      1.0, state[1][None], state[0] == 4, False
    )

  return functional.FunctionalEnvironment(
    spec, reset, step, metrics=lambda state: {'gap': state[1], 'success': True}
  )


def _vector(kind, mode, base=GapByMethod):
  return vector.VectorFactory(
    lambda num, seed: gymnasium_adapter.GymnasiumVectorEnvironment(
      kind([base] * num, autoreset_mode=mode), seed
    )
  )


MODES = gymnasium.vector.AutoresetMode
SYNC, ASYNC = gymnasium.vector.SyncVectorEnv, gymnasium.vector.AsyncVectorEnv
WAYS = {
  'options': lambda seed: Gap(),
  'method': lambda seed: GapByMethod(),
  'wrapped': lambda seed: gymnasium.wrappers.TimeLimit(GapByMethod(), 9),
  'vector': _vector(SYNC, MODES.NEXT_STEP),
  'same_step': _vector(ASYNC, MODES.SAME_STEP),
  'one_by_one': _vector(SYNC, MODES.SAME_STEP, Gap),
  'process': lambda seed: Gap(),
  'jax': _jax_gap(),
}


@pytest.mark.filterwarnings('ignore:os.fork')
@pytest.mark.parametrize('way', slow_cases.cases(WAYS, {*WAYS} - {'process'}))
def test_episodes_begin_with_the_present_parameters(way):
  if way == 'process':
    games = process_games.ProcessGames(WAYS[way], [0, 1], 'gap', 2, 30.0)
  else:
    factory = WAYS[way]
    if way == 'jax':
      factory = lambda seed: WAYS['jax']  # noqa: E731
    games = game_vectors.make_games(factory, [0, 1], 'gap')
  games.set_parameters({'gap': 2.0})
  seen = [games.reset()]
  for step in range(14):
    if step == 2:
      games.set_parameters({'gap': 7.0})
    seen.append(games.step(np.zeros(2, np.int32)))
  games.close()
  gaps = np.stack([each.observation[:, 0] for each in seen])
  step_types = np.stack([each.step_type for each in seen])
  for row in range(2):
    # The first episode keeps its parameters to its end.
    (ends,) = np.nonzero(step_types[:, row] == types.LAST)
    assert gaps[: ends[0] + 1, row].tolist() == [2.0] * (ends[0] + 1)
    first = np.flatnonzero(step_types[:, row] == types.FIRST)[1]
    present = step_types[first:, row] != types.ABSENT
    assert set(gaps[first:, row][present]) == {7.0}


def test_environments_without_parameters_are_refused():
  games = game_vectors.make_games(
    _vector(SYNC, MODES.NEXT_STEP, Gap), [0, 1], 'gap'
  )
  message = r'must have a method set_parameters\(values\) for a curriculum of'
  with pytest.raises(ValueError, match=message):
    games.set_parameters({'gap': 1.0})
  plain = _jax_gap()._replace(reset=lambda key: _jax_gap().reset(key))
  with pytest.raises(ValueError, match=r"write reset\(key, parameters=\{'gap'"):
    prepare.prepare(_experiment(plain))


def test_check_names_the_parameters():
  found = checking.check(_jax_gap(), 20)
  assert found.facts['parameters'] == 'gap=0.5'
  assert 'parameters' not in checking.check(Gap, 20).facts


STAGES = curricula.Stages(
  'gap', 1.0, then=(2.0, 3.0), key='metrics/success', num_episodes=30
)


def _experiment(environment, **options):
  options = {'curriculum': (STAGES,), 'max_num_actor_steps': 600} | options
  return ftwax.ExperimentConfig(
    agent=ppo.PPOConfig(
      core='feed_forward', batch_size=4, num_minibatches=2, sequence_length=8
    ),
    environment=environment,
    num_environments=4,
    metrics=('gap',),
    **options,
  )


def _rows(directory, label):
  lines = (directory / 'logs' / f'{label}.jsonl').read_text().splitlines()
  return [json.loads(line) for line in lines]


RUNTIMES = [
  ('local', 'options'),
  ('local', 'process'),
  ('local', 'vector'),
  ('local', 'jax'),
  ('device', 'jax'),
  ('distributed', 'options'),
]


def _run(experiment, directory, runtime, **options):
  if runtime != 'distributed':
    return ftwax.run(experiment, run_dir=directory, runtime=runtime, **options)
  return runner.run_with(
    in_process.InProcess,
    prepare.prepare(experiment),
    runs.open_run_directory(experiment, directory, False),
    num_eval_episodes=4,
    period=evaluation.make_period(options['eval_every']),
  )


@pytest.mark.filterwarnings('ignore:os.fork')
@pytest.mark.parametrize(
  ('runtime', 'way'),
  # By default one of each runtime.
  slow_cases.rows(RUNTIMES, RUNTIMES[2:3] + RUNTIMES[4:]),
)
def test_success_moves_the_parameter_in_every_runtime(runtime, way, tmp_path):
  experiment = _experiment(WAYS[way])
  if way == 'process':
    experiment = experiment.replace(
      stepping=process_games.Stepping(processes=2)
    )
  _run(experiment, tmp_path, runtime, eval_every=200)
  rows = _rows(tmp_path, 'train')
  logged = [row['parameters/gap'] for row in rows]
  assert logged == sorted(logged) and set(logged) == {1.0, 2.0, 3.0}
  # Means of episodes, the first of which began before a change.
  assert rows[0]['metrics/gap'] == 1.0 and rows[-1]['metrics/gap'] == 3.0
  evaluated = _rows(tmp_path, 'evaluation')
  assert evaluated[-1]['metrics/gap'] == 3.0


@pytest.mark.parametrize(
  ('runtime', 'way'),
  slow_cases.rows([RUNTIMES[0], RUNTIMES[4]], RUNTIMES[4:5]),
)
def test_parameters_are_saved_and_resumed(runtime, way, tmp_path):
  whole, halves = tmp_path / 'whole', tmp_path / 'halves'
  short = _experiment(WAYS[way], max_num_actor_steps=256)
  _run(short, halves, runtime)
  longer = short.replace(max_num_actor_steps=512)
  _run(longer, halves, runtime, resume=True)
  _run(longer, whole, runtime)
  steps = [
    {row['actor_steps']: row['parameters/gap'] for row in _rows(each, 'train')}
    for each in (whole, halves)
  ]
  assert steps[0] == steps[1]
  assert max(steps[0].values()) == 3.0
  assert _rows(halves, 'train')[-1]['metrics/gap'] == 3.0


def test_evaluations_may_have_parameters_of_their_own(tmp_path):
  for runtime in 'local', 'device':
    _run(
      _experiment(_jax_gap()).replace(
        evaluation=experiment_lib.Evaluation(parameters=(('gap', 9.0),))
      ),
      tmp_path / runtime,
      runtime,
      eval_every=600,
    )
    rows = _rows(tmp_path / runtime, 'evaluation')
    assert rows[-1]['metrics/gap'] == 9.0


@dataclasses.dataclass(frozen=True)
class Doubled(curricula.Rule):
  """A rule of one's own, by evaluations."""

  def next_value(self, value, progress):
    if progress.evaluation.get('episode_return', 0.0) > 3.0:
      return 8.0
    return value


def test_rules_of_ones_own_and_by_step(tmp_path):
  ramp = curricula.Ramp('gap', 1.0, end=3.0, num_steps=300)
  _run(_experiment(Gap, curriculum=(ramp,)), tmp_path / 'ramp', 'local')
  rows = _rows(tmp_path / 'ramp', 'train')
  values = [row['parameters/gap'] for row in rows]
  assert values[0] == 1.0 and values[-1] == 3.0 and len(set(values)) > 3
  own = Doubled('gap', 1.0)
  _run(
    _experiment(Gap, curriculum=(own,)), tmp_path / 'own', 'local',
    eval_every=200,
  )  # fmt: skip
  values = [row['parameters/gap'] for row in _rows(tmp_path / 'own', 'train')]
  assert set(values) == {1.0, 8.0}
  agent = ftwax.load(tmp_path / 'own')
  agent.step(np.zeros(1, np.float32))


def test_stages_wait_for_enough_good_episodes():
  course = curricula.Course(
    (curricula.Stages('gap', 1.0, (2.0,), '-metrics/far', -0.5, 3),)
  )
  for far, expected in (0.1, 1.0), (1.9, 1.0), (0.1, 1.0), (0.1, 1.0):
    course.advance(0, [1.0], [{'far': far}])
    assert course.values == {'gap': expected}
  course.advance(0, [1.0, 1.0], [{'far': 0.0}, {'far': 0.0}])
  assert course.values == {'gap': 2.0}
  again = curricula.Course(
    (curricula.Stages('gap', 1.0, (2.0,)), curricula.Ramp('wind', 0.0))
  )
  again.restore(json.loads(json.dumps(course.save())))
  assert again.values == {'gap': 2.0, 'wind': 0.0}


def test_rules_that_do_not_fit_are_refused():
  for wrong, message in (
    ((STAGES, STAGES), 'one rule for each parameter'),
    ((STAGES, 3), 'must be a tuple of rules'),
  ):
    with pytest.raises((TypeError, ValueError), match=message):
      _experiment(Gap, curriculum=wrong)
  with pytest.raises(ValueError, match=r"key \('success'\) must be"):
    curricula.Stages('gap', 1.0, key='success')

  class Wrong(curricula.Rule):
    def next_value(self, value, progress):
      return None

  with pytest.raises(ValueError, match='must be a finite number, but is None'):
    curricula.Course((Wrong('gap', 1.0),)).advance(0, [], [])
  with pytest.raises(ValueError, match='curriculum'):
    ftwax.make_train(_experiment(_jax_gap()))
