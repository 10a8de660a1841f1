"""Hyperparameters that an agent does not read do not evolve."""

import fakes
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import random_batches

from ftwax import hyperparameters
from ftwax.agents import ftw, unreal

SIZES = {'sequence_length': 4, 'batch_size': 2, 'num_minibatches': 1}
WITHOUT_TASKS = {'use_pixel_control': False, 'use_reward_prediction': False}
AGENTS = {
  'lstm with ppo': ftw.FTWConfig(
    core='lstm', learning_rate=0.1, num_epochs=4, **SIZES, **WITHOUT_TASKS
  ),
  'rpth with vtrace': ftw.FTWConfig.paper(**SIZES, **WITHOUT_TASKS),
  'value replay': unreal.UNREALConfig(hidden_size=4, **SIZES, **WITHOUT_TASKS),
}


def _make(name):
  config = AGENTS[name]
  return config.with_size(4) if hasattr(config, 'with_size') else config


def _change(values, name):
  """Returns the values of which one is smaller."""
  value = getattr(values, name)
  small = 2 if value.dtype == jnp.int32 else jnp.minimum(0.5 * value, 0.01)
  return values._replace(**{name: jnp.asarray(small, value.dtype)})


def _are_equal(a, b):
  return all(jax.tree.leaves(jax.tree.map(np.array_equal, a, b)))


@pytest.mark.parametrize('name', AGENTS)
def test_no_update_depends_on_what_is_unused(name, key):
  config, spec = _make(name), fakes.make_vector_spec()
  network = config.make_network(spec)
  core = config.make_learner_core(network, spec)
  batch = random_batches.make_batch(0, spec, network, config)
  state = core.init(key)
  values = config.priors._make(
    jnp.asarray(value) for value in state.hyperparameters
  )

  @jax.jit
  def update_twice(values):
    changed = state._replace(hyperparameters=values)
    for _ in range(2):
      changed, _ = core.update(changed, batch)
    return changed.params

  params = update_twice(values)
  without_effect = {
    name
    for name in values._fields
    if _are_equal(update_twice(_change(values, name)), params)
  }
  assert without_effect == config.unused_hyperparameters


def test_what_is_unused_is_neither_drawn_nor_perturbed(key):
  prior = hyperparameters.LogUniform(0.1, 1.0)
  config = _make('lstm with ppo').replace(
    entropy_cost=prior,
    kl_prior_fixed_cost=prior,
    slow_period=hyperparameters.UniformInteger(5, 20),
  )
  assert config.priors.entropy_cost == prior
  assert config.priors.kl_prior_fixed_cost == hyperparameters.Constant(0.1)
  assert config.priors.slow_period == hyperparameters.UniformInteger(5, 5)
  whole = config.replace(core='rpth').priors
  assert whole.kl_prior_fixed_cost == prior


def test_parts_of_the_users_own_may_read_everything():
  config = ftw.FTWConfig(core='lstm', loss=lambda *arguments: None)
  assert not config.unused_hyperparameters
