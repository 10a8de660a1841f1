"""What `docs/coming_from/` says of losses and networks is tried here."""

import pathlib

import dm_env
import documented_code
import equivalents
import fakes
import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
from dm_env import specs

from ftwax import continuous, distributions, internal_rewards, types
from ftwax import hyperparameters as hyperparameters_lib
from ftwax.agents import a2c, ftw, impala, unreal
from ftwax.agents.actor_critic import optimization
from ftwax.losses import (
  advantage_actor_critic,
  clipped_surrogate,
  pixel_control,
  policy_loss,
  returns,
  reward_prediction,
  rollouts,
)
from ftwax.networks import (
  auxiliary_heads,
  cores,
  embeddings,
  entry_torsos,
  heads,
  noise,
  noisy,
  recurrent_cores,
  rpth,
)
from ftwax.networks.dnc import interfaces

KEY = jax.random.PRNGKey(0)

# An episode that terminates, the step to the next one, and its first two steps.
TRANSITIONS = policy_loss.Transitions(
  logits_tm1=jnp.array([[0.0, 1.0], [1.0, 0.0], [0.0, 0.0], [2.0, 0.0]]),
  behaviour_logits_tm1=jnp.zeros((4, 2)),
  a_tm1=jnp.array([0, 1, 0, 1]),
  v_tm1=jnp.array([1.0, 2.0, 50.0, 3.0]),
  v_t=jnp.array([2.0, 50.0, 3.0, 4.0]),
  r_t=jnp.array([1.0, 5.0, 70.0, 2.0]),
  discount_t=jnp.array([0.9, 0.0, 0.9, 0.9]),
  mask_tm1=jnp.array([1.0, 1.0, 0.0, 1.0]),
)


def _values(config):
  return config.sample_hyperparameters(KEY)


def _init_and_apply(function, *inputs, key=None):
  module = hk.transform(function)
  params = module.init(KEY, *inputs)
  return params, module.apply(params, key, *inputs)


@equivalents.says(
  'Terminations and truncations cut the recursions at the right places, and'
  ' steps between two episodes have no loss',
  'ends of episodes inside the rollout cut the recursion, and truncated ones'
  ' bootstrap',
)
def test_ends_of_episodes_in_returns():
  v_tm1, v_t, r_t, discount_t, mask_tm1, *_ = TRANSITIONS[3:]
  np.testing.assert_allclose(
    returns.lambda_returns(r_t, discount_t, v_t, mask_tm1),
    [1.0 + 0.9 * 5.0, 5.0, 0.0, 2.0 + 0.9 * 4.0],
    rtol=1e-6,
  )
  truncated = discount_t.at[1].set(0.9)
  found = returns.generalized_advantages(
    v_tm1, v_t, r_t, truncated, mask_tm1, 1.0
  )
  assert found[1] == 5.0 + 0.9 * 50.0 - 2.0 and found[2] == 0.0


@equivalents.says(
  'its entropy is not negated, and the loss subtracts it',
  'of half the squared error: 0.5 here is 0.25 there',
)
def test_parts_of_a_policy_loss():
  out = advantage_actor_critic.advantage_actor_critic_loss(
    TRANSITIONS, _values(a2c.A2CConfig(gae_lambda=1.0))
  )
  assert np.all(out.entropy[jnp.array([0, 1, 3])] > 0)
  np.testing.assert_allclose(out.value[0], 0.5 * (5.5 - 1.0) ** 2, rtol=1e-6)
  assert out.policy[2] == out.value[2] == out.entropy[2] == 0.0


@equivalents.says('padding is masked: its losses are zero')
def test_padded_rollouts():
  padded = rollouts.pad(TRANSITIONS, 6)
  values = _values(a2c.A2CConfig())
  loss = advantage_actor_critic.advantage_actor_critic_loss
  whole, long = loss(TRANSITIONS, values), loss(padded, values)
  for name in ('policy', 'value', 'entropy'):
    short = getattr(whole, name)
    np.testing.assert_allclose(getattr(long, name)[:3], short[:3], rtol=1e-6)
    assert not np.any(getattr(long, name)[4:])


@equivalents.says('half the squared error, optionally clipped')
def test_the_value_loss_of_ppo():
  options = {
    'gae_lambda': 1.0, 'clip_epsilon': 0.2, 'value_clip': jnp.inf
  }  # fmt: skip
  out = clipped_surrogate.ppo_loss(
    TRANSITIONS, hyperparameters_lib.make_tree(options)
  )
  assert out.value[0] == 0.5 * np.float32(4.5) ** 2


@equivalents.says(
  'classes are zero, negative, positive, in this order',
  'over all rows; there only the first',
)
def test_classes_and_rows_of_reward_prediction():
  reward = jnp.array([0.0, -2.0, 0.1])
  assert reward_prediction.reward_class(reward).tolist() == [0, 1, 2]
  assert reward_prediction.reward_class(reward, 0.1).tolist() == [0, 1, 0]
  loss = reward_prediction.reward_prediction_loss(jnp.zeros((3, 3)), reward)
  np.testing.assert_allclose(loss, np.log(3), rtol=1e-6)


@equivalents.says(
  "n-step Q-learning of a cell's mean change; there the maximum change in one"
  ' step',
  'the mean of a cell, as in the paper; there its maximum',
  '30 x 3 has 7 cells of 4',
)
def test_pixel_control_takes_the_mean_of_a_cell():
  frames = np.zeros((2, 8, 8), np.uint8)
  frames[1, 0, 0] = 255
  found = pixel_control.pseudo_rewards(frames, cell_size=4)
  np.testing.assert_allclose(found[0], [[1 / 16, 0.0], [0.0, 0.0]])
  assert pixel_control.grid_shape((30, 3), 4, is_signal=True) == (7,)


@equivalents.says('a head on the features, for any grid')
def test_grids_of_pixel_control():
  for grid in ((1, 1), (3, 5)):
    head = hk.transform(
      lambda x, grid=grid: auxiliary_heads.PixelControlHead(2, grid)(x)
    )
    shape = jax.eval_shape(head.init, KEY, jnp.zeros((1, 4)))
    out = jax.eval_shape(head.apply, shape, KEY, jnp.zeros((1, 4)))
    assert out.shape == (1, *grid, 2)


@equivalents.says(
  'a branch for each part of the action; the initial policy is close to'
  ' uniform',
  'logits are not normalized: the policy can become arbitrarily deterministic,'
  ' and starts close to uniform',
)
def test_the_initial_policy():
  features = 10.0 * jax.random.normal(KEY, (3, 8))
  params, logits = _init_and_apply(
    lambda x: heads.PolicyHead({'move': 3, 'turn': 2})(x), features
  )
  assert len(params) == 2 and logits.keys() == {'move', 'turn'}
  np.testing.assert_allclose(
    distributions.entropy(logits), np.log(6), rtol=1e-2
  )


@equivalents.says(
  "tanh of the agent's own reward, in both; no action at the start of an"
  ' episode; there it is action 0',
  'a missing action is encoded as none, not as the first action',
)
def test_previous_actions_and_rewards_as_inputs():
  inputs = types.NetworkInput(
    observation=jnp.zeros((2, 1)),
    previous_action=jnp.array([types.NO_ACTION, 0]),
    previous_reward=jnp.array([0.0, 3.0]),
  )
  _, found = _init_and_apply(
    lambda x: embeddings.InputEmbedding(lambda seen: seen, 2)(x), inputs
  )
  np.testing.assert_allclose(
    found, [[0.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, np.tanh(3.0)]], rtol=1e-6
  )


@equivalents.says(
  'the state is reset to zero where episodes begin',
)
def test_states_of_lstms():
  state = recurrent_cores.LSTMState(jnp.zeros((1, 2)), jnp.array([[9.0, -9.0]]))

  def unroll(inputs, start, state):
    return (
      recurrent_cores.LSTM(2, forget_bias=1.0)
      .make()
      .unroll(inputs, start, state)
    )

  steps = jnp.ones((1, 1, 3)), jnp.array([[True]])
  params, (_, reset) = _init_and_apply(unroll, *steps, state)
  zero = jax.tree.map(jnp.zeros_like, state)
  _, fresh = hk.transform(unroll).apply(params, None, *steps, zero)
  np.testing.assert_array_equal(reset.cell, fresh.cell)


@equivalents.says(
  'the learner draws what the actor drew, and without seeds there is none'
)
def test_noise_of_layers():
  module = hk.transform(lambda x: noisy.NoisyLinear(2)(x))
  inputs = jnp.ones((1, 3))
  params = module.init(KEY, inputs)

  def apply(seeds):
    with noise.seeded(seeds):
      return module.apply(params, None, inputs)

  seeds = jnp.array([7], jnp.int32)
  np.testing.assert_array_equal(apply(seeds), apply(seeds))
  layer = params['noisy_linear']
  plain = inputs @ layer['mu_w'] + layer['mu_b'][None]
  np.testing.assert_allclose(apply(None), plain, rtol=1e-6)
  assert np.all(apply(seeds) != apply(None))


@equivalents.says('32 channels in all layers, no layer norm and no dropout')
def test_layers_of_the_a3c_torso():
  torso = hk.transform(lambda x: entry_torsos.A3CTorso()(x))
  params = jax.eval_shape(torso.init, KEY, jnp.zeros((1, 42, 42, 3)))
  kernels = [leaf['w'] for leaf in params.values() if leaf['w'].ndim == 4]
  assert len(kernels) == 4 and {kernel.shape[-1] for kernel in kernels} == {32}
  assert {name for leaf in params.values() for name in leaf} == {'w', 'b'}


@equivalents.says('Strengths are 1 + softplus, as in the paper; softplus there')
def test_strengths_of_memories():
  config = cores.Memory(num_slots=2, word_size=3, num_reads=1)
  size = interfaces.interface_size(config)
  found = interfaces.parse_interface(config, jnp.zeros((1, size)))
  np.testing.assert_allclose(found.read_strengths, 1 + np.log(2), rtol=1e-6)


@equivalents.says(
  'level l ticks every `slow_period ** l` steps; a tuple has a period for each'
  ' slow core',
  'True; False computes latents from the output and the words themselves',
  'True makes all of them `init_scale`, as there',
)
def test_periods_scales_and_projections_of_the_hierarchy():
  core = cores.RPTH(4, num_levels=3, slow_period=2)
  assert rpth.level_periods(core) == [1, 2, 4]
  assert rpth.level_periods(core.replace(slow_period=(5, 3))) == [1, 5, 3]
  memory = cores.Memory(num_slots=2, word_size=3, num_reads=1)
  shapes = {}
  for name, options in {
    'default': {}, 'fixed': {'fixed_scale': True},
    'without': {'memory_projection': False},
  }.items():  # fmt: skip
    network = impala.IMPALAConfig(
      core=cores.RPTH(4, latent_size=5, memory=memory, **options)
    ).make_network(fakes.make_vector_spec())
    params = jax.eval_shape(network.init, KEY)
    level = 'rpth/~/level_0/~/'
    shapes[name] = params[f'{level}latent']['w'].shape
    assert (f'{level}output' in params) == (name != 'without')
  assert shapes == {'default': (4, 10), 'fixed': (4, 5), 'without': (7, 10)}


@equivalents.says(
  'any core of one size; with `layer_norm=True` and `forget_bias=1.0` the same'
  ' cell',
  'a rate, not a share to keep. It drops the candidates inside the cell, by the'
  ' same mask for actor and learner',
  'numbers of layers; None reads the last, which sees all inputs. (0, 1) is the'
  ' default there',
)
def test_the_stack_of_the_manual():
  page = pathlib.Path(__file__).parents[2] / 'docs' / 'networks.md'
  (block,) = documented_code.read_blocks(page)
  names: dict = {}
  exec(compile(block, str(page), 'exec'), names)
  signal = specs.Array((30, 3), np.float32)
  spec = fakes.make_spec(
    {'external': signal, 'internal': signal},
    actions=specs.DiscreteArray(4, name='action'),
  )
  params = jax.eval_shape(names['agent'].make_network(spec).init, KEY)
  for layer, reads in (('layer_0', 128 + 1), ('layer_1', 256 + 4 + 256)):
    cell = params[f'stacked_lstm/~/{layer}']
    assert {*cell} == {'w_i', 'w_h', 'gain', 'shift'}
    assert cell['w_i'].shape == (reads, 4 * 256)
  assert params['policy_head/noisy_linear']['mu_w'].shape == (256, 4)
  assert params['value_head/noisy_linear']['mu_w'].shape == (256, 1)


@equivalents.says(
  'log-probabilities and entropies add up over parts',
  'greedy takes the mode, also for vectors: `distributions.mode`',
  'are densities of the action taken',
)
def test_parts_and_modes_of_actions():
  logits = {'a': jnp.array([0.0, 1.0]), 'b': jnp.array([2.0, 0.0])}
  action = {'a': jnp.int32(0), 'b': jnp.int32(0)}
  apart = [distributions.log_prob(logits[name], action[name]) for name in 'ab']
  np.testing.assert_allclose(
    distributions.log_prob(logits, action), sum(apart), rtol=1e-6
  )
  assert distributions.mode(logits) == {'a': 1, 'b': 0}
  vector = continuous.Normal(jnp.array([0.5, -3.0]), jnp.zeros(2))
  np.testing.assert_array_equal(distributions.mode(vector), vector.mode())
  np.testing.assert_allclose(
    vector.log_prob(vector.mode()), -np.log(2 * np.pi), rtol=1e-6
  )


@equivalents.says(
  'always an inner product, without a gradient, also for one event',
  'None is uniform in [-1, 1] for events, as in the paper, and 1 for a scalar'
  ' reward',
)
def test_internal_rewards():
  events = jnp.array([[2.0, 3.0]])
  step = dm_env.TimeStep(jnp.array([1]), events, jnp.ones(1), ())
  weights = jnp.array([0.5, -1.0])
  assert internal_rewards.reward(weights, step).tolist() == [-2.0]
  one = step._replace(reward=events[:, 0])
  found, gradient = jax.value_and_grad(
    lambda weight: internal_rewards.reward(weight, one)[0]
  )(weights[:1])
  assert (found, gradient[0]) == (1.0, 0.0)
  config = ftw.FTWConfig()
  drawn = internal_rewards.sample(
    KEY, config.make_internal_rewards_prior(64), 64
  )
  assert np.min(drawn) < -0.5 and np.max(drawn) > 0.5
  only = config.make_internal_rewards_prior(1)
  assert internal_rewards.sample(KEY, only, 1).tolist() == [1.0]


@equivalents.says(
  'Changes each value with a probability of 5%, by 0.8 or 1.2, as in the paper',
  'int32, there a float',
)
def test_perturbation():
  prior = hyperparameters_lib.LogUniform(1e-9, 1e9)
  values = (jnp.float32(1.0),) * 400
  found = np.array(
    hyperparameters_lib.perturb(KEY, values, (prior,) * len(values))
  )
  assert set(found.round(5)) == {np.float32(0.8), 1.0, np.float32(1.2)}
  assert 0.02 < np.mean(found != 1.0) < 0.08
  drawn = hyperparameters_lib.UniformInteger(5, 20).sample(KEY)
  assert drawn.dtype == jnp.int32


@equivalents.says(
  'inside the square root, in both',
  'infinity, not 0, means never',
  'Losses are sums over time and batch there and in `agents.FTWConfig`, and'
  ' means in the other agents',
  'its discount, 0.9 there, is `tasks.PixelControl.discount` (`0.9`)',
)
def test_optimizers_and_reductions():
  config = impala.IMPALAConfig(
    optimizer=optimization.RMSProp(4.0, decay=0.0), max_gradient_norm=100.0,
  )  # fmt: skip
  made = optimization.make_optimizer(config.optimizer, config.max_gradient_norm)
  gradient = jnp.array([1.0])
  update, _ = made.update(gradient, made.init(gradient))
  np.testing.assert_allclose(update, -1 / np.sqrt(1.0 + 4.0), rtol=1e-6)
  never = optimization.decay(config.decay, _values(config), jnp.int32(10**9))
  assert never.learning_rate == _values(config).learning_rate
  assert ftw.FTWConfig().loss_reduction == 'sum'
  assert ftw.small().loss_reduction == 'mean'
  assert unreal.UNREALConfig().loss_reduction == 'mean'


@equivalents.says(
  'bytes stay bytes until the network, which divides them by 255',
)
def test_bytes_are_divided_by_the_network():
  spec = specs.BoundedArray((4, 4, 3), np.uint8, 0, 255)
  image = jnp.full((1, 4, 4, 3), 51, jnp.uint8)
  assert embeddings.scale_image(image, spec).dtype == jnp.uint8
  torso = hk.transform(lambda x: entry_torsos.FTWTorso()(x))
  big = jnp.full((1, 8, 8, 3), 51, jnp.uint8)
  params = torso.init(KEY, big)
  np.testing.assert_allclose(
    torso.apply(params, None, big),
    torso.apply(params, None, big / 255.0),
    rtol=1e-5,
  )
