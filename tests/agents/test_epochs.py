"""Updates of several steps: epochs, minibatches, targets, schedules."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ftwax import hyperparameters, types
from ftwax.agents.actor_critic import batches, learning, optimization
from ftwax.losses import v_trace
from ftwax.networks import cores


@pytest.fixture(scope='module')
def small(config):
  return config.replace(core=cores.FeedForward(4))


@pytest.fixture(scope='module')
def small_network(spec, small):
  return small.make_network(spec)


@pytest.fixture(scope='module')
def make_small_batch(make_batch, small_network):
  def make(seed):
    trajectory = make_batch(seed).trajectory._replace(
      recurrent_state=small_network.initial_state(3)
    )
    return types.LearnerBatch(trajectory)

  return make


@pytest.fixture(scope='module')
def one_step(small_network, small):
  return learning.make_learner_core(small_network, small)


@pytest.fixture(scope='module')
def state(one_step):
  return one_step.init(jax.random.PRNGKey(0))


def _params(state):
  return jax.tree.leaves(state.params)


def test_epochs_are_steps_on_the_same_batch(
  small_network, small, one_step, state, make_small_batch
):
  core = learning.make_learner_core(small_network, small.replace(num_epochs=2))
  batch = make_small_batch(0)
  expected = state
  for _ in range(2):
    expected, _ = jax.jit(one_step.update)(expected, batch)
  found, _ = jax.jit(core.update)(state, batch)
  chex.assert_trees_all_close(_params(found), _params(expected), atol=1e-5)
  assert int(found.steps) == 1


def test_minibatches_are_steps_on_whole_sequences(
  small_network, small, one_step, state, make_small_batch
):
  """All sequences are alike, so that their order does not matter."""
  core = learning.make_learner_core(
    small_network,
    small.replace(num_minibatches=3),
  )
  alike = batches.take_columns(make_small_batch(0), jnp.array([1, 1, 1]))
  single = batches.take_columns(alike, jnp.array([0]))
  expected = state
  for _ in range(3):
    expected, _ = jax.jit(one_step.update)(expected, single)
  found, _ = jax.jit(core.update)(state, alike)
  chex.assert_trees_all_close(_params(found), _params(expected), atol=1e-5)


def test_targets_are_those_before_the_first_step(
  small_network, small, state, make_small_batch
):
  """And go with their sequences into the minibatches."""

  def make_targets(transitions, hyperparameters):
    del hyperparameters
    return transitions.v_tm1, transitions.r_t

  class WithTargets(type(small)):
    targets_fn = property(lambda self: make_targets)
    loss_fn = property(lambda self: loss)

  def loss(transitions, hyperparameters):
    losses = v_trace.vtrace_loss(transitions, hyperparameters)
    value, reward = transitions.targets
    return losses._replace(
      metrics={
        'moved': jnp.max(jnp.abs(value - transitions.v_tm1)),
        'mixed_up': jnp.max(jnp.abs(reward - transitions.r_t)),
      }
    )

  moved = []
  for num_epochs in (1, 2):
    core = learning.make_learner_core(
      small_network,
      WithTargets(
        **{**vars(small), 'num_epochs': num_epochs, 'num_minibatches': 3}
      ),
    )
    _, metrics = jax.jit(core.update)(state, make_small_batch(1))
    assert metrics['mixed_up'] == 0.0
    moved.append(float(metrics['moved']))
  assert 0.0 < moved[0] < moved[1]


def test_mean_is_the_sum_over_the_number_of_actions(
  small_network, small, one_step, state, make_small_batch
):
  core = learning.make_learner_core(
    small_network, small.replace(loss_reduction='mean')
  )
  batch = make_small_batch(0)
  _, total = jax.jit(one_step.update)(state, batch)
  _, mean = jax.jit(core.update)(state, batch)
  # 3 streams of 5 steps, at one of which there was no action.
  for name in ('loss', 'gradient_norm'):
    np.testing.assert_allclose(mean[name], total[name] / 14, rtol=1e-5)


def test_one_bad_minibatch_is_skipped_and_the_update_counted(
  small_network, small, state, make_small_batch
):
  core = learning.make_learner_core(
    small_network, small.replace(num_minibatches=3)
  )
  batch = make_small_batch(0)
  timestep = batch.trajectory.timestep
  reward = timestep.reward.at[2, 0].set(jnp.nan)
  trajectory = batch.trajectory._replace(
    timestep=timestep._replace(reward=reward)
  )
  found, _ = jax.jit(core.update)(state, types.LearnerBatch(trajectory))
  assert int(found.skipped) == 1
  assert all(np.all(np.isfinite(x)) for x in _params(found))
  moved = zip(_params(found), _params(state), strict=True)
  assert any(np.any(x != y) for x, y in moved)


def test_first_step_of_adam_has_the_size_of_the_learning_rate(small):
  config = small.replace(optimizer='adam')
  optimizer = optimization.make_optimizer(
    config.optimizer, config.max_gradient_norm
  )
  gradient = {'x': jnp.array([3.0, -0.5, 0.0])}
  update, _ = optimizer.update(gradient, optimizer.init(gradient))
  np.testing.assert_allclose(update['x'], [-1.0, 1.0, 0.0], atol=1e-4)


def test_hyperparameters_decay_linearly_to_zero(small):
  config = small.replace(
    decay=optimization.LinearDecay(names=('learning_rate', 'entropy_cost'))
  )
  values = config.sample_hyperparameters(jax.random.PRNGKey(0))
  values = values._replace(decay=values.decay._replace(steps=jnp.float32(100)))
  for steps, rest in ((0, 1.0), (25, 0.75), (100, 0.0), (200, 0.0)):
    found = optimization.decay(config.decay, values, jnp.int32(steps))
    np.testing.assert_allclose(found.learning_rate, rest * values.learning_rate)
    np.testing.assert_allclose(found.entropy_cost, rest * values.entropy_cost)
    assert found.discount == values.discount


def test_columns_are_taken_of_all_sources(make_small_batch):
  trajectory = make_small_batch(0).trajectory
  batch = types.LearnerBatch(
    trajectory,
    types.ReplayBatch(trajectory, jnp.array(True)),
    types.RewardPredictionBatch(
      jnp.arange(6.0).reshape(2, 3, 1), jnp.arange(3.0), jnp.array(True)
    ),
  )
  found = batches.take_columns(batch, jnp.array([2, 0]))
  expected = trajectory.timestep.observation[:, jnp.array([2, 0])]
  for taken in (found.trajectory, found.replay.trajectory):
    np.testing.assert_array_equal(taken.timestep.observation, expected)
  np.testing.assert_array_equal(found.reward_prediction.reward, [2.0, 0.0])
  np.testing.assert_array_equal(
    found.reward_prediction.observation[..., 0], [[2.0, 0.0], [5.0, 3.0]]
  )
  assert found.replay.is_live.shape == ()


@pytest.mark.parametrize(
  ('changes', 'message'),
  [
    (
      {'batch_size': 6, 'num_minibatches': 4},
      r'num_minibatches \(4\) must divide batch_size \(6\).*minibatches=2',
    ),
    ({'num_epochs': 0}, r'num_epochs \(0\) must be at least 1'),
    ({'optimizer': 'sgd'}, r"optimizer \('sgd'\) must be one of"),
    ({'loss_reduction': 'max'}, r"loss_reduction \('max'\) must be one of"),
    (
      {'decay': optimization.LinearDecay(names=('period',))},
      r"name \('period'\) of a schedule must be among .*'learning_rate'",
    ),
  ],
)
def test_bad_options_are_refused(config, changes, message):
  with pytest.raises(ValueError, match=message):
    config.replace(**changes)


def test_decays_are_data(small):
  """A population may evolve how fast its members decay."""
  config = small.replace(
    decay=optimization.LinearDecay(hyperparameters.LogUniform(10.0, 1000.0))
  )
  keys = jax.random.split(jax.random.PRNGKey(0), 4)
  values = jax.vmap(config.sample_hyperparameters)(keys)
  found = jax.vmap(lambda x: optimization.decay(config.decay, x, jnp.int32(5)))(
    values
  )
  fractions = found.learning_rate / values.learning_rate
  assert len(set(np.asarray(fractions))) == 4
