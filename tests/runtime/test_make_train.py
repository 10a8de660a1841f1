"""Trainings as pure functions, mapped over seeds and values."""

import functional_fakes
import jax
import jax.numpy as jnp
import numpy as np
import population_helpers
import pytest
import run_helpers

import ftwax
from ftwax.agents import ppo
from ftwax.environments import catch
from ftwax.networks import cores, torsos
from ftwax.runtime import experiment

pytestmark = pytest.mark.usefixtures('compiles_once')

MATCHING = functional_fakes.make_matching()


def _make(**options):
  return ftwax.make_train(
    run_helpers.make_experiment(run_helpers.FEED_FORWARD, MATCHING, **options)
  )


@pytest.mark.slow  # As an example of the README.
def test_seeds_are_mapped():
  init, train = _make(max_num_actor_steps=64)
  keys = jax.random.split(jax.random.PRNGKey(0), 3)
  states, metrics = jax.jit(jax.vmap(train))(jax.vmap(init)(keys))
  alone = jax.jit(train)
  for index, key in enumerate(keys):
    state, own = alone(init(key))
    mapped = jax.tree.map(
      lambda leaf, index=index: leaf[index],
      (states.training.params, metrics),
    )
    jax.tree.map(
      lambda x, y: np.testing.assert_allclose(x, y, 1e-4, 1e-5),
      mapped,
      (state.training.params, own),
    )
  assert run_helpers.differ(
    *[jax.tree.map(lambda x, i=i: x[i], states.training.params) for i in (0, 1)]
  )
  assert metrics['num_steps'].shape == (3, 4)
  assert metrics['is_valid'].all()


def test_values_of_hyperparameters_are_mapped():
  init, train = _make(max_num_actor_steps=32)

  def start(learning_rate):
    return init(jax.random.PRNGKey(0), learning_rate=learning_rate)

  states = jax.vmap(start)(jnp.array([0.0, 1e-2]))
  np.testing.assert_allclose(
    states.training.hyperparameters.learning_rate[:, 0], [0.0, 1e-2]
  )
  after, _ = jax.jit(jax.vmap(train))(states)
  still, moved = [
    [leaf[index] for leaf in jax.tree.leaves(after.training.params)]
    for index in (0, 1)
  ]
  before = [leaf[0] for leaf in jax.tree.leaves(states.training.params)]
  run_helpers.assert_same(before, still)
  assert run_helpers.differ(before, moved)
  with pytest.raises(
    ValueError, match=r'lerning_rate .* did you mean learning_rate'
  ):
    init(jax.random.PRNGKey(0), lerning_rate=1.0)


@pytest.mark.slow
def test_a_population_evolves_as_in_a_run(tmp_path):
  experiment = population_helpers.make_experiment()
  result = run_helpers.make_run('device', tmp_path)(experiment)
  init, train = ftwax.make_train(
    # Runs count actions, without the steps that reset a game.
    experiment.replace(
      max_num_actor_steps=result.counts.learner_steps * 4 * 4 * 3
    )
  )
  state, metrics = jax.jit(train)(init(jax.random.PRNGKey(experiment.seed)))
  assert int(metrics['num_steps'].sum()) == result.counts.actor_steps
  assert (np.asarray(metrics['parent']) != np.arange(4)).any()
  jax.tree.map(
    lambda x, y: np.testing.assert_allclose(x, y, 1e-3, 1e-5),
    (state.training.params, state.training.hyperparameters),
    (result.state.params, result.state.hyperparameters),
  )


@pytest.mark.slow
def test_seeds_learn_catch():
  config = ppo.PPOConfig(
    core=cores.LSTM(16), torso=torsos.Torso(hidden_sizes=(16,))
  )
  init, train = ftwax.make_train(
    ftwax.ExperimentConfig(
      agent=config,
      environment=catch.make(6, 5),
      max_num_actor_steps=30_000,
      num_environments=32,
    )
  )
  keys = jax.random.split(jax.random.PRNGKey(0), 3)
  _, metrics = jax.jit(jax.vmap(train))(jax.vmap(init)(keys))
  assert (metrics['episode_return'][:, 0, 0] < 0.0).all()
  assert (metrics['episode_return'][:, -5:, 0].mean(axis=1) > 0.8).all()


@pytest.mark.parametrize(
  'options', [{'init_from': 'run'}, {'observers': [experiment.Observer()]}]
)
def test_what_only_a_run_can_do_is_refused(options):
  with pytest.raises(ValueError, match='must not be set for make_train'):
    _make(**options)


def test_an_environment_in_python_is_refused():
  with pytest.raises(TypeError, match='must make a functional'):
    ftwax.make_train(
      ftwax.ExperimentConfig(ppo.PPOConfig(), 'CartPole-v1', 100)
    )
