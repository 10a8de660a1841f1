import functools

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ftwax.networks import recurrence, recurrent_cores

HIDDEN, INPUTS, T, B = 6, 5, 7, 3

CORES = {
  'lstm': recurrent_cores.LSTM(HIDDEN, forget_bias=1.0),
  'gru': recurrent_cores.GRU(HIDDEN),
  'feed_forward': recurrent_cores.FeedForward(HIDDEN),
}
WITH_MEMORY = ['lstm', 'gru']


def _make(name):
  """Returns init, and apply with the entries step and unroll."""

  def make_functions():
    core = CORES[name].make()

    def step_by_step(inputs, start, state):
      features = []
      for input_t, start_t in zip(inputs, start, strict=True):
        state = recurrence.reset_state(start_t, state)
        output, state = core(input_t, state)
        features.append(output.features)
      return recurrence.CoreOutput(jnp.stack(features), {}), state

    def init(inputs):
      core(inputs, core.initial_state(inputs.shape[0]))

    return init, (core.initial_state, step_by_step, core.unroll)

  transformed = hk.without_apply_rng(hk.multi_transform(make_functions))
  return transformed.init, *transformed.apply


def _data(seed=0):
  random = np.random.RandomState(seed)
  inputs = jnp.float32(random.randn(T, B, INPUTS))
  # Row 0 never starts, row 1 does at first and later, row 2 in the middle.
  start = np.zeros((T, B), bool)
  start[0, 1] = start[4, 1] = start[5, 1] = start[3, 2] = True
  return inputs, jnp.asarray(start)


def _random_state(state, seed=1):
  random = np.random.RandomState(seed)
  return jax.tree.map(lambda x: jnp.float32(random.randn(*x.shape)), state)


def _gradients(function, params, inputs, start, state):
  """Differentiates with respect to parameters, inputs and first state."""

  def objective(params, inputs, state):
    output, state = function(params, inputs, start, state)
    leaves = [output.features, *jax.tree.leaves(state)]
    return sum(jnp.sum(jnp.sin((i + 1) * x)) for i, x in enumerate(leaves))

  return jax.grad(objective, argnums=(0, 1, 2))(params, inputs, state)


@pytest.mark.slow
@pytest.mark.parametrize('name', CORES)
def test_gradient_of_unroll_equals_that_of_steps(key, name):
  init, initial_state, step_by_step, unroll = _make(name)
  inputs, start = _data()
  params = init(key, inputs[0])
  state = _random_state(initial_state({}, B))
  expected = _gradients(step_by_step, params, inputs, start, state)
  # Both ways, since a gradient of its own is traced at different times.
  inside = _gradients(jax.jit(unroll), params, inputs, start, state)
  outside = jax.jit(functools.partial(_gradients, unroll))(
    params, inputs, start, state
  )
  for actual in (inside, outside):
    jax.tree.map(
      functools.partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-5),
      actual,
      expected,
    )


@pytest.mark.parametrize('name', WITH_MEMORY)
def test_gradients_of_a_population(key, name):
  init, initial_state, _, unroll = _make(name)
  start = _data()[1]
  inputs = jnp.stack([_data(seed)[0] for seed in range(2)])
  params = jax.vmap(init)(jax.random.split(key, 2), inputs[:, 0])
  state = _random_state(initial_state({}, B))
  gradients = jax.jit(
    jax.vmap(functools.partial(_gradients, unroll), in_axes=(0, 0, None, None))
  )(params, inputs, start, state)
  for member in range(2):
    take = functools.partial(jax.tree.map, lambda x, i=member: x[i])
    expected = _gradients(unroll, take(params), inputs[member], start, state)
    jax.tree.map(
      functools.partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-5),
      take(gradients),
      expected,
    )


def test_feed_forward_remembers_nothing(key):
  init, _, _, unroll = _make('feed_forward')
  inputs, start = _data()
  params = init(key, inputs[0])
  features = unroll(params, inputs, start, ())[0].features
  backwards = unroll(params, inputs[::-1], start, ())[0].features
  np.testing.assert_allclose(backwards[::-1], features, atol=1e-6)


@pytest.mark.parametrize(
  ('name', 'make_other'), [('lstm', hk.LSTM), ('gru', hk.GRU)]
)
def test_core_agrees_with_haiku(key, name, make_other):
  init, initial_state, _, unroll = _make(name)
  inputs, _ = _data()
  start = jnp.zeros((T, B), bool)
  params = init(key, inputs[0])
  b = params[name]['b']
  params[name]['b'] = jnp.cos(jnp.arange(b.size, dtype=b.dtype))
  weights = params[name]
  if name == 'lstm':
    both = jnp.concatenate([weights['w_i'], weights['w_h']])
    other_params = {'lstm/linear': {'w': both, 'b': weights['b']}}
  else:
    other_params = {'gru': weights}
  state = _random_state(initial_state({}, B))
  other = hk.transform(
    lambda inputs, state: hk.dynamic_unroll(make_other(HIDDEN), inputs, state)
  )
  other_state = hk.LSTMState(*state) if name == 'lstm' else state
  expected, expected_state = other.apply(
    other_params, None, inputs, other_state
  )
  output, state = unroll(params, inputs, start, state)
  np.testing.assert_allclose(output.features, expected, atol=1e-6)
  for leaf, expected_leaf in zip(
    jax.tree.leaves(state), jax.tree.leaves(expected_state), strict=True
  ):
    np.testing.assert_allclose(leaf, expected_leaf, atol=1e-6)


@pytest.mark.parametrize(
  ('name', 'num_parameters'),
  [
    ('lstm', (INPUTS + HIDDEN + 1) * 4 * HIDDEN),
    ('gru', (INPUTS + HIDDEN + 1) * 3 * HIDDEN),
    ('feed_forward', (INPUTS + 1) * HIDDEN),
  ],
)
def test_number_of_parameters(key, name, num_parameters):
  params = _make(name)[0](key, jnp.zeros((1, INPUTS)))
  assert sum(leaf.size for leaf in jax.tree.leaves(params)) == num_parameters


@pytest.mark.parametrize('forget_bias', [1.0, 3.0])
def test_memories_fade_as_the_forget_bias_says(key, forget_bias):
  def unroll(inputs, start, state):
    lstm = recurrent_cores.LSTM(2, forget_bias).make()
    return lstm.unroll(inputs, start, state)[1]

  transformed = hk.without_apply_rng(hk.transform(unroll))
  state = recurrent_cores.LSTMState(jnp.zeros((1, 2)), jnp.full((1, 2), 0.7))
  arguments = jnp.zeros((5, 1, 3)), jnp.zeros((5, 1), bool), state
  params = jax.tree.map(jnp.zeros_like, transformed.init(key, *arguments))
  last = transformed.apply(params, *arguments)
  kept = 1 / (1 + np.exp(-forget_bias))
  np.testing.assert_allclose(last.cell, 0.7 * kept**5, rtol=1e-5)
