import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ftwax.networks import cores, recurrence

BATCH, NUM_INPUTS = 3, 6
# Of visual features, velocity, previous action and previous reward.
NAV = {
  'hidden_sizes': (4, 5),
  'input_sizes': {'image': 2, 'velocity': 1, 'action': 2, 'reward': 1},
  'wiring': (('image', 'reward'), ('image', 'velocity', 'action')),
}
CORES = {
  'nav a3c': cores.StackedLSTM(**NAV).make,
}


def make_functions(make_core):
  def make():
    core = make_core()

    def init(inputs):
      return core(inputs, core.initial_state(inputs.shape[0]))

    return init, (core.__call__, core.unroll, core.initial_state)

  return hk.multi_transform(make)


def make_sequence(num_steps=6):
  rng = np.random.default_rng(1)
  inputs = rng.normal(size=(num_steps, BATCH, NUM_INPUTS)).astype(np.float32)
  start = np.zeros((num_steps, BATCH), bool)
  start[num_steps // 3, 1] = start[-1, 2] = start[0, 0] = True
  return inputs, jnp.array(start)


def test_each_layer_sees_its_parts(key):
  transformed = make_functions(CORES['nav a3c'])
  inputs, start = make_sequence(1)
  params = transformed.init(key, inputs[0])
  _, unroll, initial_state = transformed.apply
  state = initial_state({}, None, BATCH)

  def layer_sum(inputs, layer):
    outputs, _ = unroll(params, None, inputs, start, state)
    return jnp.sum(outputs.auxiliary['layers'][layer])

  first = np.abs(jax.grad(layer_sum)(inputs, 0)).max((0, 1)) > 0
  second = np.abs(jax.grad(layer_sum)(inputs, 1)).max((0, 1)) > 0
  # Two visual features, velocity, two actions, reward.
  np.testing.assert_array_equal(first, [1, 1, 0, 0, 0, 1])
  np.testing.assert_array_equal(second, [1, 1, 1, 1, 1, 1])
  weights = params['stacked_lstm/~/layer_1']['w_i']
  assert weights.shape == (2 + 1 + 2 + 4, 20)


def test_stacked_layers_are_lstms_on_what_is_below(key):
  transformed = make_functions(CORES['nav a3c'])
  inputs, start = make_sequence()
  params = transformed.init(key, inputs[0])
  _, unroll, initial_state = transformed.apply
  state = initial_state({}, None, BATCH)
  outputs, _ = unroll(params, None, inputs, start, state)

  def lstm(layer, hidden_size, inputs):
    def apply(inputs):
      core = cores.LSTM(hidden_size).make()
      return core.unroll(inputs, start, core.initial_state(BATCH))[0].features

    own = {'lstm': params[f'stacked_lstm/~/layer_{layer}']}
    return hk.transform(apply).apply(own, None, inputs)

  visual, velocity, action, reward = np.split(inputs, [2, 3, 5], axis=-1)
  below = lstm(0, 4, np.concatenate([visual, reward], -1))
  above = lstm(1, 5, np.concatenate([visual, velocity, action, below], -1))
  np.testing.assert_allclose(outputs.auxiliary['layers'][0], below, atol=1e-6)
  np.testing.assert_allclose(outputs.features, above, atol=1e-6)


def test_levels_of_own_periods_with_fixed_scales(key):
  core = cores.RPTH(
    4, num_levels=3, latent_size=5, slow_period=(2, 3), fixed_scale=True
  )

  def make():
    made = core.make()

    def init(inputs):
      return made(inputs, made.initial_state(BATCH))

    return init, (made.unroll, made.initial_state)

  transformed = hk.multi_transform(make)
  inputs, start = make_sequence(7)
  params = transformed.init(key, inputs[0])
  assert params['rpth/~/level_0/~/latent']['w'].shape == (4, 5)
  unroll, initial_state = transformed.apply
  state = initial_state({}, None, BATCH)
  outputs, _ = unroll(params, None, inputs, start, state)
  count = np.zeros(BATCH, int)
  for t in range(7):
    count = np.where(start[t], 0, count)
    for level, period in enumerate((1, 2, 3)):
      np.testing.assert_array_equal(
        outputs.auxiliary['tick'][level][t], count % period == 0
      )
    count += 1
  for scale in outputs.auxiliary['scale']:
    np.testing.assert_array_equal(scale, np.full_like(scale, 0.1))


def test_a_wiring_has_an_entry_for_each_layer():
  options = {**NAV, 'wiring': (('image',),)}
  with pytest.raises(ValueError, match='must have one entry for each of the 2'):
    make_functions(cores.StackedLSTM(**options).make)


def test_input_sizes_that_do_not_fit(key):
  transformed = make_functions(CORES['nav a3c'])
  message = r'input_sizes \(\(2, 1, 2, 1\)\) .* number of inputs \(7\)'
  with pytest.raises(ValueError, match=message):
    transformed.init(key, jnp.zeros((BATCH, 7)))


def test_a_skip_connection_puts_inputs_beside_the_features(key):
  inputs, start = make_sequence()
  outputs = {}
  for name, make in (
    ('plain', cores.GRU(5).make),
    ('skip', lambda: recurrence.SkipConnection(cores.GRU(5).make())),
  ):
    transformed = make_functions(make)
    params = transformed.init(key, inputs[0])
    _, unroll, initial_state = transformed.apply
    outputs[name], _ = unroll(
      params, None, inputs, start, initial_state({}, None, BATCH)
    )
  np.testing.assert_array_equal(
    outputs['skip'].features,
    np.concatenate([outputs['plain'].features, inputs], -1),
  )
