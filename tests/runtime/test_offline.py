"""Agents learn from recorded games alone."""

import functools

import dm_env
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import random_batches
from test_recorded import GAME, LENGTH, make_experiment, record

import ftwax
from ftwax import hyperparameters
from ftwax.agents import ppo
from ftwax.agents.actor_critic import joint_loss, learning, tasks
from ftwax.environments import curricula, functional
from ftwax.population import players, population_config
from ftwax.records import loggers
from ftwax.runtime import prepare, recorded


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
  directory = tmp_path_factory.mktemp('offline') / 'games'
  record(directory, 64, num_parallel=16)
  return directory


def make_offline(folder, **options):
  return make_experiment(folder, **{'offline': True, **options})


class _Counting(dm_env.Environment):
  """Catch in Python, which counts the steps of all of its games."""

  steps = 0

  def __init__(self, seed):
    self._key = jax.random.PRNGKey(seed)

  def observation_spec(self):
    return GAME.spec.observations

  def reward_spec(self):
    return GAME.spec.rewards

  def action_spec(self):
    return GAME.spec.actions

  def reset(self):
    self._key, key = jax.random.split(self._key)
    self._state, timestep = _RESET(key)
    return jax.device_get(timestep)

  def step(self, action):
    type(self).steps += 1
    self._state, timestep = _STEP(self._state, action)
    return jax.device_get(timestep)


_RESET, _STEP = jax.jit(GAME.reset), jax.jit(GAME.step)


@pytest.mark.parametrize(
  'runtime', ['auto', pytest.param('local', marks=pytest.mark.ci)]
)
def test_a_clone_learns_without_a_step_and_resumes(
  folder, tmp_path, runtime, capsys
):
  fast = {'learning_rate': 5e-3}
  experiment = make_offline(folder, agent=fast)
  short = experiment.replace(max_num_actor_steps=3_000)
  ftwax.run(short, 1_000, 4, runtime=runtime, run_dir=tmp_path / 'parts')
  resumed = ftwax.run(
    experiment,
    1_000,
    4,
    runtime=runtime,
    run_dir=tmp_path / 'parts',
    resume=True,
  )
  whole = ftwax.run(
    experiment, 1_000, 4, runtime=runtime, run_dir=tmp_path / 'whole'
  )
  size = experiment.agent.batch_size * LENGTH
  assert whole.counts.actor_steps == whole.counts.learner_steps * size
  assert not whole.counts.episodes
  assert 6_000 <= whole.counts.actor_steps < 6_000 + size
  rows = [
    loggers.read_jsonl(loggers.log_path(result.run_dir, 'evaluation'))
    for result in (resumed, whole)
  ]
  assert [row['episode_return'] for row in rows[0]] == [
    row['episode_return'] for row in rows[1]
  ]
  assert len(rows[1]) == 6
  jax.tree.map(
    np.testing.assert_array_equal, resumed.state.params, whole.state.params
  )
  assert '(recorded games): 6,048 of 6,000' in capsys.readouterr().out
  page = (whole.run_dir / 'report.html').read_text()
  assert 'trained for 6,048 steps' in page
  agent = ftwax.load(whole.run_dir)
  assert agent.evaluate(GAME, num_episodes=50).mean() > 0.9


def test_environments_in_python_serve_evaluations_alone(folder, tmp_path):
  experiment = make_offline(folder, environment=_Counting)
  _Counting.steps = 0
  ftwax.run(experiment.replace(max_num_actor_steps=200), run_dir=tmp_path / '0')
  assert not _Counting.steps
  ftwax.run(
    experiment.replace(max_num_actor_steps=200), 100, 2, run_dir=tmp_path / '1'
  )
  assert _Counting.steps


@pytest.mark.parametrize(
  'num_devices', [pytest.param(1, marks=pytest.mark.ci), 2]
)
def test_members_differ_and_share_the_games(folder, tmp_path, num_devices):
  num_members = 2 * num_devices
  experiment = make_offline(
    folder,
    agent={'learning_rate': hyperparameters.LogUniform(1e-4, 1e-2)},
    population=population_config.PopulationConfig(num_members, exploits=False),
    num_environments=num_members,
    max_num_actor_steps=1_000,
  )
  state = ftwax.run(
    experiment,
    500,
    2,
    run_dir=tmp_path / 'run',
    devices=jax.devices()[:num_devices],
  ).state
  rates = np.asarray(state.hyperparameters.learning_rate)
  assert len(set(rates.tolist())) == num_members
  leaf = jax.tree.leaves(state.params)[0]
  assert len(leaf) == num_members and (leaf[0] != leaf[1]).any()


def _gradient(tasks_of_agent, **options):
  """Returns the gradient of each head of an offline agent."""
  spec = functional.as_game(GAME).spec
  config = ppo.PPOConfig(
    tasks=tasks_of_agent, sequence_length=4, batch_size=8, **options
  )
  network = config.make_network(spec)
  objective = joint_loss.Objective(network, config, spec.observations, True)
  learner = config.make_learner_core(network, spec, offline=True)
  state = learner.init(jax.random.PRNGKey(0))
  batch = random_batches.make_batch(0, spec, network, config)._replace(
    replay=None, reward_prediction=None, demonstrations=None
  )

  def loss(params):
    return joint_loss.joint_loss(
      objective, params, state.hyperparameters, batch
    )[0]

  def norm(grads, name):
    return sum(
      float(jnp.abs(leaf).sum())
      for path, leaf in jax.tree.leaves_with_path(grads)
      if name in jax.tree_util.keystr(path)
    )

  grads = jax.grad(loss)(state.params)
  return norm(grads, 'policy'), norm(grads, 'value')


def test_the_value_learns_offline_where_it_weighs_actions():
  policy, value = _gradient((tasks.Clone(),))
  assert policy > 0 and value == 0
  policy, value = _gradient((tasks.Clone(advantage_scale=1.0),))
  assert policy > 0 and value > 0
  _, own = _gradient((tasks.Clone(value_cost=0.5),), baseline_cost=0.0)
  _, weighed = _gradient((tasks.Clone(advantage_scale=1.0),), baseline_cost=0.5)
  np.testing.assert_allclose(own, weighed, rtol=1e-5)
  # Nothing but the clone's loss moves the policy.
  for scale in (0.0, 1.0):
    policy, _ = _gradient((tasks.Clone(cost=0.0, advantage_scale=scale),))
    assert policy == 0


@pytest.mark.ci
def test_the_better_of_two_teachers_is_followed_with_marwil_s_weights(tmp_path):
  folder = tmp_path / 'games'
  record(folder, 48, num_parallel=16)
  record(
    folder,
    144,
    num_parallel=16,
    player=players.uniform(functional.as_game(GAME).spec.actions),
  )
  means = []
  for scale in (0.0, 2.0):
    experiment = make_offline(
      folder,
      agent={
        'learning_rate': 5e-3,
        'tasks': (tasks.Clone(advantage_scale=scale),),
      },
      max_num_actor_steps=10_000,
    )
    result = ftwax.run(experiment, run_dir=tmp_path / str(scale))
    sampling = ftwax.load(result.run_dir, greedy=False)
    means.append(sampling.evaluate(GAME, num_episodes=200).mean())
  assert means[1] > means[0] + 0.15


@pytest.mark.parametrize(
  ('change', 'message'),
  [
    ({'demonstrations': None}, r'demonstrations \(None\) must be a directory'),
    (
      {'agent': {'tasks': ('clone', 'off_policy')}},
      r'tasks \(off_policy\) must',
    ),
    (
      {'agent': {'tasks': ('clone', 'reward_prediction')}},
      r'tasks \(reward_prediction\) must learn from what is recorded',
    ),
    ({'agent': {'tasks': ()}}, 'must be learned from by a task of the agent'),
    (
      {'population': population_config.PopulationConfig(2)},
      r'exploits \(True\) must be False offline',
    ),
    ({'replay': 'functional'}, r"replay \('functional'\) must not be set"),
    (
      {
        'environment': _Counting,
        'curriculum': (curricula.Ramp('speed', 0.0, 1.0, 100),),
      },
      'curriculum .* must not be set offline',
    ),
  ],
)
def test_what_needs_games_is_refused(folder, change, message):
  experiment = make_offline(folder, **change)
  with pytest.raises(ValueError, match=message):
    recorded.check(prepare.prepare(experiment))


def test_runtimes_and_periods_that_need_games_are_refused(folder, tmp_path):
  experiment = make_offline(folder)
  with pytest.raises(ValueError, match=r'offline \(True\) must be False with'):
    ftwax.run(experiment, runtime='distributed', run_dir=tmp_path / 'run')
  with pytest.raises(ValueError, match=r'eval_every .* must count steps'):
    ftwax.run(experiment, '10 episodes', run_dir=tmp_path / 'run')
  with pytest.raises(ValueError, match='must have an environment in JAX'):
    ftwax.run(
      make_offline(folder, environment=_Counting),
      runtime='device',
      run_dir=tmp_path / 'run',
    )
  assert not (tmp_path / 'run').exists()


def test_one_member_on_two_devices_learns_the_same(folder, tmp_path):
  experiment = make_offline(folder, max_num_actor_steps=200)
  one, two = (
    ftwax.run(
      experiment, run_dir=tmp_path / str(n), devices=jax.devices()[:n]
    ).state.params
    for n in (1, 2)
  )
  jax.tree.map(
    lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-3, atol=1e-4),
    one,
    two,
  )


def test_updates_of_a_call_are_those_of_several_calls(folder):
  parts = prepare.prepare(make_offline(folder))
  sources = recorded.load(parts)
  before = parts.learner.init(jax.random.PRNGKey(0))
  learn = jax.jit(
    functools.partial(learning.learn_offline, parts.learner),
    static_argnums=(0, 3),
  )
  at_once, (metrics, skipped) = learn(3, before, sources, 16)
  assert metrics['loss'].shape == skipped.shape == (3,)
  # Each update draws other games: without learning, losses differ all the same.
  still = before._replace(
    hyperparameters=hyperparameters.update(
      before.hyperparameters, {'learning_rate': jnp.zeros_like}
    )
  )
  unmoved, (metrics, _) = learn(3, still, sources, 16)
  jax.tree.map(np.testing.assert_array_equal, unmoved.params, before.params)
  assert len(set(metrics['loss'].tolist())) == 3
  state = before
  for _ in range(3):
    state, _ = learn(1, state, sources, 16)
  jax.tree.map(
    lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5),
    at_once.params,
    state.params,
  )
