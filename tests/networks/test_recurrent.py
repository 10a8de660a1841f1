import functools
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from dm_env import specs

from ftwax import distributions, types
from ftwax.networks import (
  cores,
  embeddings,
  entry_torsos,
  heads,
  recurrence,
  recurrent,
  recurrent_cores,
)

T, B, HIDDEN = 6, 3, 4

CORES = {
  'lstm': recurrent_cores.LSTM(HIDDEN),
  'gru': recurrent_cores.GRU(HIDDEN),
  'feed_forward': recurrent_cores.FeedForward(HIDDEN),
}
VECTOR = specs.Array((5,), np.float32)


class Inputs:
  """A core whose features are its inputs."""

  def initial_state(self, batch_size):
    return ()

  def __call__(self, inputs, state):
    return recurrence.CoreOutput(inputs, {}), state

  def unroll(self, inputs, start, state):
    return self(inputs, state)


def _environment_spec(observations=VECTOR, actions=None):
  return types.EnvironmentSpec(
    observations=observations,
    actions=actions or specs.DiscreteArray(3),
    rewards=specs.Array((), np.float32),
    discounts=specs.BoundedArray((), np.float32, 0.0, 1.0),
  )


COMPOSITE = _environment_spec(
  observations={
    'camera': specs.BoundedArray((16, 16, 3), np.uint8, 0, 255),
    'compass': specs.DiscreteArray(4),
    types.ACTION_MASK: {
      'move': specs.Array((3,), np.uint8),
      'turn': specs.Array((2,), bool),
    },
  },
  actions={'move': specs.DiscreteArray(3), 'turn': specs.DiscreteArray(2)},
)


def _random_leaf(random, spec, prefix, low=0):
  shape = (*prefix, *spec.shape)
  if isinstance(spec, specs.DiscreteArray):
    return random.randint(low, spec.num_values, shape).astype(np.int32)
  if spec.dtype == np.uint8:
    return random.randint(0, 256, shape).astype(np.uint8)
  return random.randn(*shape).astype(np.float32)


def _random_inputs(spec, prefix=(T, B), seed=0):
  random = np.random.RandomState(seed)
  observation = jax.tree.map(
    lambda leaf: _random_leaf(random, leaf, prefix), spec.observations
  )
  if isinstance(observation, dict) and types.ACTION_MASK in observation:
    mask = jax.tree.map(
      lambda leaf: random.rand(*prefix, *leaf.shape) < 0.5,
      spec.observations[types.ACTION_MASK],
    )
    for part in mask.values():
      part[..., 0] |= ~part.any(axis=-1)  # Something is always allowed.
    observation[types.ACTION_MASK] = mask
  return types.NetworkInput(
    observation=observation,
    previous_action=jax.tree.map(
      lambda leaf: _random_leaf(random, leaf, prefix, types.NO_ACTION),
      spec.actions,
    ),
    previous_reward=random.randn(*prefix).astype(np.float32),
  )


def _start():
  start = np.zeros((T, B), bool)
  start[0, 1] = start[3, 1] = start[2, 2] = start[4, 2] = True
  return start


def _random_state(network, batch_size=B):
  random = np.random.RandomState(2)
  return jax.tree.map(
    lambda leaf: random.randn(*leaf.shape).astype(np.float32),
    network.initial_state(batch_size),
  )


def _outputs(network, params, inputs, observation):
  """Of an unroll from the initial state, with another observation."""
  inputs = inputs._replace(observation=observation)
  state = network.initial_state(B)
  return network.unroll(params, None, None, inputs, _start(), state)[0]


def _assert_close(actual, expected, atol=1e-5):
  jax.tree.map(
    functools.partial(np.testing.assert_allclose, rtol=1e-5, atol=atol),
    actual,
    expected,
  )


def _step_by_step(network, params, hyperparameters, key, inputs, start, state):
  apply = jax.jit(network.apply)
  outputs = []
  for t in range(T):
    inputs_t = jax.tree.map(lambda x, t=t: x[t], inputs)
    state = recurrence.reset_state(start[t], state)
    output, state = apply(params, hyperparameters, key, inputs_t, state)
    outputs.append(output)
  return jax.tree.map(lambda *x: jnp.stack(x), *outputs), state


@pytest.mark.parametrize('core', CORES)
@pytest.mark.parametrize('spec', [_environment_spec(), COMPOSITE])
def test_unroll_equals_steps(key, core, spec):
  network = recurrent.make_recurrent_network(spec, core=CORES[core])
  params = network.init(key)
  inputs, state = _random_inputs(spec), _random_state(network)
  expected = _step_by_step(network, params, None, None, inputs, _start(), state)
  actual = jax.jit(network.unroll)(params, None, None, inputs, _start(), state)
  _assert_close(actual, expected)


@pytest.mark.parametrize('core', CORES)
def test_shapes_and_dtypes(key, core):
  network = recurrent.make_recurrent_network(COMPOSITE, core=CORES[core])
  params = network.init(key)
  inputs, state = _random_inputs(COMPOSITE), network.initial_state(B)
  output, last_state = jax.eval_shape(
    network.unroll, params, None, None, inputs, _start(), state
  )
  assert output.logits['move'].shape == (T, B, 3)
  assert output.logits['turn'].shape == (T, B, 2)
  assert output.value.shape == (T, B)
  assert output.auxiliary == {}
  for leaf in jax.tree.leaves(output):
    assert leaf.dtype == jnp.float32
  for leaf, last_leaf in zip(
    jax.tree.leaves(state), jax.tree.leaves(last_state), strict=True
  ):
    assert leaf.shape == last_leaf.shape == (B, HIDDEN)
    assert leaf.dtype == last_leaf.dtype


def test_parts_are_put_together_as_told(key):
  spec = _environment_spec()
  network = recurrent.make_recurrent_network(
    spec,
    core=Inputs,
    make_torso=lambda: entry_torsos.MLPTorso(()),
  )
  params = jax.tree.map(np.asarray, network.init(key))
  inputs = _random_inputs(spec, prefix=(B,))
  action = np.concatenate([np.eye(3), np.zeros((1, 3))])[inputs.previous_action]
  reward = np.tanh(inputs.previous_reward)[:, None]
  x = np.concatenate([inputs.observation, action, reward], axis=-1)
  output, state = network.apply(params, None, None, inputs, ())
  policy, value = params['policy_head/linear'], params['value_head/linear']
  np.testing.assert_allclose(
    output.logits, x @ policy['w'] + policy['b'], atol=1e-6
  )
  np.testing.assert_allclose(
    output.value, (x @ value['w'] + value['b'])[:, 0], atol=1e-6
  )
  assert state == ()


@pytest.mark.parametrize('separate', [True, False])
def test_a_separate_value_alone_sees_what_is_privileged(key, separate):
  seen = specs.Array((2,), np.float32)
  spec = _environment_spec()._replace(
    observations={'state': seen, types.PRIVILEGED: seen}
  )
  network = recurrent.make_recurrent_network(
    spec, core=CORES['gru'], separate_value=separate
  )
  params = network.init(key)
  inputs = _random_inputs(spec)

  def outputs(entry):
    observation = {**inputs.observation}
    if entry:
      observation[entry] = observation[entry] + 1.0
    output = _outputs(network, params, inputs, observation)
    return np.asarray(output.logits), np.asarray(output.value)

  logits, value = outputs(None)
  new_logits, new_value = outputs(types.PRIVILEGED)
  np.testing.assert_array_equal(new_logits, logits)
  assert np.array_equal(new_value, value) != separate
  assert not np.array_equal(outputs('state')[0], logits)


@pytest.mark.parametrize('core', CORES)
@pytest.mark.parametrize('chosen', [None, True, False])
@pytest.mark.parametrize('name', ['action', 'reward'])
def test_a_core_reads_the_previous_step_if_chosen_or_with_memory(
  key, core, chosen, name
):
  spec = _environment_spec()
  network = recurrent.make_recurrent_network(
    spec,
    core=CORES[core],
    previous=embeddings.Previous(chosen, chosen),
  )
  params = network.init(key)
  inputs = _random_inputs(spec, prefix=(B,))
  field = f'previous_{name}'
  others = inputs._replace(**{field: 1 - getattr(inputs, field)})
  value, other = (
    network.apply(params, None, None, each, network.initial_state(B))[0].value
    for each in (inputs, others)
  )
  reads = core != 'feed_forward' if chosen is None else chosen
  assert np.array_equal(value, other) == (not reads)


def test_hidden_sizes_and_reward_transform(key):
  spec = _environment_spec()
  network = recurrent.make_recurrent_network(
    spec,
    core=Inputs,
    head_options=heads.Heads((7,), (6, 5)),
    previous=embeddings.Previous(reward_transform=jnp.sign),
  )
  params = network.init(key)
  sizes = {
    name: layer['b'].size for name, layer in params.items() if 'head' in name
  }
  assert sizes == {
    'policy_head/linear': 7,
    'policy_head/linear_1': 3,
    'value_head/linear': 6,
    'value_head/linear_1': 5,
    'value_head/linear_2': 1,
  }
  inputs = _random_inputs(spec, prefix=(B,))

  def value(reward):
    rewarded = inputs._replace(previous_reward=np.full((B,), reward))
    return network.apply(params, None, None, rewarded, ())[0].value

  np.testing.assert_array_equal(value(2.0), value(5.0))
  assert np.all(value(2.0) != value(-2.0))


def test_forbidden_actions_have_probability_zero(key):
  network = recurrent.make_recurrent_network(COMPOSITE, core=CORES['lstm'])
  params = network.init(key)
  inputs, state = _random_inputs(COMPOSITE), network.initial_state(B)

  def logits_of(params):
    return network.unroll(params, None, None, inputs, _start(), state)[0].logits

  logits = logits_of(params)
  mask = inputs.observation[types.ACTION_MASK]
  for part in ('move', 'turn'):
    probabilities = np.asarray(jax.nn.softmax(logits[part]))
    assert (~mask[part]).any()
    assert np.all((probabilities == 0) == ~mask[part])
  num_allowed = mask['move'].sum(axis=-1) * mask['turn'].sum(axis=-1)
  entropy = distributions.entropy(logits)
  np.testing.assert_allclose(entropy, np.log(num_allowed), atol=1e-2)
  gradient = jax.jit(
    jax.grad(lambda params: jnp.sum(distributions.entropy(logits_of(params))))
  )(params)
  for leaf in jax.tree.leaves(gradient):
    assert np.all(np.isfinite(leaf))


def test_mask_is_no_input_of_the_core(key):
  network = recurrent.make_recurrent_network(COMPOSITE, core=CORES['lstm'])
  params = network.init(key)
  inputs = _random_inputs(COMPOSITE)

  def value(mask):
    observation = {**inputs.observation, types.ACTION_MASK: mask}
    return _outputs(network, params, inputs, observation).value

  mask = inputs.observation[types.ACTION_MASK]
  inverted = jax.tree.map(np.logical_not, mask)
  np.testing.assert_array_equal(value(mask), value(inverted))


@pytest.mark.parametrize('core', CORES)
def test_gradient_reaches_every_parameter(key, core):
  network = recurrent.make_recurrent_network(COMPOSITE, core=CORES[core])
  inputs, state = _random_inputs(COMPOSITE), _random_state(network)

  def objective(params):
    output, _ = network.unroll(params, None, None, inputs, _start(), state)
    entropy = distributions.entropy(output.logits)
    return jnp.sum(output.value) + jnp.sum(entropy)

  gradient = jax.jit(jax.grad(objective))(network.init(key))
  for name, layer in gradient.items():
    for leaf in jax.tree.leaves(layer):
      assert np.any(leaf != 0), name


@pytest.mark.parametrize('core', ['lstm', 'gru'])
def test_a_reset_row_forgets(key, core):
  network = recurrent.make_recurrent_network(
    _environment_spec(), core=CORES[core]
  )
  params = network.init(key)
  inputs, state = _random_inputs(_environment_spec()), _random_state(network)

  def value_at_3(observation, reward, row):
    changed = inputs._replace(observation=observation, previous_reward=reward)
    output, _ = network.unroll(params, None, None, changed, _start(), state)
    return output.value[3, row]

  # The first step that each row remembers at step 3.
  for row, first in enumerate([0, 3, 2]):
    by_observation, by_reward = jax.grad(value_at_3, argnums=(0, 1))(
      inputs.observation, inputs.previous_reward, row
    )
    expected = np.zeros((T, B), bool)
    expected[first : 3 + 1, row] = True
    np.testing.assert_array_equal(np.any(by_observation != 0, -1), expected)
    np.testing.assert_array_equal(by_reward != 0, expected)


def test_at_a_start_the_state_is_forgotten(key):
  network = recurrent.make_recurrent_network(COMPOSITE, core=CORES['lstm'])
  params, inputs = network.init(key), _random_inputs(COMPOSITE)
  start = np.zeros((T, B), bool)
  start[0] = True
  unroll = functools.partial(network.unroll, params, None, None, inputs, start)
  _assert_close(
    unroll(_random_state(network)), unroll(network.initial_state(B)), atol=0
  )


def test_initialization_is_determined_by_the_key(key):
  network = recurrent.make_recurrent_network(
    _environment_spec(), core=CORES['lstm']
  )
  first, second = network.init(key), network.init(key)
  jax.tree.map(np.testing.assert_array_equal, first, second)
  other = network.init(jax.random.PRNGKey(1))
  assert np.all(first['lstm']['w_i'] != other['lstm']['w_i'])


def test_torso_may_be_given(key):
  observations = {'camera': specs.Array((20, 20), np.float32), 'speed': VECTOR}
  spec = _environment_spec(observations)
  network = recurrent.make_recurrent_network(
    spec,
    core=CORES['lstm'],
    make_torso=lambda: embeddings.ObservationEmbedding(
      observations, make_image_torso=entry_torsos.ShallowTorso
    ),
  )
  params = network.init(key)
  assert any('shallow_torso' in name for name in params)
  assert not any('ftw_torso' in name for name in params)


def test_action_that_is_neither_discrete_nor_a_vector_is_refused():
  spec = _environment_spec(
    actions=specs.BoundedArray((2, 2), np.float32, -1.0, 1.0)
  )
  with pytest.raises(ValueError, match='must be a dm_env.specs.DiscreteArray'):
    recurrent.make_recurrent_network(spec, core=CORES['lstm'])


@pytest.mark.parametrize(
  ('mask', 'actions'),
  [
    (specs.Array((4,), np.uint8), specs.DiscreteArray(3)),
    (specs.Array((3, 1), np.uint8), specs.DiscreteArray(3)),
    (
      {'jump': specs.Array((3,), np.uint8)},
      {'move': specs.DiscreteArray(3)},
    ),
    (
      (specs.Array((3,), np.uint8), specs.Array((3,), np.uint8)),
      (specs.DiscreteArray(3), specs.DiscreteArray(2)),
    ),
  ],
)
def test_mask_that_does_not_fit_is_refused(mask, actions):
  spec = _environment_spec({'x': VECTOR, types.ACTION_MASK: mask}, actions)
  with pytest.raises(
    ValueError, match=r"'action_mask' \(.*\) must be those of the logits"
  ):
    recurrent.make_recurrent_network(spec, core=CORES['lstm'])


def test_small_images_are_refused_when_the_network_is_made(key):
  spec = _environment_spec(specs.BoundedArray((20, 20, 3), np.uint8, 0, 255))
  network = recurrent.make_recurrent_network(
    spec, core=CORES['lstm'], make_torso=entry_torsos.NatureTorso
  )
  with pytest.raises(ValueError, match='20x20.* must be at least 36x36'):
    network.init(key)


def test_convolutions_stay_outside_the_loop(key):
  network = recurrent.make_recurrent_network(COMPOSITE, core=CORES['lstm'])
  params, inputs = network.init(key), _random_inputs(COMPOSITE)
  jaxpr = jax.make_jaxpr(network.unroll)(
    params, None, None, inputs, _start(), network.initial_state(B)
  )
  convolving = [
    str(equation.primitive)
    for equation in jaxpr.jaxpr.eqns
    if 'conv_general_dilated' in str(equation)
  ]
  assert len(convolving) == 4
  assert not {'scan', 'while'} & set(convolving)


def test_import_is_light():
  code = (
    'import sys; import ftwax.networks; from ftwax.networks import recurrent;'
    ' heavy = {"tensorflow", "reverb", "launchpad", "acme", "rlax"};'
    ' print(sorted(heavy & set(sys.modules)))'
  )
  result = subprocess.run(
    [sys.executable, '-c', code], capture_output=True, text=True, check=True
  )
  assert result.stdout.strip() == '[]'


def test_only_a_batch_that_is_split_comes_first():
  inputs = jax.random.normal(jax.random.PRNGKey(0), (3, 2, 5))
  double = recurrence.batch_apply(lambda x: 2.0 * x)

  def apply(is_split, x):
    with recurrence.batch_first(is_split):
      return double(x)

  for is_split in (False, True):
    function = functools.partial(apply, is_split)
    assert ('transpose' in str(jax.make_jaxpr(function)(inputs))) == is_split
    np.testing.assert_array_equal(function(inputs), 2.0 * inputs)


@pytest.mark.parametrize(
  'core', ['feed_forward', 'gru', 'lru', 'lstm', 'min_gru']
)
@pytest.mark.parametrize('is_split', [False, True])
def test_gradients_of_layers_are_products_over_one_axis(key, core, is_split):
  network = recurrent.make_recurrent_network(
    _environment_spec(), core=cores.NAMED[core]
  )
  params, inputs = network.init(key), _random_inputs(_environment_spec())

  def loss(params):
    with recurrence.batch_first(is_split):
      output, _ = network.unroll(
        params, None, None, inputs, _start(), network.initial_state(B)
      )
    return jnp.sum(jax.tree.leaves(output.logits)[0]) + jnp.sum(output.value)

  jaxpr = str(jax.make_jaxpr(jax.grad(loss))(params))
  over_two_axes = jaxpr.count('(([0, 1], [0, 1]), ([], []))')
  assert (over_two_axes > 0) == is_split
