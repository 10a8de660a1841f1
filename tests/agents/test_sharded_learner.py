"""A learner over several devices computes what it does on one."""

import functools

import fakes
import jax
import numpy as np
import pytest
import random_batches

from ftwax.agents import impala, ppo, unreal
from ftwax.networks import cores, torsos
from ftwax.runtime import sharding

SIZES = {
  'sequence_length': 4,
  'batch_size': 8,
  'core': cores.LSTM(4),
  'torso': torsos.Torso(hidden_sizes=(4,)),
}
NO_IMAGES = {'tasks': ('reward_prediction', 'value_replay')}
NORMALIZED = {
  'normalize_observations': True,
  'normalize_returns': True,
  'normalize_advantages': True,
}
AGENTS = {
  'impala': (impala, impala.IMPALAConfig.atari_paper(**SIZES)),
  'ppo': (ppo, ppo.PPOConfig(**SIZES, num_minibatches=2, num_epochs=2)),
  'normalized': (
    impala,
    impala.IMPALAConfig.atari_paper(**SIZES, **NORMALIZED),
  ),
  'unreal': (unreal, unreal.UNREALConfig.paper(**SIZES, **NO_IMAGES)),
}


@pytest.mark.parametrize(
  'name',
  [
    pytest.param('impala', marks=pytest.mark.slow),
    pytest.param('ppo', marks=pytest.mark.ci),
    'normalized',
    pytest.param('unreal', marks=pytest.mark.slow),
  ],
)
def test_updates_are_those_of_one_device(name):
  agent, config = AGENTS[name]
  spec = fakes.make_vector_spec()
  network = config.make_network(spec)
  core = config.make_learner_core(network, spec)

  def learn(core):
    state = jax.jit(core.init)(jax.random.PRNGKey(0))
    update = jax.jit(core.update)
    for seed in range(3):
      batch = random_batches.make_batch(seed, spec, network, config)
      state, metrics = update(state, batch)
    return state, metrics

  mesh = sharding.make_mesh(jax.devices()[:4])
  spread = learn(sharding.place_learner_core(mesh, core))
  for leaf in jax.tree.leaves(spread):
    assert len(leaf.sharding.device_set) == 4
    assert leaf.sharding.is_fully_replicated
  jax.tree.map(
    functools.partial(np.testing.assert_allclose, rtol=1e-3, atol=1e-5),
    spread,
    learn(core),
  )


def test_each_device_has_its_part_of_a_batch():
  config = AGENTS['unreal'][1]
  spec = fakes.make_vector_spec()
  network = config.make_network(spec)
  core = config.make_learner_core(network, spec)
  placed = sharding.place_learner_core(
    sharding.make_mesh(jax.devices()[:4]), core
  )
  state = jax.jit(placed.init)(jax.random.PRNGKey(0))
  batch = random_batches.make_batch(0, spec, network, config)
  text = jax.jit(placed.update).lower(state, batch).compile().as_text()
  # Two of eight columns of a trajectory of five timesteps.
  num_features = spec.observations.shape[0]
  assert f'f32[5,2,{num_features}]' in text
  assert 'all-reduce' in text


def test_no_device_sees_the_batch_of_another():
  agent, config = AGENTS['impala']
  spec = fakes.make_vector_spec()
  network = config.make_network(spec)
  core = config.make_learner_core(network, spec)
  placed = sharding.place_learner_core(
    sharding.make_mesh(jax.devices()[:4]), core
  )
  state = jax.jit(placed.init)(jax.random.PRNGKey(0))
  batch = random_batches.make_batch(0, spec, network, config)
  batch = batch._replace(replay=None, reward_prediction=None)
  text = jax.jit(placed.update).lower(state, batch).compile().as_text()
  assert 'all-reduce' in text
  assert 'all-gather' not in text
