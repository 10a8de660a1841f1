"""The For-The-Win agent's functions: its losses, its data, its errors."""

import math
import operator

import dm_env
import fakes
import ftw_batches
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ftwax import hyperparameters, types
from ftwax.agents import ftw
from ftwax.agents.actor_critic import (
  batches,
  joint_loss,
  optimization,
  tasks,
)
from ftwax.losses import (
  latent_kl,
  pixel_control,
  policy_loss,
  reward_prediction,
  v_trace,
  value_replay,
)
from ftwax.networks import cores, heads, torsos

pytestmark = pytest.mark.ci

COSTS = (
  'tasks.pixel_control.cost',
  'tasks.reward_prediction.cost',
  'tasks.value_replay.cost',
  'tasks.latent_kl.posterior_prior_cost',
  'tasks.latent_kl.prior_fixed_cost',
)


@pytest.fixture(scope='module')
def config():
  return ftw_batches.make_config(tasks=(*ftw_batches.TASKS, 'value_replay'))


@pytest.fixture(scope='module')
def network(config):
  return config.make_network(ftw_batches.SPEC)


@pytest.fixture(scope='module')
def core(network, config):
  return config.make_learner_core(network, ftw_batches.SPEC)


@pytest.fixture(scope='module')
def state(core):
  return core.init(jax.random.PRNGKey(1))


@pytest.fixture(scope='module')
def batch(network):
  return ftw_batches.make_batch(0, network)


@pytest.fixture(scope='module')
def loss_and_gradient(network, config):
  """The joint loss with its gradient, jitted: every cost is an argument."""
  objective = joint_loss.Objective(network, config)

  def loss_fn(params, hypers, internal_rewards, batch):
    batch = batches.with_own_rewards(internal_rewards, batch)
    return joint_loss.joint_loss(objective, params, hypers, batch)

  return jax.jit(jax.value_and_grad(loss_fn, has_aux=True))


def _terms(network, params, hypers, internal_rewards, batch):
  """Each term of the loss, a stream at a time, from the losses themselves."""
  batch = batches.with_own_rewards(internal_rewards, batch)
  joined = jax.tree.map(
    lambda axis, *trees: jax.tree.map(
      lambda *x: jnp.concatenate(x, axis), *trees
    ),
    batches.TRAJECTORY_AXIS,
    batch.trajectory,
    batch.replay.trajectory,
    is_leaf=lambda x: isinstance(x, int),
  )
  timestep = joined.timestep
  output, _ = network.unroll(
    params,
    hypers,
    None,
    _network_input(timestep, joined.previous_action),
    timestep.step_type == 0,
    joined.recurrent_state,
  )
  terms = dict.fromkeys(['policy', 'value', 'entropy', *COSTS], 0.0)
  action_values = network.heads['pixel_control'](params, output.features)
  num_fresh = ftw_batches.B
  for column in range(2 * num_fresh):
    stream, out, values = jax.tree.map(
      lambda x: x[:, column],  # noqa: B023
      (joined._replace(recurrent_state=()), output, action_values),
    )
    transitions = policy_loss.make_transitions(out, stream, hypers)
    if column < num_fresh:
      losses = v_trace.vtrace_loss(transitions, hypers)
      kl = latent_kl.latent_kl(
        **{
          f'{k}s': [x[:-1] for x in out.auxiliary[k]]
          for k in ('loc', 'scale', 'tick')
        }
      )
      terms['policy'] += jnp.sum(losses.policy)
      terms['value'] += jnp.sum(losses.value)
      terms['entropy'] += jnp.sum(losses.entropy)
      terms['tasks.latent_kl.posterior_prior_cost'] += jnp.sum(
        kl.posterior_prior
      )
      terms['tasks.latent_kl.prior_fixed_cost'] += jnp.sum(kl.prior_fixed)
    else:
      terms['tasks.pixel_control.cost'] += jnp.sum(
        pixel_control.pixel_control_loss(
          values,
          stream.timestep.observation,
          stream,
          hypers.tasks.pixel_control.discount,
        )
      )
      terms['tasks.value_replay.cost'] += jnp.sum(
        value_replay.value_replay_loss(transitions)
      )
  prediction = batch.reward_prediction
  logits = network.heads['reward_prediction'](params, prediction.observation)
  terms['tasks.reward_prediction.cost'] = jnp.sum(
    reward_prediction.reward_prediction_loss(logits, prediction.reward)
  )
  return terms


def _network_input(timestep, previous_action):
  return types.NetworkInput(
    timestep.observation, previous_action, timestep.reward
  )


def _sum_terms(hypers, terms):
  total = terms['policy'] + hypers.baseline_cost * terms['value']
  total -= hypers.entropy_cost * terms['entropy']
  return total + sum(
    operator.attrgetter(name)(hypers) * terms[name] for name in COSTS
  )


def _only(hypers, *names):
  """Sets all costs to zero but those named, which are one."""
  return hyperparameters.update(
    hypers,
    {
      'entropy_cost': jnp.zeros_like,
      **{
        name: jnp.ones_like if name in names else jnp.zeros_like
        for name in (*COSTS, 'baseline_cost')
      },
    },
  )


def test_the_loss_and_its_gradient_are_those_of_the_terms(
  network, state, batch, loss_and_gradient
):
  hypers, rewards = state.hyperparameters, state.internal_rewards

  def expected_fn(params, hypers):
    terms = _terms(network, params, hypers, rewards, batch)
    return _sum_terms(hypers, terms)

  expected_and_gradient = jax.jit(jax.value_and_grad(expected_fn))
  choices = [hypers, *(_only(hypers, name) for name in COSTS)]
  for choice in choices:
    (loss, _), gradient = loss_and_gradient(
      state.params, choice, rewards, batch
    )
    expected, expected_gradient = expected_and_gradient(state.params, choice)
    np.testing.assert_allclose(loss, expected, rtol=1e-5)
    jax.tree.map(
      lambda x, y: np.testing.assert_allclose(
        x, y, atol=1e-5 * np.max(np.abs(y))
      ),
      gradient,
      expected_gradient,
    )


def test_each_cost_moves_the_loss(state, batch, loss_and_gradient):
  # A tick in mid-sequence: at the first one the prior is still the fixed one.
  hypers = hyperparameters.update(
    state.hyperparameters, {'core.slow_period': lambda _: jnp.int32(2)}
  )
  rewards = state.internal_rewards
  none = _only(hypers)
  base, _ = loss_and_gradient(state.params, none, rewards, batch)
  for name in (*COSTS, 'baseline_cost'):
    (loss, _), _ = loss_and_gradient(
      state.params, _only(hypers, name), rewards, batch
    )
    assert loss != base[0], name


def test_an_empty_replay_changes_nothing_of_the_policy(
  network, state, loss_and_gradient
):
  rewards = state.internal_rewards
  dead = ftw_batches.make_batch(0, network, is_live=False)
  other = ftw_batches.make_batch(3, network, is_live=False)
  other = other._replace(trajectory=dead.trajectory)
  hypers = state.hyperparameters
  (loss, metrics), gradient = loss_and_gradient(
    state.params, hypers, rewards, dead
  )
  off = hyperparameters.update(hypers, dict.fromkeys(COSTS[:3], jnp.zeros_like))
  live = ftw_batches.make_batch(0, network)
  (expected, _), expected_gradient = loss_and_gradient(
    state.params, off, rewards, live
  )
  np.testing.assert_allclose(loss, expected, rtol=1e-6)
  jax.tree.map(
    lambda x, y: np.testing.assert_allclose(x, y, atol=1e-5),
    gradient,
    expected_gradient,
  )
  assert metrics['pixel_control_live'] == 0.0
  assert metrics['reward_prediction_live'] == 0.0
  (same, _), _ = loss_and_gradient(state.params, hypers, rewards, other)
  np.testing.assert_allclose(loss, same, rtol=1e-6)


def test_rewards_are_the_inner_product_of_events_and_weights(
  network, state, batch, loss_and_gradient
):
  """Events with other weights are as another reward; no gradient reaches it."""
  weights = jnp.array([0.5, -1.0, 0.25])
  own = batches.with_own_rewards(weights, batch)
  events = np.asarray(batch.trajectory.timestep.reward)
  np.testing.assert_allclose(
    own.trajectory.timestep.reward, events @ np.asarray(weights), rtol=1e-6
  )
  np.testing.assert_allclose(
    own.reward_prediction.reward,
    np.asarray(batch.reward_prediction.reward) @ np.asarray(weights),
    rtol=1e-6,
  )
  loss, _ = loss_and_gradient(
    state.params, state.hyperparameters, weights, batch
  )
  other, _ = loss_and_gradient(
    state.params, state.hyperparameters, 2.0 * weights, batch
  )
  assert loss[0] != other[0]


def test_four_members_by_vmap_are_four_members_alone(core, network):
  states = jax.vmap(core.init)(jax.random.split(jax.random.PRNGKey(2), 4))
  assert len(set(np.asarray(states.hyperparameters.core.slow_period))) > 1
  assert len(set(np.asarray(states.internal_rewards[:, 0]))) == 4
  members = [ftw_batches.make_batch(seed, network) for seed in range(4)]
  stacked = jax.tree.map(lambda *x: jnp.stack(x), *members)
  update = jax.jit(core.update)
  together, _ = jax.jit(jax.vmap(core.update))(states, stacked)
  for index, member in enumerate(members):
    alone, _ = update(
      jax.tree.map(lambda x: x[index], states),  # noqa: B023
      member,
    )
    jax.tree.map(
      lambda x, y: np.testing.assert_allclose(
        x[index],  # noqa: B023
        y,
        atol=2e-5,
      ),
      together.params,
      alone.params,
    )


def test_what_evolves_makes_no_new_trace(core, state, batch):
  num_traces = 0

  def counted(state, batch):
    nonlocal num_traces
    num_traces += 1
    return core.update(state, batch)

  update = jax.jit(counted)
  before, _ = update(state, batch)
  changed = state._replace(
    hyperparameters=hyperparameters.update(
      state.hyperparameters,
      {
        'core.slow_period': lambda _: jnp.int32(2),
        'learning_rate': lambda _: jnp.float32(1e-3),
      },
    ),
    internal_rewards=-state.internal_rewards,
  )
  after, _ = update(changed, batch)
  assert num_traces == 1
  assert any(
    np.any(x != y)
    for x, y in zip(
      jax.tree.leaves(before.params), jax.tree.leaves(after.params), strict=True
    )
  )


def test_the_clipped_loss_ignores_the_scale_of_rewards(network, batch):
  config = ftw.small(
    core=cores.RPTH(ftw_batches.SIZE),
    tasks=(*ftw_batches.TASKS, 'value_replay'),
    sequence_length=ftw_batches.T,
    batch_size=ftw_batches.B,
    num_epochs=2,
    num_minibatches=2,
    baseline_cost=0.0,
    learning_rate=1e-3,
  ).with_size(ftw_batches.SIZE)
  core = config.make_learner_core(network, ftw_batches.SPEC)
  state = core.init(jax.random.PRNGKey(1))
  update = jax.jit(core.update)
  # So large that first values are nothing to them, nor does the network, which
  # sees their hyperbolic tangent, tell them apart.
  after, metrics = {}, {}
  for scale in (1e3, 1e4):
    rewards = jnp.full_like(state.internal_rewards, scale)
    after[scale], metrics[scale] = update(
      state._replace(internal_rewards=rewards), batch
    )
  for name in ('policy_loss', 'clip_fraction', 'kl_old_new'):
    np.testing.assert_allclose(
      metrics[1e3][name], metrics[1e4][name], 1e-2, 1e-3, err_msg=name
    )
  assert metrics[1e4]['value_loss'] > 50 * metrics[1e3]['value_loss']
  assert metrics[1e3]['latent_kl_posterior_prior'] > 0.0
  moved = jax.tree.map(
    lambda x, y: np.any(x != y), state.params, after[1e3].params
  )
  assert all(any(leaf.values()) for k, leaf in moved.items() if 'rpth' in k)


@pytest.mark.parametrize('linkage', ['exact', 'sparse', 'none'])
def test_the_agent_with_a_memory_learns(linkage):
  memory = cores.Memory(4, 3, 2, linkage=linkage, num_links=2)
  config = ftw_batches.make_config(core=cores.RPTH(6, memory=memory))
  network = config.make_network(ftw_batches.SPEC)
  core = config.make_learner_core(network, ftw_batches.SPEC)
  state = core.init(jax.random.PRNGKey(0))
  batch = ftw_batches.make_batch(0, network)
  after, metrics = jax.jit(core.update)(state, batch)
  assert np.isfinite(metrics['loss']) and int(after.skipped) == 0
  moved = jax.tree.map(lambda x, y: np.any(x != y), state.params, after.params)
  memory_moved = [v for k, v in moved.items() if 'access' in k]
  assert memory_moved and any(jax.tree.leaves(memory_moved)), list(moved)


def test_each_of_the_papers_six_action_parts_is_learned():
  sizes = {'yaw': 5, 'pitch': 3, 'strafe': 3, 'move': 3, 'tag': 2, 'jump': 2}
  assert math.prod(sizes.values()) == 540
  spec = ftw_batches.SPEC._replace(
    actions={
      name: dm_env.specs.DiscreteArray(size, name=name)
      for name, size in sizes.items()
    }
  )
  config = ftw_batches.make_config(core=cores.LSTM(6), tasks=('pixel_control',))
  network = config.make_network(spec)
  core = config.make_learner_core(network, spec)
  state = core.init(jax.random.PRNGKey(0))
  fresh, past = (
    ftw_batches.make_trajectory(seed, network, spec) for seed in (0, 1)
  )
  batch = types.LearnerBatch(fresh, types.ReplayBatch(past, jnp.bool_(True)))
  after, metrics = jax.jit(core.update)(state, batch)
  assert np.isfinite(metrics['loss']) and int(after.skipped) == 0
  moved = jax.tree.map(lambda x, y: np.any(x != y), state.params, after.params)
  branches = [value['w'] for key, value in moved.items() if 'policy' in key]
  assert branches == [True] * 2 * len(sizes)  # A hidden layer in each.
  (maps,) = (key for key in moved if key.endswith('pixel_control_head/values'))
  has_moved = state.params[maps]['w'] != after.params[maps]['w']
  # Of the value and of the advantages of each choice of each part.
  assert has_moved.any(axis=(0, 1, 2)).tolist() == [True] * (
    1 + sum(sizes.values())
  )


def test_one_number_sets_all_sizes():
  config = ftw.FTWConfig().with_size(6)
  assert (config.core.hidden_size, config.core.num_latents) == (6, 6)
  assert config.torso == torsos.Torso('ftw', num_features=6, hidden_sizes=(6,))
  assert config.heads == heads.Heads((6,), (6,))


def test_the_papers_agent_is_a_configuration():
  paper = ftw.FTWConfig()
  memory = paper.core.memory
  assert (memory.num_slots, memory.word_size, memory.num_reads) == (450, 32, 4)
  assert paper.core.noise_scale == 1.0
  assert paper.priors.core.slow_period == hyperparameters.UniformInteger(5, 20)
  assert [task.name for task in paper.tasks] == [
    'latent_kl', 'pixel_control', 'reward_prediction',
  ]  # fmt: skip
  assert isinstance(paper.optimizer, optimization.RMSProp)
  assert (paper.loss_reduction, paper.steps_per_update) == ('sum', 1)
  learning_rate = paper.priors.learning_rate
  assert learning_rate == hyperparameters.LogUniform(1e-5, 5e-3)
  assert paper.make_internal_rewards_prior(13) == hyperparameters.Uniform(-1, 1)


def test_internal_rewards_start_from_the_papers_prior():
  config = ftw_batches.make_config(core=cores.LSTM(6), tasks=())
  network = config.make_network(ftw_batches.SPEC)
  core = config.make_learner_core(network, ftw_batches.SPEC)
  drawn = core.init(jax.random.PRNGKey(0)).internal_rewards
  assert drawn.shape == (ftw_batches.NUM_EVENTS,)
  assert np.all(np.abs(drawn) <= 1.0) and len(set(np.asarray(drawn))) == 3
  # Nobody could tell the sign of a scalar reward.
  scalar = fakes.make_image_spec((16, 16, 3))
  core = config.make_learner_core(config.make_network(scalar), scalar)
  assert core.init(jax.random.PRNGKey(0)).internal_rewards.tolist() == [1.0]


@pytest.mark.parametrize(
  ('make', 'message'),
  [
    (
      lambda: cores.RPTH(cores.GTrXL(8, window=0)),
      r'window \(0\) of GTrXL must be at least 1',
    ),
    (lambda: cores.RPTH('lstm'), r"level \('lstm'\) of RPTH must be a core"),
    (lambda: cores.RPTH(latent_size=0), r'latent_size \(0\) of RPTH must be'),
    (
      lambda: ftw_batches.make_config(
        tasks=(tasks.RewardPrediction(length=30),)
      ),
      r'length \(30\) of RewardPrediction must not be above sequence_length',
    ),
    (
      lambda: ftw_batches.make_config(discount=1.5),
      r'discount .* must lie in \[0, 1\]',
    ),
    (
      lambda: cores.RPTH(slow_period=hyperparameters.UniformInteger(0, 5)),
      r'slow_period .* must lie in \[1, ',
    ),
  ],
)
def test_bad_options_are_told_at_once(make, message):
  with pytest.raises(ValueError, match=message):
    make()


def test_a_period_range_upside_down_is_told_at_once():
  with pytest.raises(ValueError, match=r'low \(20\) must not be above high'):
    hyperparameters.UniformInteger(20, 5)


def test_frames_must_suit_pixel_control():
  large = tasks.PixelControl(crop_size=(80, 80))
  with pytest.raises(ValueError, match=r'crop_size \(80, 80\) must not be'):
    ftw_batches.make_config(tasks=(large,)).make_network(ftw_batches.SPEC)
  with pytest.raises(ValueError, match=r'entry \(None\) of PixelControl must'):
    ftw_batches.make_config().make_network(fakes.make_vector_spec())
