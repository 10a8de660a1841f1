"""What of the standard network a config chooses, in a line each."""

import functools

import dm_env
import fakes
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import random_batches
import slow_cases

from ftwax.agents import a2c, ppo, rl2
from ftwax.agents.actor_critic import acting
from ftwax.environments import catch
from ftwax.networks import (
  cores,
  embeddings,
  heads,
  recurrence,
  rl2_core,
  torsos,
)
from ftwax.runtime import experiment, runs

SPEC = fakes.make_spec(
  {
    'prices': dm_env.specs.Array((30, 3), np.float32, 'prices'),
    'velocity': dm_env.specs.Array((2,), np.float32, 'velocity'),
  },
  actions=dm_env.specs.DiscreteArray(4, name='action'),
)
SMALL = a2c.A2CConfig(
  core=cores.LSTM(8),
  torso=torsos.Torso(hidden_sizes=(7,)),
  sequence_length=4,
  batch_size=2,
)
# As in the NAV A3C agent.
WIRING = (
  ('prices', 'previous_reward'),
  ('prices', 'velocity', 'previous_action'),
)
STACKED = cores.StackedLSTM((5, 6))
WIRED = STACKED.replace(wiring=WIRING)
SIGNAL = SMALL.torso.replace(entries={'prices': 'signal'})
CONFIGS = {
  'signal': SMALL.replace(torso=SIGNAL),
  'stacked': SMALL.replace(core=STACKED),
  'linear': SMALL.replace(core=cores.LRU(8, num_layers=2)),
  'wired': SMALL.replace(core=WIRED),
  'separate': SMALL.replace(separate_value=True),
  'noisy': SMALL.replace(heads=heads.Heads(noise='factorised')),
  'all': SMALL.replace(
    torso=SIGNAL,
    core=STACKED.replace(wiring=WIRING),
    separate_value=True,
    heads=heads.Heads(noise='independent'),
  ),
  # BTGym's `StackedLstmPolicy` as it is by default.
  'layers for heads': SMALL.replace(
    torso=SIGNAL,
    core=WIRED.replace(
      layer=cores.LSTM(forget_bias=1.0, layer_norm=True, dropout=0.1)
    ),
    heads=heads.Heads(noise='factorised', policy_layer=0, value_layer=1),
    skip_connection=False,
    separate_value=False,
  ),
}


def _make_inputs(network, seed=0):
  trajectory = random_batches.make_trajectory(seed, SPEC, network, 4, 2)
  timestep = trajectory.timestep
  return (
    acting.make_network_input(timestep, trajectory.previous_action),
    acting.is_first(timestep),
    trajectory.recurrent_state,
  )


def _make_network(config, spec=SPEC):
  """Returns the network of a config, whose functions are compiled."""
  network = config.make_network(spec)

  @jax.jit
  def unroll(params, seeds, *inputs):
    return network.unroll(params, SMALL.priors, seeds, *inputs)

  @jax.jit
  def apply(params, seeds, *inputs):
    return network.apply(params, SMALL.priors, seeds, *inputs)

  return network._replace(
    unroll=lambda params, _, *inputs: unroll(params, *inputs),
    apply=lambda params, _, *inputs: apply(params, *inputs),
  )


def _unroll(network, params, seed, inputs):
  seeds = None if seed is None else np.full(inputs[1].shape, seed, np.int32)
  return network.unroll(params, SMALL.priors, seeds, *inputs)[0]


# The others have parts of these.
MOST = ('all', 'linear', 'layers for heads')


@pytest.mark.parametrize('name', slow_cases.cases(CONFIGS, MOST[:1], ci=MOST))
def test_every_parameter_learns(name, key):
  config = CONFIGS[name]
  network = config.make_network(SPEC)
  core = config.make_learner_core(network, SPEC)
  state = core.init(key)
  batch = random_batches.make_batch(0, SPEC, network, config)
  after, metrics = jax.jit(core.update)(state, batch)
  assert np.isfinite(metrics['loss'])
  stays = jax.tree.map(np.array_equal, after.params, state.params)
  still = [
    jax.tree_util.keystr(path)
    for path, leaf in jax.tree.leaves_with_path(stays)
    if leaf
  ]
  assert not still, f'{still} never learn'


def test_parts_of_the_input_have_names_and_lengths():
  sizes = embeddings.part_sizes(
    SPEC, lambda: SMALL.torso.make(SPEC.observations)
  )
  expected = {
    'prices': 7,
    'velocity': 7,
    'previous_action': 4,
    'previous_reward': 1,
  }
  assert list(sizes.items()) == list(expected.items())


def test_layers_see_what_the_wiring_names(key):
  config = SMALL.replace(core=STACKED.replace(wiring=WIRING))
  params = jax.eval_shape(config.make_network(SPEC).init, key)
  found = {
    name.rsplit('/', 1)[-1]: module['w_i'].shape
    for name, module in params.items()
    if '/layer_' in name
  }
  assert found == {'layer_0': (7 + 1, 20), 'layer_1': (7 + 7 + 4 + 5, 24)}


@pytest.mark.parametrize(
  ('core', 'sizes', 'skip', 'separate'),
  [
    (WIRED.replace(layer=cores.GRU()), (5, 6), False, False),
    (cores.StackedLSTM((4, 5, 6)), (4, 5, 6), True, False),
    (STACKED, (5, 6), False, True),
  ],
)
def test_heads_read_the_layers_that_they_name(core, sizes, skip, separate, key):
  """With a skip connection, beside the inputs of the core."""
  config = SMALL.replace(
    core=core, skip_connection=skip, separate_value=separate
  )
  chosen = config.replace(heads=heads.Heads(policy_layer=0, value_layer=1))
  network = _make_network(chosen)
  params = jax.tree.map(np.asarray, network.init(key))
  inputs = _make_inputs(network)
  num_inputs = (7 + 7 + 4 + 1) * skip
  policy, value = (
    params[f'{head}_head/linear'] for head in ('policy', 'value')
  )
  assert policy['w'].shape == (sizes[0] + num_inputs, 4)
  assert value['w'].shape == (sizes[1] + num_inputs, 1)
  output = _unroll(network, params, 0, inputs)
  layers = list(map(np.asarray, output.auxiliary['layers']))
  np.testing.assert_allclose(
    output.logits, layers[0] @ policy['w'] + policy['b'], atol=1e-6
  )
  if not separate:
    np.testing.assert_allclose(
      output.value, (layers[1] @ value['w'] + value['b'])[..., 0], atol=1e-6
    )
  # What auxiliary heads read stays the last layer.
  assert output.features.shape[-1] == sizes[-1] + num_inputs
  last = _make_network(
    config.replace(heads=heads.Heads(policy_layer=len(sizes) - 1))
  )
  plain = _make_network(config)
  params = plain.init(key)
  np.testing.assert_array_equal(
    _unroll(last, params, 0, inputs).logits,
    _unroll(plain, params, 0, inputs).logits,
  )


def test_a_policy_of_the_first_layer_sees_its_inputs_alone(key):
  """As BTGym's: neither the internal state nor the last action."""
  network = _make_network(CONFIGS['layers for heads'])
  params, inputs = network.init(key), _make_inputs(network)
  network_input, start, state = inputs
  observation = network_input.observation
  other = network_input._replace(
    observation={**observation, 'velocity': observation['velocity'] + 1.0},
    previous_action=(network_input.previous_action + 1) % 4,
  )
  before = _unroll(network, params, None, inputs)
  after = _unroll(network, params, None, (other, start, state))
  np.testing.assert_array_equal(after.logits, before.logits)
  assert np.abs(after.value - before.value).min() > 1e-6
  prices = {**observation, 'prices': observation['prices'] + 1.0}
  seen = network_input._replace(observation=prices)
  after = _unroll(network, params, None, (seen, start, state))
  assert np.abs(after.logits - before.logits).max() > 1e-6


@pytest.mark.parametrize(
  ('core', 'chosen', 'message'),
  [
    (
      'lstm',
      {'policy_layer': 0},
      r'policy_layer \(0\) of Heads must be None for a core that does not'
      r' output its layers; .*StackedLSTM',
    ),
    (
      cores.RPTH(8),
      {'value_layer': 1},
      r'value_layer \(1\) of Heads must be None for a core',
    ),
    (
      STACKED,
      {'value_layer': 2},
      r'value_layer \(2\) of Heads must be below 2, the number of layers',
    ),
  ],
)
def test_a_layer_that_is_not_there_is_refused(core, chosen, message):
  config = SMALL.replace(core=core, heads=heads.Heads(**chosen))
  with pytest.raises(ValueError, match=message):
    config.make_network(SPEC)


def test_a_layer_has_a_number():
  for layer in (-1, 0.5, '0'):
    with pytest.raises(ValueError, match=r'policy_layer \(.*\) of Heads must'):
      heads.Heads(policy_layer=layer)


def test_a_separate_value_shares_nothing_with_the_policy(key):
  network = _make_network(CONFIGS['separate'])
  params, inputs = network.init(key), _make_inputs(network)

  def read(params, field):
    return jnp.sum(jnp.sin(getattr(_unroll(network, params, 0, inputs), field)))

  gradients = [
    jax.jit(jax.grad(functools.partial(read, field=field)))(params)
    for field in ('logits', 'value')
  ]
  touched = [
    {
      jax.tree_util.keystr(path)
      for path, leaf in jax.tree.leaves_with_path(gradient)
      if np.any(np.asarray(leaf))
    }
    for gradient in gradients
  ]
  assert len(touched[0]) == len(touched[1]) > 4
  assert not touched[0] & touched[1]


def test_noise_is_that_of_the_seeds(key):
  network = _make_network(CONFIGS['noisy'])
  params, inputs = network.init(key), _make_inputs(network)
  first, again, other = (
    _unroll(network, params, seed, inputs) for seed in (1, 1, 2)
  )
  np.testing.assert_array_equal(first.logits, again.logits)
  assert np.all(np.abs(first.logits - other.logits).max((0, 1)) > 1e-3)
  assert np.all(np.abs(first.value - other.value) > 1e-4)
  np.testing.assert_array_equal(first.features, other.features)


@pytest.mark.parametrize('name', ['wired', 'all'])
def test_steps_and_unrolls_agree(name, key):
  network = _make_network(CONFIGS[name])
  params, (inputs, start, state) = network.init(key), _make_inputs(network)
  seeds = np.arange(start.size, dtype=np.int32).reshape(start.shape)
  unrolled, last = network.unroll(
    params, SMALL.priors, seeds, inputs, start, state
  )
  after = state
  for t in range(len(start)):
    step, after = network.apply(
      params,
      SMALL.priors,
      seeds[t],
      jax.tree.map(lambda leaf, t=t: np.asarray(leaf)[t], inputs),
      recurrence.reset_state(start[t], after),
    )
    np.testing.assert_allclose(unrolled.logits[t], step.logits, atol=1e-5)
    np.testing.assert_allclose(unrolled.value[t], step.value, atol=1e-5)
  jax.tree.map(
    lambda x, y: np.testing.assert_allclose(x, y, atol=1e-5), last, after
  )


@pytest.mark.slow
def test_all_choices_together_learn_catch(tmp_path):
  """The board is a signal of five moments; chance has -0.33."""
  config = a2c.A2CConfig.paper(
    torso=torsos.Torso(entries={'': 'signal'}),
    core=cores.StackedLSTM(
      (32, 32),
      wiring=(('', 'previous_reward'), ('', 'previous_action')),
    ),
    separate_value=True,
    heads=heads.Heads(noise='factorised'),
    optimizer='adam',
    sequence_length=8,
    learning_rate=1e-3,
  )
  result = runs.run_experiment(
    experiment.ExperimentConfig(
      agent=config,
      environment=lambda seed: catch.make(5, 3),
      max_num_actor_steps=40_000,
      num_environments=16,
      checkpointing=None,
    ),
    runtime='device',
    run_dir=tmp_path / 'run',
  )
  assert result.mean_return > 0.7


@pytest.mark.parametrize(
  ('make', 'message'),
  [
    (
      lambda: SMALL.replace(core='rnn'),
      r"core \('rnn'\) must be one of .*'stacked_lstm'",
    ),
    (
      lambda: heads.Heads(noise='white'),
      r"noise \('white'\) of Heads must be one of .*'factorised'",
    ),
    (
      lambda: torsos.Torso(entries={'prices': 'fourier'}),
      r"entries\['prices'\] \('fourier'\) .* must be one of .*'signal'",
    ),
    (lambda: cores.LRU(7), r'hidden_size \(7\) of an LRU must be'),
    (
      lambda: SMALL.replace(tasks=('latent_kl',)),
      r'core \(LSTM.*\) must have latents for the task latent_kl; choose',
    ),
  ],
)
def test_bad_options_are_refused(make, message):
  with pytest.raises(ValueError, match=message):
    make()


@pytest.mark.parametrize(
  ('name', 'remedy'),
  [
    ('hidden_size', r'core=cores.LSTM\(hidden_size'),
    ('slow_period', r'core=cores.RPTH\(slow_period'),
    ('dropout_keep_prob', r'core=cores.LSTM\(dropout=1 - '),
    ('use_pixel_control', "tasks=\\('pixel_control',\\)"),
  ],
)
def test_options_of_parts_are_found(name, remedy):
  with pytest.raises(
    TypeError, match=f'no field .{name}.; did you mean {remedy}'
  ):
    ppo.PPOConfig(**{name: 1})


def test_a_wiring_of_unknown_parts_is_refused():
  config = SMALL.replace(
    core=STACKED.replace(wiring=(('price',), ('velocity',)))
  )
  with pytest.raises(
    ValueError, match=r"\['price'\] are not among them; choose .*prices"
  ):
    config.make_network(SPEC)


def test_a_wiring_has_only_what_the_core_reads():
  config = SMALL.replace(
    core=STACKED.replace(wiring=(('prices',), ('previous_action',)))
  )
  config.make_network(SPEC)
  with pytest.raises(
    ValueError, match=r"\['previous_action'\] are not among them"
  ):
    config.replace(previous_action=False).make_network(SPEC)


def test_heads_read_the_levels_of_a_memory_across_episodes(key):
  """Policy and value read one each, as in BTGym's `AacStackedRL2Policy`."""
  spec = SPEC._replace(
    observations={
      rl2_core.EPISODE_START: dm_env.specs.BoundedArray((), np.int8, 0, 1),
      **SPEC.observations,
    }
  )
  config = rl2.RL2Config(
    core=cores.StackedLSTM((3, 5)),
    heads=heads.Heads(policy_layer=0, value_layer=1),
  )
  params = jax.eval_shape(config.make_network(spec).init, key)
  assert params['policy_head/linear']['w'].shape[0] == 5
  assert params['value_head/linear']['w'].shape[0] == 5
  config = config.replace(heads=heads.Heads())
  params = jax.eval_shape(config.make_network(spec).init, key)
  assert params['value_head/linear']['w'].shape[0] == 10


def test_two_levels_of_memory_see_all_of_the_input():
  with pytest.raises(ValueError, match=r'wiring .* must be empty for a two'):
    rl2.RL2Config(core=WIRED)


def test_long_memory_unrolls_two_episodes():
  config = ppo.PPOConfig.long_memory(101, batch_size=8)
  assert config.sequence_length == 202 and config.batch_size == 8
  assert config.core == cores.LRU(32, memory_length=1010)
