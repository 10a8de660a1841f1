"""What of the standard network a config chooses, in a line each."""

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
from ftwax.networks import cores, embeddings, heads, recurrence, torsos
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
}


def _make_inputs(network, seed=0):
  trajectory = random_batches.make_trajectory(seed, SPEC, network, 4, 2)
  timestep = trajectory.timestep
  return (
    acting.make_network_input(timestep, trajectory.previous_action),
    acting.is_first(timestep),
    trajectory.recurrent_state,
  )


def _unroll(network, params, seed, inputs):
  seeds = jnp.full(inputs[1].shape, seed)
  return network.unroll(params, SMALL.priors, seeds, *inputs)[0]


# The others have parts of `all`.
@pytest.mark.parametrize(
  'name', slow_cases.all_but(('all', 'linear', 'noisy'), CONFIGS)
)
def test_every_parameter_learns(name, key):
  config = CONFIGS[name]
  network = config.make_network(SPEC)
  core = config.make_learner_core(network, SPEC)
  state = core.init(key)
  batch = random_batches.make_batch(0, SPEC, network, config)
  after, metrics = jax.jit(core.update)(state, batch)
  assert np.isfinite(metrics['loss'])
  moved = jax.tree.map(lambda x, y: np.any(x != y), after.params, state.params)
  still = [
    jax.tree_util.keystr(path)
    for path, leaf in jax.tree.leaves_with_path(moved)
    if not leaf
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
  params = config.make_network(SPEC).init(key)
  found = {
    name.rsplit('/', 1)[-1]: module['w_i'].shape
    for name, module in params.items()
    if '/layer_' in name
  }
  assert found == {'layer_0': (7 + 1, 20), 'layer_1': (7 + 7 + 4 + 5, 24)}


def test_a_separate_value_shares_nothing_with_the_policy(key):
  network = CONFIGS['separate'].make_network(SPEC)
  params, inputs = network.init(key), _make_inputs(network)

  def read(params, field):
    return jnp.sum(
      jnp.sin(getattr(_unroll(network, params, key, inputs), field))
    )

  touched = [
    {
      jax.tree_util.keystr(path)
      for path, leaf in jax.tree.leaves_with_path(jax.grad(read)(params, field))
      if np.any(leaf != 0.0)
    }
    for field in ('logits', 'value')
  ]
  assert len(touched[0]) == len(touched[1]) > 4
  assert not touched[0] & touched[1]


def test_noise_is_that_of_the_seeds(key):
  network = CONFIGS['noisy'].make_network(SPEC)
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
  network = CONFIGS[name].make_network(SPEC)
  params, (inputs, start, state) = network.init(key), _make_inputs(network)
  seeds = jnp.arange(start.size).reshape(start.shape)
  unrolled, last = network.unroll(
    params, SMALL.priors, seeds, inputs, start, state
  )
  after = state
  for t in range(len(start)):
    step, after = network.apply(
      params,
      SMALL.priors,
      seeds[t],
      jax.tree.map(lambda leaf, t=t: leaf[t], inputs),
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


def test_two_levels_of_memory_see_all_of_the_input():
  with pytest.raises(ValueError, match=r'wiring .* must be empty for a two'):
    rl2.RL2Config(core=WIRED)


def test_long_memory_unrolls_two_episodes():
  config = ppo.PPOConfig.long_memory(101, batch_size=8)
  assert config.sequence_length == 202 and config.batch_size == 8
  assert config.core == cores.LRU(32, memory_length=1010)
