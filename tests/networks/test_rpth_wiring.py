"""The hierarchy with a memory, held to an oracle written from its equations."""

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import rpth_oracle as oracle

from ftwax.networks import cores, noise

pytestmark = pytest.mark.slow

T, B, NUM_INPUTS, HIDDEN, LATENT = 5, 2, 4, 5, 3
SLOTS, WORD, READS = 3, 3, 2
PERIOD, FACTOR = 2, 0.3


def make_functions(num_levels, **options):
  def make():
    core = cores.RPTH(
      HIDDEN,
      latent_size=LATENT,
      num_levels=num_levels,
      memory=cores.Memory(SLOTS, WORD, READS),
      **{
        'slow_period': PERIOD,
        'fast_to_slow_gradient_scale': FACTOR,
        **options,
      },
    ).make()

    def init(inputs):
      state = core.initial_state(inputs.shape[0])
      return core(inputs, state)

    return init, (core.unroll, core.initial_state)

  return hk.multi_transform(make)


def oracle_params(params, num_levels):
  """Returns the library's parameters in the oracle's layout."""

  def level(index):
    names = f'rpth/~/level_{index}/~/'
    weights = params[names + 'lstm_controller']
    # The fast core's share of the network's inputs stands first.
    parts = [weights[k] for k in ('w_i', 'w_h') if k in weights]
    lstm = {'w': jnp.concatenate(parts), 'b': weights['b']}
    found = {'lstm': lstm, 'latent': params[names + 'latent']}
    if names + 'output' in params:
      found['output'] = params[names + 'output']
    return found

  return {
    'levels': [level(i) for i in range(num_levels)],
    'interface': params['rpth/~/memory_access/~/interface'],
  }


def oracle_unroll(params, inputs, noise, start, num_levels, period):
  """Returns z, loc, scale and ticks [T][B] and the last states of the rows."""
  zero = oracle.zero_state(num_levels, HIDDEN, LATENT, (SLOTS, WORD), READS)
  rows = []
  for b in range(B):
    state, steps = zero, []
    for t in range(T):
      state = zero if start[t, b] else state
      ticks, state = oracle.step(
        params, inputs[t, b], noise[t, b], state, period, FACTOR
      )
      steps.append((ticks, state))
    rows.append(steps)
  return rows


def library_loss(outputs, last):
  """Reads every output and every part of the state, each with a weight."""
  loss = jnp.sum(jnp.sin(outputs.features))
  for i, (loc, scale, level) in enumerate(
    zip(
      outputs.auxiliary['loc'],
      outputs.auxiliary['scale'],
      last.levels,
      strict=True,
    )
  ):
    loss += jnp.sum(jnp.sin(loc + i)) + jnp.sum(jnp.cos(3.0 * scale + i))
    loss += jnp.sum(jnp.sin(2.0 * level.words + i))
    loss += jnp.sum(jnp.sin(level.controller.cell + i))
  return loss + jnp.sum(jnp.sin(last.memory.memory))


def oracle_loss(rows):
  loss = 0.0
  for steps in rows:
    for _, state in steps:
      loss += jnp.sum(jnp.sin(state['z']))
      for i, level in enumerate(state['levels']):
        loss += jnp.sum(jnp.sin(level['loc'] + i))
        loss += jnp.sum(jnp.cos(3.0 * level['scale'] + i))
    last = steps[-1][1]
    for i, level in enumerate(last['levels']):
      loss += jnp.sum(jnp.sin(2.0 * level['words'] + i))
      loss += jnp.sum(jnp.sin(level['c'] + i))
    loss += jnp.sum(jnp.sin(last['memory']['memory']))
  return loss


def close(found, expected, **tolerance):
  np.testing.assert_allclose(found, expected, **(tolerance or {'atol': 2e-5}))


@pytest.mark.parametrize(
  ('num_levels', 'options'),
  [
    (2, {}),
    (3, {}),
    (2, {'memory_projection': False}),
    (2, {'fixed_scale': True}),
    (3, {'slow_period': (2, 3)}),
  ],
)
def test_outputs_states_and_gradients_are_those_of_the_oracle(
  num_levels, options, key, monkeypatch
):
  rng = np.random.default_rng(0)
  inputs = jnp.float32(rng.normal(size=(T, B, NUM_INPUTS)))
  drawn = jnp.float32(rng.normal(size=(T, B, LATENT)))
  start = np.zeros((T, B), bool)
  start[0] = start[3, 1] = True
  transformed = make_functions(num_levels, **options)
  params = transformed.init(key, inputs[0])
  monkeypatch.setattr(noise, 'normal', lambda size: drawn)
  # Large enough for all parts to act on each other.
  params = jax.tree.map(lambda leaf: 2.0 * leaf + 0.1, params)
  unroll, initial_state = transformed.apply
  zero = initial_state({}, None, B)

  def loss(params, inputs):
    outputs, last = unroll(params, None, inputs, start, zero)
    return library_loss(outputs, last), (outputs, last)

  (value, (outputs, last)), gradients = jax.jit(
    jax.value_and_grad(loss, (0, 1), has_aux=True)
  )(params, inputs)

  def expected_loss(params, inputs):
    rows = oracle_unroll(
      oracle_params(params, num_levels),
      inputs,
      drawn,
      start,
      num_levels,
      options.get('slow_period', PERIOD),
    )
    return oracle_loss(rows), rows

  (expected_value, rows), expected_gradients = jax.value_and_grad(
    expected_loss, (0, 1), has_aux=True
  )(params, inputs)

  close(value, expected_value, rtol=1e-5)
  for b, steps in enumerate(rows):
    for t, (ticks, state) in enumerate(steps):
      close(outputs.features[t, b], state['z'])
      for i, level in enumerate(state['levels']):
        close(outputs.auxiliary['loc'][i][t, b], level['loc'])
        close(outputs.auxiliary['scale'][i][t, b], level['scale'])
        assert outputs.auxiliary['tick'][i][t, b] == ticks[i]
    for found, level in zip(last.levels, state['levels'], strict=True):
      close(found.controller.hidden[b], level['h'])
      close(found.controller.cell[b], level['c'])
      close(found.words[b], level['words'])
    memory = last.memory
    for name in ('memory', 'read_weights', 'usage'):
      close(getattr(memory, name)[b], state['memory'][name])
    close(memory.write_weights[b, 0], state['memory']['write_weights'])
    close(memory.links.precedence[b, 0], state['memory']['precedence'])
    close(memory.links.link[b, 0], state['memory']['link'])
  jax.tree.map(
    lambda x, y: close(x, y, rtol=1e-3, atol=1e-4),
    gradients,
    expected_gradients,
  )
  # Every weight matters, that of a slow core's own last words among them.
  slow = gradients[0]['rpth/~/level_1/~/lstm_controller']['w_h']
  above = (num_levels - 2) * (HIDDEN + READS * WORD + 2 * LATENT)
  own_words = above + HIDDEN + READS * WORD
  assert slow.shape[0] == own_words + READS * WORD + HIDDEN
  assert np.min(np.max(np.abs(slow), axis=1)[own_words:]) > 1e-6
