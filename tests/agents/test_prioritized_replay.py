"""Learning from trajectories that are replayed by priority."""

import functools

import fakes
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import random_batches

from ftwax import types
from ftwax.agents import a2c
from ftwax.agents.actor_critic import acting, batches, learning, replays
from ftwax.replay import auxiliary_replay, replay_options
from ftwax.replay.functional import segment_tree

CONFIG = a2c.A2CConfig(
  **fakes.SMALL_NETWORK,
  sequence_length=5,
  batch_size=4,
  tasks=('off_policy',),
  replay=replay_options.PrioritizedReplay(),
  optimizer='rms_prop',
)
SPEC = fakes.make_spec()
WEIGHTS = jnp.array([1.0, 0.5, 0.25, 0.125])


@functools.cache
def _make(**options):
  config = CONFIG.replace(**options)
  network = config.make_network(SPEC)
  core = config.make_learner_core(network, SPEC)
  return network, core, jax.jit(core.update)


def _make_batch(network, weights=WEIGHTS):
  batch = random_batches.make_batch(0, SPEC, network, CONFIG)
  slots = jnp.arange(4), jnp.arange(4)
  replay = batch.replay._replace(weights=weights, slots=slots)
  return types.LearnerBatch(batch.trajectory, replay)


def _errors(network, state, trajectory):
  """Returns the errors of one step, [T, B], as NumPy has them."""
  output, _ = network.unroll(
    state.params,
    state.hyperparameters,
    None,
    acting.make_network_input(trajectory.timestep, trajectory.previous_action),
    acting.is_first(trajectory.timestep),
    trajectory.recurrent_state,
  )
  value, timestep = np.asarray(output.value), trajectory.timestep
  discount = 0.99 * np.asarray(timestep.discount)
  errors = timestep.reward[1:] + discount[1:] * value[1:] - value[:-1]
  return np.where(timestep.step_type[:-1] == types.LAST, np.nan, errors)


@pytest.mark.parametrize('num_minibatches', [1, 2])
def test_priorities_are_those_of_the_errors(num_minibatches):
  network, core, update = _make(num_minibatches=num_minibatches)
  state = core.init(jax.random.PRNGKey(0))
  if num_minibatches > 1:  # So that both minibatches find the same network.
    state = state._replace(
      hyperparameters=state.hyperparameters._replace(
        learning_rate=jnp.zeros(())
      )
    )
  batch = _make_batch(network)
  _, metrics = update(state, batch)
  sizes = np.abs(_errors(network, state, batch.replay.trajectory))
  expected = 0.9 * np.nanmax(sizes, axis=0) + 0.1 * np.nanmean(sizes, axis=0)
  np.testing.assert_allclose(
    metrics[auxiliary_replay.PRIORITIES], expected**0.9, rtol=1e-4
  )


def test_each_sequence_counts_by_its_weight():
  network, core, update = _make()
  state = core.init(jax.random.PRNGKey(0))
  batch = _make_batch(network)
  whole = update(state, batch)[1]['off_policy_loss']
  single = jax.jit(core.update)
  parts = []
  for column in range(4):
    one = batches.take_columns(batch, jnp.array([column]))
    one = one._replace(replay=one.replay._replace(weights=jnp.ones(1)))
    parts.append(single(state, one)[1]['off_policy_loss'])
  assert float(whole) == pytest.approx(np.dot(WEIGHTS**0.6, parts), rel=1e-4)


def test_exponents_are_those_of_the_member():
  network, core, update = _make()
  state = core.init(jax.random.PRNGKey(0))
  batch = _make_batch(network)
  metrics = {}
  for exponent in (0.0, 0.5, 1.0):
    changed = state._replace(
      hyperparameters=state.hyperparameters._replace(
        replay_priority_exponent=jnp.float32(exponent),
        replay_importance_exponent=jnp.float32(exponent),
      )
    )
    metrics[exponent] = update(changed, batch)[1]
  priorities = {
    exponent: np.asarray(found[auxiliary_replay.PRIORITIES])
    for exponent, found in metrics.items()
  }
  np.testing.assert_array_equal(priorities[0.0], np.ones(4))
  np.testing.assert_allclose(priorities[0.5] ** 2, priorities[1.0], rtol=1e-4)
  ones = update(state, _make_batch(network, jnp.ones(4)))[1]
  assert float(metrics[0.0]['off_policy_loss']) == pytest.approx(
    float(ones['off_policy_loss']), rel=1e-4
  )


def test_uniform_draws_give_no_priorities():
  network, core, update = _make()
  state = core.init(jax.random.PRNGKey(0))
  batch = random_batches.make_batch(0, SPEC, network, CONFIG)
  _, metrics = update(state, batch._replace(reward_prediction=None))
  assert auxiliary_replay.PRIORITIES not in metrics


@pytest.mark.parametrize('name', ['priority_exponent', 'importance_exponent'])
@pytest.mark.parametrize('value', [-1.0, 1.5, float('nan'), float('inf')])
def test_exponents_are_checked(name, value):
  message = f'^{name} .* must lie in'
  if np.isnan(value):  # No prior has it.
    message = r'Constant value \(nan\) must be'
  with pytest.raises(ValueError, match=message):
    replay_options.PrioritizedReplay(**{name: value})


def test_updates_on_the_device_keep_priorities():
  network, core, _ = _make()
  config = CONFIG
  actor = config.make_policy(network, SPEC)
  replay = replays.Replays(config, SPEC, actor).make_auxiliary(4)
  state = core.init(jax.random.PRNGKey(0))
  rollouts = jax.tree.map(lambda x: x[None], _make_batch(network).trajectory)
  learn = jax.jit(functools.partial(learning.learn, core, replay, 1))
  _, replay_state, (metrics, _) = learn(
    state, replay.init(jax.random.PRNGKey(1)), rollouts
  )
  sizes = np.abs(_errors(network, state, _make_batch(network).trajectory))
  expected = 0.9 * np.nanmax(sizes, axis=0) + 0.1 * np.nanmean(sizes, axis=0)
  # Each environment has its first slot; some may not have been drawn.
  length = -(-CONFIG.replay.capacity // 4)
  learned = np.asarray(
    segment_tree.get_all(replay_state.replay.priorities.learned, 4 * length)
  )[::length]
  np.testing.assert_allclose(
    learned[learned > 0], expected[learned > 0] ** 0.9, rtol=1e-4
  )
  assert (learned > 0).sum() >= 2
  assert auxiliary_replay.PRIORITIES not in metrics
