"""The learner's functions: one update, many members, bad gradients."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ftwax import hyperparameters, types
from ftwax.agents.actor_critic import acting, learning, optimization
from ftwax.losses import policy_loss, v_trace


@pytest.fixture(scope='module')
def core(network, config):
  config = config.replace(
    learning_rate=hyperparameters.LogUniform(1e-3, 1e-1),
    entropy_cost=hyperparameters.LogUniform(1e-3, 1e-1),
  )
  return learning.make_learner_core(network, config)


@pytest.fixture(scope='module')
def state(core):
  return core.init(jax.random.PRNGKey(3))


@pytest.fixture(scope='module')
def update(core):
  return jax.jit(core.update)


def _loss_one_stream_at_a_time(network, params, hypers, batch):
  """The joint loss by the functions that the learner's is built from."""
  batch = batch.trajectory
  output, _ = network.unroll(
    params,
    hypers,
    None,
    acting.make_network_input(batch.timestep, batch.previous_action),
    acting.is_first(batch.timestep),
    batch.recurrent_state,
  )
  total = 0.0
  batch = batch._replace(recurrent_state=())
  for column in range(batch.logits.shape[1]):
    stream_output, stream = jax.tree.map(
      lambda x: x[:, column],  # noqa: B023
      (output, batch),
    )
    losses = v_trace.vtrace_loss(
      policy_loss.make_transitions(stream_output, stream, hypers), hypers
    )
    total += jnp.sum(losses.policy)
    total += hypers.baseline_cost * jnp.sum(losses.value)
    total -= hypers.entropy_cost * jnp.sum(losses.entropy)
  return total


def _norm(tree):
  leaves = [np.asarray(leaf, np.float64) for leaf in jax.tree.leaves(tree)]
  return np.sqrt(sum(np.sum(leaf**2) for leaf in leaves))


def test_update_is_a_step_of_rmsprop_on_the_joint_loss(
  network, state, update, make_batch
):
  batch, hypers = make_batch(0), state.hyperparameters
  differentiate = jax.value_and_grad(
    functools.partial(_loss_one_stream_at_a_time, network)
  )
  loss, gradients = jax.jit(differentiate)(state.params, hypers, batch)
  norm = _norm(gradients)
  scale = min(1.0, hypers.max_gradient_norm / norm)

  def expected(param, gradient):
    gradient = scale * np.asarray(gradient)
    mean_square = 0.01 * gradient**2
    step = gradient / np.sqrt(mean_square + hypers.optimizer.epsilon)
    return param - hypers.learning_rate * step

  new_state, metrics = update(state, batch)
  np.testing.assert_allclose(metrics['loss'], loss, rtol=1e-5)
  np.testing.assert_allclose(metrics['gradient_norm'], norm, rtol=1e-4)
  jax.tree.map(
    lambda x, y: np.testing.assert_allclose(x, y, atol=1e-5, rtol=1e-4),
    new_state.params,
    jax.tree.map(expected, state.params, gradients),
  )
  assert int(new_state.steps) == 1 and int(new_state.skipped) == 0


def test_large_gradients_are_scaled_to_the_bound(state, update, make_batch):
  bound = jnp.float32(1e-3)
  small = state._replace(
    hyperparameters=hyperparameters.update(
      state.hyperparameters,
      {
        'max_gradient_norm': lambda _: bound,
        'optimizer.epsilon': jnp.ones_like,
      },
    )
  )
  after, metrics = update(small, make_batch(0))
  assert metrics['gradient_norm'] > bound
  moved = _norm(
    jax.tree.map(lambda x, y: np.subtract(x, y), after.params, small.params)
  )
  expected = bound * small.hyperparameters.learning_rate
  np.testing.assert_allclose(moved, expected, rtol=1e-2)


def test_the_bound_is_on_the_mean_gradient_where_the_mean_is_learned_from(
  network, config, make_batch
):
  found = {}
  for bound in (1e9, 3.0, 1e-2):
    core = learning.make_learner_core(
      network,
      config.replace(
        loss_reduction='mean',
        max_gradient_norm=bound,
        optimizer=optimization.RMSProp(1.0),
      ),
    )
    state = core.init(jax.random.PRNGKey(3))
    found[bound] = jax.jit(core.update)(state, make_batch(0))
  summed = learning.make_learner_core(network, config)
  _, metrics = jax.jit(summed.update)(state, make_batch(0))
  norms = [float(metrics['gradient_norm']) for _, metrics in found.values()]
  # The log has the norm before it is bounded, here of 14 transitions.
  np.testing.assert_allclose(norms, float(metrics['gradient_norm']) / 14, 1e-4)
  assert 1e-2 < norms[0] < 3.0 < metrics['gradient_norm']
  leaves = [jax.tree.leaves(state.params) for state, _ in found.values()]
  for free, wide, narrow in zip(*leaves, strict=True):
    np.testing.assert_array_equal(free, wide)
    assert not np.array_equal(free, narrow) or not np.any(np.asarray(free))


def test_members_of_a_population_do_not_touch_each_other(
  core, update, make_batch
):
  keys = jax.random.split(jax.random.PRNGKey(5), 4)
  states = jax.tree.map(np.asarray, jax.jit(jax.vmap(core.init))(keys))
  assert len(set(np.asarray(states.hyperparameters.learning_rate))) == 4
  batches = [make_batch(seed) for seed in range(4)]
  stacked = jax.tree.map(lambda *x: np.stack(x), *batches)
  together, _ = jax.jit(jax.vmap(core.update))(states, stacked)
  for member in range(4):
    alone, _ = update(
      jax.tree.map(lambda x: x[member], states),  # noqa: B023
      batches[member],
    )
    jax.tree.map(
      lambda x, y: np.testing.assert_allclose(
        x[member],  # noqa: B023
        y,
        atol=1e-5,
      ),
      together,
      alone,
    )


def test_changing_hyperparameters_makes_no_new_trace(core, state, make_batch):
  num_traces = 0

  def counted(state, batch):
    nonlocal num_traces
    num_traces += 1
    return core.update(state, batch)

  jitted = jax.jit(counted)
  batch = make_batch(0)
  before, _ = jitted(state, batch)
  doubled = jax.tree.map(lambda x: 2 * np.asarray(x), state.hyperparameters)
  after, _ = jitted(state._replace(hyperparameters=doubled), batch)
  assert num_traces == 1
  same = jax.tree.map(np.array_equal, before.params, after.params)
  assert not all(jax.tree.leaves(same))


def test_gradients_that_are_not_finite_are_skipped_and_counted(
  state, update, make_batch
):
  good = make_batch(0)
  timestep = good.trajectory.timestep
  bad = good._replace(
    trajectory=good.trajectory._replace(
      timestep=timestep._replace(reward=timestep.reward.at[2, 0].set(jnp.nan))
    )
  )
  once, _ = update(state, bad)
  twice, metrics = update(once, bad)
  assert int(twice.skipped) == int(twice.skipped_in_a_row) == 2
  assert int(metrics['skipped_updates']) == 2
  jax.tree.map(
    np.testing.assert_array_equal,
    (state.params, state.opt_state),
    (twice.params, twice.opt_state),
  )
  recovered, _ = update(twice, good)
  assert int(recovered.skipped) == 2 and int(recovered.skipped_in_a_row) == 0
  assert int(recovered.steps) == 3


def test_the_learner_draws_the_noise_that_acted(network, config, make_batch):
  def unroll(params, hypers, seeds, *inputs):
    output, state = network.unroll(params, hypers, None, *inputs)
    return output._replace(value=output.value + seeds), state

  core = learning.make_learner_core(network._replace(unroll=unroll), config)
  batch, update = make_batch(0).trajectory, jax.jit(core.update)
  seeds = jnp.arange(batch.timestep.reward.size).reshape(
    batch.timestep.reward.shape
  )
  values = [
    float(
      update(
        core.init(jax.random.PRNGKey(0)),
        types.LearnerBatch(batch._replace(seed=seeds + added)),
      )[1]['value']
    )
    for added in (0, 0, 5)
  ]
  np.testing.assert_allclose(np.diff(values), [0.0, 5.0], rtol=1e-5)
