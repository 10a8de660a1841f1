import functools
from typing import NamedTuple

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ftwax import parts
from ftwax.networks import cores, noise, recurrence, rpth

pytestmark = pytest.mark.slow

BATCH, NUM_INPUTS = 3, 4
MEMORIES = {
  'lstm': None,
  'exact': cores.Memory(5, 4, 2, linkage='exact'),
  'plain': cores.Memory(5, 4, 2, linkage='plain'),
  'sparse': cores.Memory(5, 4, 2, linkage='sparse', num_links=3),
  'none': cores.Memory(5, 4, 2, linkage='none'),
}


class Hyperparameters(NamedTuple):
  slow_period: jax.Array
  fast_to_slow_gradient_scale: jax.Array


def hyperparameters(period=3, gradient_scale=1.0):
  return Hyperparameters(
    jnp.asarray(period, jnp.int32), jnp.asarray(gradient_scale, jnp.float32)
  )


def make_functions(config):
  def make(values):
    return parts.bind(config, values).make()

  def init(inputs):
    core = make(hyperparameters())
    return core(inputs, core.initial_state(inputs.shape[0]))

  def step(inputs, state, values):
    return make(values)(inputs, state)

  def unroll(inputs, start, state, values):
    return make(values).unroll(inputs, start, state)

  def initial_state(batch_size):
    return make(None).initial_state(batch_size)

  return hk.multi_transform(lambda: (init, (step, unroll, initial_state)))


def make_config(name, num_levels=2, **kwargs):
  options = {'level': 6, 'memory': MEMORIES[name], **kwargs}
  return cores.RPTH(latent_size=5, num_levels=num_levels, **options)


def make_sequence(num_steps=9):
  rng = np.random.default_rng(1)
  inputs = rng.normal(size=(num_steps, BATCH, NUM_INPUTS)).astype(np.float32)
  start = np.zeros((num_steps, BATCH), bool)
  start[num_steps // 4, 1] = start[-1, 2] = start[0, 0] = True
  return inputs, jnp.array(start)


def assert_close(expected, found, **tolerance):
  tolerance = tolerance or {'atol': 1e-5}
  jax.tree.map(
    lambda x, y: np.testing.assert_allclose(x, y, **tolerance), expected, found
  )


@pytest.mark.parametrize(
  ('name', 'num_levels'),
  [('lstm', 3), ('exact', 2), ('exact', 3), ('sparse', 2), ('none', 2)],
)
def test_unroll_equals_steps_with_resets(name, num_levels, key):
  transformed = make_functions(make_config(name, num_levels))
  inputs, start = make_sequence()
  params = jax.jit(transformed.init)(key, inputs[0])
  apply, unroll, initial_state = transformed.apply
  seeds = jnp.arange(start.size).reshape(start.shape)

  @jax.jit
  def step(seeds, *args):
    with noise.seeded(seeds):
      return apply(params, None, *args)

  hps = hyperparameters(period=2)
  state = step(seeds[3], inputs[3], initial_state({}, None, BATCH), hps)[1]
  with noise.seeded(seeds):
    outputs, last = jax.jit(unroll)(params, None, inputs, start, state, hps)
  assert not np.allclose(outputs.features, outputs.auxiliary['loc'][0])
  for t in range(len(inputs)):
    state = recurrence.reset_state(start[t], state)
    output, state = step(seeds[t], inputs[t], state, hps)
    assert_close(output, jax.tree.map(lambda leaf, t=t: leaf[t], outputs))
  assert_close(state, last)


@pytest.mark.parametrize('forget_bias', [1.0, 3.0])
def test_memories_fade_as_the_forget_bias_says(forget_bias, key):
  transformed = make_functions(
    make_config('lstm', level=cores.LSTM(6, forget_bias=forget_bias))
  )
  inputs = jnp.zeros((BATCH, NUM_INPUTS))
  params = jax.tree.map(jnp.zeros_like, transformed.init(key, inputs))
  apply, _, initial_state = transformed.apply
  state = initial_state({}, None, BATCH)
  levels = tuple(
    level._replace(
      controller=level.controller._replace(
        cell=jnp.full_like(level.controller.cell, 0.7)
      )
    )
    for level in state.levels
  )
  state = state._replace(levels=levels)
  for _ in range(4):  # The slow level ticks at steps 0 and 3.
    _, state = apply(params, None, inputs, state, hyperparameters(period=3))
  kept = 1 / (1 + np.exp(-forget_bias))
  for level, num_ticks in zip(state.levels, (4, 2), strict=True):
    np.testing.assert_allclose(
      level.controller.cell, 0.7 * kept**num_ticks, rtol=1e-5
    )


@pytest.mark.parametrize('name', ['lstm', 'exact'])
def test_slow_core_ticks_at_multiples_of_its_period(name, key):
  """Also after a reset, and with another period for each population member."""
  transformed = make_functions(make_config(name, num_levels=3))
  inputs, start = make_sequence(13)
  params = jax.jit(transformed.init)(key, inputs[0])
  _, unroll, initial_state = transformed.apply
  state = initial_state({}, None, BATCH)
  periods = jnp.array([1, 2, 3, 5])
  outputs, _ = jax.jit(
    jax.vmap(
      lambda period: unroll(
        params, None, inputs, start, state, hyperparameters(period)
      )
    )
  )(periods)
  for member, period in enumerate(periods):
    count = np.zeros(BATCH, int)
    held = [np.zeros((BATCH, 5))] * 3
    for t in range(len(inputs)):
      count = np.where(start[t], 0, count)
      for level in range(3):
        ticks = count % period**level == 0
        found = outputs.auxiliary['tick'][level][member, t]
        np.testing.assert_array_equal(found, ticks)
        loc = np.asarray(outputs.auxiliary['loc'][level][member, t])
        # From the zero state it may move to where it was at the last reset.
        moved = np.any(loc != held[level], axis=-1) | np.asarray(start[t])
        if t:
          np.testing.assert_array_equal(moved, ticks)
        held[level] = loc
      count += 1


def test_state_counts_steps_of_the_episode(key):
  transformed = make_functions(make_config('lstm'))
  inputs, start = make_sequence(9)
  params = jax.jit(transformed.init)(key, inputs[0])
  _, unroll, initial_state = transformed.apply
  state = initial_state({}, None, BATCH)
  last = jax.jit(unroll)(params, None, inputs, start, state, hyperparameters())[
    1
  ]
  np.testing.assert_array_equal(last.step, [9, 7, 1])


@pytest.mark.parametrize('name', ['exact', 'lstm'])
def test_gradient_from_fast_to_slow_is_scaled_exactly(name, key):
  """With period 1 and one step the slow core acts only through what is scaled.

  What it writes into the shared memory is another way, so that there only its
  own parameters that come after the memory are looked at.
  """
  transformed = make_functions(make_config(name))
  inputs, _ = make_sequence(1)
  start = jnp.zeros((1, BATCH), bool)
  params = jax.jit(transformed.init)(key, inputs[0])
  apply, unroll, initial_state = transformed.apply
  hps = hyperparameters()
  zero = initial_state({}, None, BATCH)
  state = jax.jit(apply)(params, None, inputs[0], zero, hps)[1]
  state = state._replace(step=zero.step)

  @functools.partial(jax.jit, static_argnums=1)
  def gradient(scale, auxiliary=False):
    def loss(params):
      hps = hyperparameters(1, scale)
      output, _ = unroll(params, None, inputs, start, state, hps)
      if auxiliary:
        return jnp.sum(output.auxiliary['loc'][1] ** 2)
      return jnp.sum(output.features**2)

    gradients = jax.grad(loss)(params)
    parts = ('level_1',) if name == 'lstm' else ('level_1/~/latent',)
    return {k: v for k, v in gradients.items() if any(p in k for p in parts)}

  full, scaled = gradient(1.0), gradient(0.25)
  assert len(full) >= 1
  assert_close(
    jax.tree.map(lambda leaf: 0.25 * leaf, full), scaled, rtol=1e-5, atol=1e-9
  )
  assert max(np.max(np.abs(leaf)) for leaf in jax.tree.leaves(full)) > 1e-6
  # Losses of the slow core's own latent are not scaled.
  assert_close(gradient(1.0, True), gradient(0.25, True), rtol=1e-6)


def test_scale_gradient():
  value, backward = jax.vjp(rpth.scale_gradient, jnp.arange(3.0), 0.3)
  np.testing.assert_array_equal(value, jnp.arange(3.0))
  dx, dscale = backward(jnp.ones(3))
  np.testing.assert_array_equal(dx, np.full(3, np.float32(0.3)))
  assert dscale == 0.0


def test_gradient_equals_autodiff_of_the_plain_form(key):
  gradients = []
  for name in ('plain', 'exact'):
    transformed = make_functions(make_config(name))
    inputs, start = make_sequence(9)
    params = jax.jit(transformed.init)(key, inputs[0])
    apply, unroll, initial_state = transformed.apply
    hps = hyperparameters(2, 0.5)
    zero = initial_state({}, None, BATCH)
    state = jax.jit(apply)(params, None, inputs[0], zero, hps)[1]

    def loss(params, inputs, memory, step=unroll, args=(start, state, hps)):
      start, state, hps = args
      state = state._replace(memory=memory)
      output, last = step(params, key, inputs, start, state, hps)
      words = last.memory.words
      return jnp.mean(output.features**2) + jnp.sum(words**2)

    gradients.append(
      jax.jit(jax.value_and_grad(loss, (0, 1, 2)))(params, inputs, state.memory)
    )

  def compare(x, y):
    if x.shape == (BATCH, 1, 5, 5):  # The link's diagonal is always zero.
      off_diagonal = 1.0 - np.eye(5)[None, None]
      x, y = x * off_diagonal, y * off_diagonal
    np.testing.assert_allclose(x, y, atol=1e-4, rtol=1e-3)

  jax.tree.map(compare, *gradients)


@pytest.mark.parametrize('noise_scale', [1.0, 0.5, 0.0])
def test_samples_are_of_the_posterior(noise_scale, key):
  transformed = make_functions(make_config('lstm', noise_scale=noise_scale))
  inputs = jnp.zeros((1, NUM_INPUTS))
  params = jax.jit(transformed.init)(key, inputs)
  apply, _, initial_state = transformed.apply
  state = initial_state({}, None, 1)

  def sample(seed):
    with noise.seeded(seed[None]):
      return apply(params, None, inputs, state, hyperparameters())[0]

  output = jax.vmap(sample)(jnp.arange(4000))
  loc, scale = output.auxiliary['loc'][0], output.auxiliary['scale'][0]
  np.testing.assert_allclose(np.mean(output.features, 0), loc[0], atol=0.01)
  np.testing.assert_allclose(
    np.std(output.features, 0), noise_scale * scale[0], atol=0.01
  )
  # A layer that says zero means the scale of the fixed prior.
  zeros = jax.tree.map(jnp.zeros_like, params)
  output, _ = apply(zeros, None, inputs, state, hyperparameters())
  np.testing.assert_allclose(output.auxiliary['scale'][1], 0.1, atol=1e-5)


def test_a_reset_row_forgets(key):
  transformed = make_functions(make_config('exact'))
  inputs, start = make_sequence(6)
  start = jnp.zeros_like(start).at[3, 1].set(True)
  params = jax.jit(transformed.init)(key, inputs[0])
  _, unroll, initial_state = transformed.apply
  state = initial_state({}, None, BATCH)

  def last_features(inputs):
    output, _ = unroll(params, None, inputs, start, state, hyperparameters())
    return jnp.sum(output.features[-1] ** 2)

  gradient = jax.jit(jax.grad(last_features))(inputs)
  assert np.all(gradient[:3, 1] == 0.0)
  assert np.all(np.max(np.abs(gradient[:3, [0, 2]]), -1) > 0.0)
  assert np.all(np.max(np.abs(gradient[3:, 1]), -1) > 0.0)


@pytest.mark.parametrize(
  ('period', 'message'),
  [
    (jnp.float32(10), r'slow_period \(10.0\) must be an integer'),
    (2.5, r'slow_period \(2.5\) must be an integer, but has dtype float32'),
    (jnp.int32(0), r'slow_period \(0\) must be at least one step'),
    (-3, r'slow_period \(-3\) must be at least one step'),
  ],
)
def test_bad_periods(period, message, key):
  transformed = make_functions(make_config('lstm'))
  inputs, _ = make_sequence(1)
  params = jax.jit(transformed.init)(key, inputs[0])
  apply, _, initial_state = transformed.apply
  state = initial_state({}, None, BATCH)
  hps = hyperparameters()._replace(slow_period=period)
  with pytest.raises(ValueError, match=message):
    apply(params, None, inputs[0], state, hps)
