"""Minibatches of transitions, and a whole update of PPO beside a plain one."""

import itertools

import fakes
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import random_batches
import slow_cases
from dm_env import specs

from ftwax import distributions, trees, types
from ftwax.agents import impala, ppo
from ftwax.agents.actor_critic import acting, joint_loss
from ftwax.networks import cores, heads, recurrent_cores, torsos

T, B = 6, 4
SPEC = fakes.make_vector_spec()


def _config(**options):
  return ppo.PPOConfig(
    **{
      'core': cores.FeedForward(4),
      'torso': torsos.Torso(hidden_sizes=(5,)),
      'sequence_length': T,
      'batch_size': B,
      'num_epochs': 2,
      'num_minibatches': 3,
      **options,
    }
  )


def _make(config, spec=SPEC, seed=0):
  network = config.make_network(spec)
  learner = config.make_learner_core(network, spec)
  batch = random_batches.make_batch(seed, spec, network, config)
  return jax.jit(learner.update), learner.init(jax.random.PRNGKey(1)), batch


@pytest.mark.parametrize(
  ('changes', 'expected'),
  [
    ({}, True),
    ({'shuffle': 'sequences', 'num_minibatches': 2}, False),
    ({'num_minibatches': 1}, False),
    ({'core': 'lstm', 'num_minibatches': 2}, False),
    ({'tasks': ('value_replay',), 'num_minibatches': 2}, False),
  ],
)
def test_transitions_are_shuffled_where_nothing_needs_sequences(
  changes, expected
):
  config = _config(**changes)
  has_memory = not isinstance(config.core, cores.FeedForward)
  assert config.shuffles_transitions(has_memory) == expected


@pytest.mark.parametrize(
  ('changes', 'message'),
  [
    ({'core': 'lstm'}, r"shuffle \('transitions'\) must be .* with memory"),
    ({'tasks': ('value_replay',)}, r'with auxiliary tasks'),
    ({'num_minibatches': 5}, r'divide batch_size \* sequence_length \(24\);'),
  ],
)
def test_what_needs_sequences_refuses_transitions(changes, message):
  with pytest.raises(ValueError, match=message):
    _config(shuffle='transitions', **changes)


def test_a_loss_without_targets_refuses_transitions():
  with pytest.raises(ValueError, match='whose targets need them'):
    impala.IMPALAConfig(core='feed_forward', shuffle='transitions')


def test_whole_sequences_must_divide():
  with pytest.raises(ValueError, match=r'divide batch_size \(4\), since minib'):
    _config(shuffle='sequences')


def test_a_core_of_the_users_own_is_asked_for_its_state():
  config = _config(core=recurrent_cores.FeedForward, num_minibatches=2)
  network = config.make_network(SPEC)
  stated = network._replace(initial_state=lambda size: jnp.zeros((size, 1)))
  config.replace(shuffle='transitions').make_learner_core(network, SPEC)
  with pytest.raises(ValueError, match='with memory'):
    config.replace(shuffle='transitions').make_learner_core(stated, SPEC)


OPTIONS = {
  'plain': {},
  'previous': {'previous_action': True, 'previous_reward': True},
  'separate': {'separate_value': True, 'skip_connection': False},
  'noisy': {'heads': heads.Heads(noise='factorised')},
  'normalized': {'normalize_observations': True, 'normalize_returns': True},
  'tanh': {
    'core': cores.FeedForward(4, activation='tanh', initializer='orthogonal'),
    'heads': heads.Heads((4,), (4,), initializer='orthogonal'),
  },
  'states': {'heads': heads.Heads(state_dependent_scale=True)},
}


SPACES = {'discrete': SPEC, 'continuous': fakes.make_continuous_spec()}
CASES = [f'{name}, {space}' for space in SPACES for name in OPTIONS]
# The others take long to compile.
FAST = ('previous, discrete', 'noisy, discrete', 'states, continuous')


each_case = pytest.mark.parametrize(
  'case', slow_cases.cases(CASES, FAST[:1], ci=FAST)
)


@each_case
def test_one_minibatch_of_all_transitions_is_one_of_all_sequences(case):
  """So that losses, masks, noise and gradients are the same."""
  name, space = case.split(', ')
  spec = SPACES[space]
  config = _config(num_epochs=1, num_minibatches=1, **OPTIONS[name])
  update, state, batch = _make(config, spec)
  expected, metrics = update(state, batch)
  update, _, _ = _make(config.replace(shuffle='transitions'), spec)
  found, own = update(state, batch)
  for one, other in zip(
    jax.tree.leaves(found.params), jax.tree.leaves(expected.params), strict=True
  ):
    np.testing.assert_allclose(one, other, atol=2e-5)
  for metric in ('loss', 'entropy', 'kl_old_new', 'gradient_norm'):
    np.testing.assert_allclose(own[metric], metrics[metric], rtol=2e-3)


def _act(config, spec, state):
  """Returns a trajectory whose actions the agent chose."""
  network = config.make_network(spec)
  rows = random_batches.make_trajectory(0, spec, network, T, B).timestep
  actor = config.make_policy(network, spec)
  select = jax.jit(actor.select_action)
  variables = types.actor_variables(state)
  actor_state, choices = actor.init(jax.random.PRNGKey(2), B), []
  recurrent_state = actor_state.recurrent_state
  for t in range(T + 1):
    timestep = trees.take(rows, t)
    previous = acting.previous_action_of(timestep, actor_state.action)
    seed = actor_state.seed
    _, actor_state = select(variables, timestep, actor_state)
    choices.append((previous, actor_state.logits, seed, actor_state.value))
  previous, logits, seed, value = jax.tree.map(
    lambda *leaves: jnp.stack(leaves), *choices
  )
  logits = trees.take(logits, slice(None, -1))
  return types.Trajectory(rows, previous, logits, recurrent_state, seed, value)


# Sequences once: the test above shows that others are as transitions are.
@pytest.mark.parametrize(
  ('shuffle', 'case'),
  slow_cases.rows(
    itertools.product(['transitions', 'sequences'], CASES),
    [('transitions', FAST[1]), ('sequences', FAST[0])],
    ci=[('transitions', case) for case in FAST],
  ),
)
def test_the_ratio_is_one_at_equal_weights(case, shuffle):
  name, space = case.split(', ')
  spec = SPACES[space]
  config = _config(
    num_epochs=1,
    num_minibatches=2,
    shuffle=shuffle,
    **{**OPTIONS[name], 'learning_rate': 0.0},
  )
  network = config.make_network(spec)
  learner = config.make_learner_core(network, spec)
  state = learner.init(jax.random.PRNGKey(1))
  batch = types.LearnerBatch(_act(config, spec, state))
  _, metrics = jax.jit(learner.update)(state, batch)
  np.testing.assert_allclose(metrics['kl_old_new'], 0.0, atol=1e-6)
  assert metrics['clip_fraction'] == 0.0
  # With others it is not.
  others = network.init(jax.random.PRNGKey(5))
  _, metrics = jax.jit(learner.update)(state._replace(params=others), batch)
  assert metrics['kl_old_new'] > 1e-6


def test_each_epoch_takes_each_transition_once():
  """Seen by the mean over minibatches of one transition each."""
  whole = _config(learning_rate=0.0, num_epochs=1, num_minibatches=1)
  update, state, batch = _make(whole)
  _, expected = update(state, batch)
  update, _, _ = _make(whole.replace(num_epochs=3, num_minibatches=T * B))
  _, found = update(state, batch)
  # At one step of the batch there was no action.
  np.testing.assert_allclose(
    found['value_loss'] * T * B, expected['value_loss'] * (T * B - 1), rtol=1e-5
  )


def test_advantages_may_be_normalized_over_each_minibatch():
  config = _config(advantages_over='minibatch', num_epochs=1)
  spec, key = SPEC, jax.random.PRNGKey(0)
  network = config.make_network(spec)
  batch = random_batches.make_batch(0, spec, network, config)
  state = config.make_learner_core(network, spec).init(key)
  objective = joint_loss.Objective(network, config)
  args = objective, state.params, state.hyperparameters
  steps = joint_loss.make_steps(*args, batch.trajectory)
  some = trees.take(steps, jnp.arange(2, 9))
  _, found = joint_loss.steps_loss(*args, some)
  advantages = np.asarray(some.transitions.targets.advantages, np.float64)
  mask = np.asarray(some.transitions.mask_tm1) != 0
  kept = advantages[mask]
  normalized = (advantages - kept.mean()) / kept.std()
  ratio = np.exp(
    distributions.log_prob(
      network.apply(
        state.params, state.hyperparameters, some.seed, some.inputs, ()
      )[0].logits,
      some.transitions.a_tm1,
    )
    - distributions.log_prob(
      some.transitions.behaviour_logits_tm1, some.transitions.a_tm1
    )
  )
  np.testing.assert_allclose(
    found['policy_loss'],
    -np.mean(
      np.minimum(ratio * normalized, np.clip(ratio, 0.8, 1.2) * normalized)[
        mask
      ]
    ),
    rtol=1e-4,
  )


# Beside a plain rewrite: all that an update of continuous actions does.
VECTOR = types.EnvironmentSpec(
  specs.Array((3,), np.float32),
  specs.BoundedArray((2,), np.float32, -1.0, 1.0),
  specs.Array((), np.float32),
  specs.BoundedArray((), np.float32, 0.0, 1.0),
)
NUMBERS = {
  'learning_rate': 3e-3,
  'entropy_cost': 0.02,
  'gae_lambda': 0.9,
  'discount': 0.97,
  'max_gradient_norm': 0.1,
}
LAYERS = ['observation_embedding{}/~/mlp_torso', 'feed_forward{}/~/mlp/~']


def _plain_network(params, path, head, x):
  for name in LAYERS:
    layer = params[
      name.format(path) + ('/linear' if 'torso' in name else '/linear_0')
    ]
    x = jnp.tanh(x @ layer['w'] + jnp.broadcast_to(layer['b'], (len(x), 4)))
  layer = params[f'{head}/linear']
  return x @ layer['w'] + jnp.broadcast_to(
    layer['b'], (len(x), len(layer['b']))
  )


def _plain_log_prob(params, x, action):
  log_scale = jnp.broadcast_to(
    params['policy_head/__log_scale']['log_scale'], action.shape
  )
  z = (action - _plain_network(params, '', 'policy_head', x)) * jnp.exp(
    -log_scale
  )
  density = -0.5 * z**2 - log_scale - 0.5 * np.log(2 * np.pi)
  return jnp.sum(density, axis=1)


def _plain_loss(params, rows, over):
  """Returns the loss of some transitions."""
  x, action, old, advantages, returns, mask = rows
  count = jnp.sum(mask)
  if over == 'minibatch':
    mean = jnp.sum(mask * advantages) / count
    deviation = jnp.sqrt(jnp.sum(mask * (advantages - mean) ** 2) / count)
    advantages = (advantages - mean) / (deviation + 1e-8)
  log_prob = _plain_log_prob(params, x, action)
  ratio = jnp.exp(jnp.where(mask > 0, log_prob - old, 0.0))
  value = _plain_network(params, '_1', 'value_head', x)[:, 0]
  log_scale = params['policy_head/__log_scale']['log_scale']
  entropy = jnp.sum(log_scale + 0.5 * (1.0 + np.log(2 * np.pi)))
  losses = -jnp.minimum(
    ratio * advantages, jnp.clip(ratio, 0.8, 1.2) * advantages
  )
  losses += 0.5 * 0.5 * (value - returns) ** 2
  return jnp.sum(mask * losses) / count - NUMBERS['entropy_cost'] * entropy


def _plain_rows(trajectory, params, over):
  """Returns the transitions of a batch, leaves [T, B, ...]."""
  timestep = trajectory.timestep
  value = np.asarray(trajectory.value, np.float64)
  mask = np.where(timestep.step_type[:-1] == 2, 0.0, 1.0)
  after = np.asarray(timestep.reward[1:], np.float64)
  discount = NUMBERS['discount'] * np.asarray(timestep.discount[1:], np.float64)
  # The root mean square of returns, with their mean beyond each trajectory.
  inside, beyond = np.zeros((2, T, B))
  advantages = np.zeros((T, B))
  for b in range(B):
    total, factor, advantage = 0.0, 1.0, 0.0
    for t in reversed(range(T)):
      if mask[t, b] == 0:
        total, factor, advantage = 0.0, 1.0, 0.0
        continue
      total = after[t, b] + discount[t, b] * total
      factor = discount[t, b] * factor
      inside[t, b], beyond[t, b] = total, factor
  moments = [
    np.sum(mask * x) / np.sum(mask)
    for x in (inside, beyond, inside**2, inside * beyond, beyond**2)
  ]
  mean = moments[0] / (1.0 - moments[1])
  scale = np.sqrt(moments[2] + 2 * mean * moments[3] + mean**2 * moments[4])
  for b in range(B):
    advantage = 0.0
    for t in reversed(range(T)):
      error = after[t, b] / scale + discount[t, b] * value[t + 1, b]
      error -= value[t, b]
      advantage = mask[t, b] * (
        error + discount[t, b] * NUMBERS['gae_lambda'] * advantage
      )
      advantages[t, b] = advantage
  returns = advantages + value[:-1]
  if over == 'batch':
    kept = advantages[mask > 0]
    advantages = mask * (advantages - kept.mean()) / kept.std()
  x = np.clip(timestep.observation[:-1], -10.0, 10.0)
  logits, action = trajectory.logits, trajectory.previous_action[1:]
  old = distributions.log_prob(logits, action)
  rows = x, action, old, advantages, returns, mask
  return tuple(jnp.asarray(leaf, jnp.float32) for leaf in rows), scale


def _plain_adam(step, params, gradient, first, second):
  """Returns what a step of Adam makes of one array, and its moments."""
  first = 0.9 * first + 0.1 * gradient
  second = 0.999 * second + 1e-3 * gradient**2
  rate = NUMBERS['learning_rate'] / (1 - 0.9**step)
  root = jnp.sqrt(second / (1 - 0.999**step)) + 1e-5
  return params - rate * first / root, first, second


def _plain_steps(params, rows, order, over):
  """Takes steps of Adam on gradients clipped by their norm."""
  differentiate = jax.jit(jax.grad(_plain_loss), static_argnums=2)
  leaves, structure = jax.tree.flatten(params)
  moments = [(jnp.zeros_like(leaf), jnp.zeros_like(leaf)) for leaf in leaves]
  for step, chosen in enumerate(order, 1):
    params = jax.tree.unflatten(structure, leaves)
    some = trees.take(rows, chosen)
    gradients = jax.tree.leaves(differentiate(params, some, over))
    norm = np.sqrt(sum(np.sum(np.square(leaf)) for leaf in gradients))
    factor = min(1.0, NUMBERS['max_gradient_norm'] / norm)
    moved = [
      _plain_adam(step, leaf, factor * gradient, *moment)
      for leaf, gradient, moment in zip(leaves, gradients, moments, strict=True)
    ]
    leaves = [leaf for leaf, *_ in moved]
    moments = [moment for _, *moment in moved]
  return jax.tree.unflatten(structure, leaves)


@pytest.mark.parametrize(
  ('shuffle', 'over'),
  slow_cases.rows(
    itertools.product(['sequences', 'transitions'], ['batch', 'minibatch']),
    [('sequences', 'batch'), ('transitions', 'minibatch')],
  ),
)
def test_an_update_is_that_of_a_plain_rewrite(shuffle, over):
  config = _config(
    core=cores.FeedForward(4, activation='tanh'),
    torso=torsos.Torso(hidden_sizes=(4,), activation='tanh'),
    num_minibatches=2,
    skip_connection=False,
    separate_value=True,
    normalize_observations=True,
    normalize_returns=True,
    shuffle=shuffle,
    advantages_over=over,
    **NUMBERS,
  )
  update, state, batch = _make(config, VECTOR)
  trajectory = batch.trajectory
  observation = trajectory.timestep.observation
  (value,) = _plain_network(
    state.params, '_1', 'value_head', observation.reshape(-1, 3)
  ).T
  trajectory = trajectory._replace(value=value.reshape(T + 1, B))
  found, metrics = update(state, types.LearnerBatch(trajectory))
  rows, scale = _plain_rows(trajectory, state.params, over)
  np.testing.assert_allclose(metrics['return_scale'], scale, rtol=1e-5)
  size = B if shuffle == 'sequences' else T * B
  keys = jax.random.split(
    jax.random.split(jax.random.fold_in(state.key, state.steps), 3)[1], 2
  )
  order = np.stack([jax.random.permutation(key, size) for key in keys])
  order = order.reshape(4, -1)
  if shuffle == 'sequences':
    order = (np.arange(T)[:, None] * B + order[:, None]).reshape(4, -1)
  flat = jax.tree.map(lambda x: x.reshape(T * B, *x.shape[2:]), rows)
  expected = _plain_steps(state.params, flat, order, over)
  moved = 0.0
  for one, other, old in zip(
    *map(jax.tree.leaves, (found.params, expected, state.params)), strict=True
  ):
    np.testing.assert_allclose(one, other, atol=2e-5)
    moved = max(moved, float(np.max(np.abs(one - old))))
  assert moved > 5e-3


@pytest.mark.parametrize('core', ['feed_forward', 'lstm', 'gru'])
def test_settings_of_vector_actions_suit_cores_with_and_without_memory(core):
  options = {} if core == 'feed_forward' else {'core': core}
  config = ppo.PPOConfig.continuous(**options)
  steps = config.batch_size * config.sequence_length
  assert steps == 2048 and steps // config.num_minibatches == 64
  assert config.shuffles_transitions(bool(options)) == (not options)
  spec = fakes.make_continuous_spec()._replace(
    observations=specs.Array((3,), np.float32)
  )
  params = config.make_network(spec).init(jax.random.PRNGKey(0))
  w = np.asarray(params['observation_embedding/~/mlp_torso/linear']['w'])
  np.testing.assert_allclose(w @ w.T, 2.0 * np.eye(len(w)), atol=1e-5)
  scales = [x['log_scale'] for x in params.values() if 'log_scale' in x]
  assert scales and all(np.all(scale == 0.0) for scale in scales)
