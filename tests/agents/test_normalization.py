"""Running statistics: what they are, and how learners and actors use them."""

import dm_env
import fakes
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import random_batches
from dm_env import specs

from ftwax import trees, types
from ftwax.agents import a2c, impala, ppo
from ftwax.agents.actor_critic import acting, batches, normalization
from ftwax.losses import policy_loss
from ftwax.networks import cores

SIZES = {
  'sequence_length': 5,
  'batch_size': 4,
  'core': cores.LSTM(4),
  'num_minibatches': 1,
}
ON = {'normalize_observations': True, 'normalize_returns': True}
SPEC = fakes.make_vector_spec()


def _make_timestep(observation, reward=None, discount=None):
  rows = jax.tree.leaves(observation)[0].shape[:2]
  return dm_env.TimeStep(
    step_type=jnp.full(rows, dm_env.StepType.MID, jnp.int32),
    reward=jnp.zeros(rows) if reward is None else jnp.asarray(reward),
    discount=jnp.ones(rows) if discount is None else jnp.asarray(discount),
    observation=jax.tree.map(jnp.asarray, observation),
  )


def _take_in(statistics, *observations):
  update = jax.jit(normalization.update_observations)
  for observation in observations:
    statistics = update(statistics, _make_timestep(observation))
  return statistics


def _start(*shape):
  return normalization.init_observations({'': shape})


# Observations.


def test_statistics_are_those_of_all_observations():
  rng = np.random.default_rng(0)
  seen = [
    (rng.normal(size=(rows + 1, 3, 2)) * [1e-3, 50.0] + [7.0, -1e4]).astype('f')
    for rows in (1, 20, 5, 40)
  ]
  statistics = _take_in(_start(2), *seen)
  # The last timestep of a trajectory is the first of the next.
  every = np.concatenate([x[:-1] for x in seen]).reshape(-1, 2).astype('d')
  assert int(statistics.num_timesteps) == len(every)
  np.testing.assert_allclose(statistics.mean[''], every.mean(0), rtol=1e-6)
  np.testing.assert_allclose(statistics.variance[''], every.var(0), rtol=1e-3)
  found = normalization.normalize(statistics, jnp.asarray(seen[-1]))
  expected = (seen[-1] - every.mean(0)) / np.sqrt(every.var(0) + 1e-8)
  np.testing.assert_allclose(found, expected, atol=2e-2)


def test_observations_are_clipped():
  statistics = _take_in(_start(1), np.array([[[0.0]], [[2.0]], [[9.0]]], 'f'))
  found = normalization.normalize(statistics, jnp.array([[3.0], [99], [-99]]))
  np.testing.assert_allclose(found[:, 0], [2.0, 10.0, -10.0], rtol=1e-5)


@pytest.mark.parametrize('bad', [np.nan, np.inf, 1e30])
def test_what_is_not_finite_leaves_statistics_as_they_are(bad):
  good = np.random.default_rng(0).normal(size=(4, 2, 3)).astype('f')
  before = _take_in(_start(3), good)
  worse = good.copy()
  worse[1, 1, 2] = bad
  after = _take_in(before, worse)
  jax.tree.map(np.testing.assert_array_equal, before, after)


@pytest.mark.parametrize('num_steps', [1, 7])
def test_constants_become_zero(num_steps):
  constant = np.full((num_steps + 1, 3, 2), [0.1, -12345.678], np.float32)
  statistics = _take_in(_start(2), constant, constant)
  np.testing.assert_array_equal(statistics.variance[''], 0.0)
  found = normalization.normalize(statistics, jnp.asarray(constant))
  np.testing.assert_array_equal(found, np.zeros_like(constant))


def test_one_sample_is_harmless():
  statistics = _take_in(_start(1), np.full((2, 1, 1), 5.0, np.float32))
  assert int(statistics.num_timesteps) == 1
  found = normalization.normalize(statistics, jnp.array([5.0, 5.5])[:, None])
  np.testing.assert_array_equal(found[:, 0], [0.0, 0.5])


def test_entries_other_than_vectors_of_floats_stay():
  image = specs.BoundedArray((16, 16, 3), np.float32, 0, 1)
  spec = {
    'frame': specs.BoundedArray((24, 24, 3), np.uint8, 0, 255),
    'image': image,
    'count': specs.DiscreteArray(5),
    'signal': specs.Array((8, 2), np.float32),
    'arm': {'angles': specs.Array((2,), np.float32)},
    types.ACTION_MASK: specs.BoundedArray((3,), np.float32, 0, 1),
  }
  entries = normalization.find_entries(spec, frame_entries=('signal',))
  assert entries == {'arm/angles': (2,)}
  assert 'signal' in normalization.find_entries(spec)
  statistics = normalization.init_observations(entries)
  observation = trees.zeros_like_spec(spec, (2, 1))
  observation['arm']['angles'] += 20.0
  found = normalization.normalize(statistics, observation)
  np.testing.assert_array_equal(found['arm']['angles'], np.full((2, 1, 2), 10))
  for name in set(spec) - {'arm'}:
    assert found[name] is observation[name]


def test_an_observation_without_such_entries_is_refused():
  spec = fakes.make_image_spec((24, 24, 3))
  config = impala.IMPALAConfig(normalize_observations=True, **SIZES)
  network = config.make_network(spec)
  with pytest.raises(ValueError, match=r'normalize_observations .* has none; '):
    config.make_learner_core(network, spec)


# Returns.


def _scale(rewards, discount=0.9, discounts=None, statistics=None):
  """Returns the scale after a batch of rewards [T, B]."""
  rewards = np.concatenate([np.zeros_like(rewards[:1]), rewards]).astype('f')
  timestep = _make_timestep(rewards, rewards, discounts)
  hypers = impala.IMPALAConfig().replace(discount=discount)
  statistics = normalization.update_returns(
    statistics or normalization.init_returns(),
    types.Trajectory(timestep, (), (), ()),
    hypers.sample_hyperparameters(jax.random.PRNGKey(0)),
  )
  return float(normalization.return_scale(statistics)), statistics


@pytest.mark.parametrize('length', [1, 3, 50])
def test_what_comes_after_a_trajectory_counts(length):
  scale, _ = _scale(np.full((length, 2), -2.0))
  np.testing.assert_allclose(scale, 20.0, rtol=1e-4)


def test_nothing_comes_after_an_end():
  discounts = np.ones((4, 1), np.float32)
  discounts[-1] = 0.0
  scale, _ = _scale(np.array([[0.0], [0.0], [1.0]]), 0.5, discounts)
  expected = np.sqrt((1.0 + 0.5**2 + 0.25**2) / 3)
  np.testing.assert_allclose(scale, expected, rtol=1e-5)


def test_the_scale_is_near_that_of_whole_returns():
  rng = np.random.default_rng(0)
  rewards = 0.5 + rng.normal(size=20_000)
  whole = np.zeros(len(rewards) + 1)
  for step in reversed(range(len(rewards))):
    whole[step] = rewards[step] + 0.9 * whole[step + 1]
  for length in (5, 20, 100):
    scale, _ = _scale(rewards.reshape(-1, length).T)
    np.testing.assert_allclose(scale, np.sqrt((whole**2).mean()), rtol=0.1)


def test_the_scale_follows_that_of_rewards():
  rewards = np.random.default_rng(0).normal(size=(10, 4))
  scale, statistics = _scale(rewards)
  np.testing.assert_allclose(_scale(1e3 * rewards)[0], 1e3 * scale, rtol=1e-5)
  # Means over all batches, and of the last thousand in the long run.
  later, _ = _scale(3.0 * rewards, statistics=statistics)
  np.testing.assert_allclose(later, np.sqrt(5.0) * scale, rtol=0.2)
  many = statistics._replace(num_transitions=jnp.float32(1e12))
  weight = (_scale(3.0 * rewards, statistics=many)[0] / scale) ** 2 - 1.0
  np.testing.assert_allclose(weight, 8e-3, rtol=0.1)


def test_rewards_that_tell_nothing_leave_the_scale_as_it_is():
  assert _scale(np.zeros((3, 2)))[0] == 1.0
  scale, statistics = _scale(np.ones((3, 2)))
  bad = np.array([[1.0], [np.nan], [1.0]])
  assert _scale(bad, statistics=statistics)[0] == scale
  assert _scale(bad)[0] == 1.0


def test_no_action_leaves_the_scale_as_it_is():
  timestep = _make_timestep(np.zeros((2, 1), 'f'))._replace(
    step_type=jnp.array([[types.LAST], [types.FIRST]], jnp.int32)
  )
  _, before = _scale(np.ones((3, 2)))
  after = normalization.update_returns(
    before,
    types.Trajectory(timestep, (), (), ()),
    impala.IMPALAConfig().sample_hyperparameters(jax.random.PRNGKey(0)),
  )
  jax.tree.map(np.testing.assert_array_equal, before, after)


# Learner and actor.


def _make(agent, config, spec=SPEC):
  network = config.make_network(spec)
  core = config.make_learner_core(network, spec)
  return network, config, core


def _make_state(core, batch=None):
  """Returns the first state, or that after a batch was taken in."""
  state = core.init(jax.random.PRNGKey(0))
  if batch is None:
    return state
  return state._replace(
    observation_statistics=normalization.update_observations(
      state.observation_statistics, batch.trajectory.timestep
    )
  )


def test_an_update_normalizes_all_it_learns_from_by_what_it_begins_with():
  spec = fakes.make_dict_spec()
  config = a2c.A2CConfig(tasks=('reward_prediction', 'value_replay'), **SIZES)
  network, _, off = _make(a2c, config, spec)
  _, _, on = _make(a2c, config.replace(normalize_observations=True), spec)
  earlier, batch = (
    random_batches.make_batch(seed, spec, network, config) for seed in (7, 0)
  )
  state = _make_state(on, earlier)
  statistics = state.observation_statistics
  after, metrics = jax.jit(on.update)(state, batch)
  by_hand = batches.with_normalized_observations(statistics, batch)
  moved = [
    np.abs(x['vector'] - y['vector']).max() > 0.1
    for x, y in (
      (batch.trajectory.timestep.observation,
       by_hand.trajectory.timestep.observation),
      (batch.replay.trajectory.timestep.observation,
       by_hand.replay.trajectory.timestep.observation),
      (batch.reward_prediction.observation,
       by_hand.reward_prediction.observation),
    )
  ]  # fmt: skip
  assert all(moved)
  plain = state._replace(observation_statistics=())
  expected, expected_metrics = jax.jit(off.update)(plain, by_hand)
  np.testing.assert_allclose(
    metrics['loss'], expected_metrics['loss'], rtol=1e-5
  )
  jax.tree.map(
    lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-6),
    after.params,
    expected.params,
  )
  # Its own batch is taken in for the next one, without past trajectories.
  every = np.concatenate(
    [
      np.asarray(x.trajectory.timestep.observation['vector'][:-1])
      for x in (earlier, batch)
    ]
  ).reshape(-1, 4)
  found = after.observation_statistics
  assert set(found.mean) == {'vector'}
  np.testing.assert_allclose(found.mean['vector'], every.mean(0), atol=1e-6)
  np.testing.assert_allclose(found.variance['vector'], every.var(0), rtol=1e-5)


def test_actors_normalize_as_learners_do():
  config = impala.IMPALAConfig(**SIZES | {'core': cores.FeedForward(4)})
  network, config, core = _make(impala, config.replace(**ON))
  batch = random_batches.make_batch(0, SPEC, network, config)
  state = _make_state(core, batch)
  actor = config.make_policy(network, SPEC, evaluation=True)
  timestep = random_batches.make_timesteps(3, SPEC, (4,))
  _, chosen = actor.select_action(
    types.actor_variables(state), timestep, actor.init(jax.random.PRNGKey(1), 4)
  )
  seen = normalization.with_normalized_observation(
    state.observation_statistics, timestep
  )
  output, _ = network.apply(
    state.params,
    state.hyperparameters,
    None,
    acting.make_network_input(seen, np.full(4, types.NO_ACTION, np.int32)),
    network.initial_state(4),
  )
  np.testing.assert_allclose(chosen.logits, output.logits, rtol=1e-6)
  assert np.abs(seen.observation - timestep.observation).max() > 0.1


def test_nothing_is_kept_where_nothing_is_normalized():
  _, _, core = _make(impala, impala.IMPALAConfig(**SIZES))
  state = _make_state(core)
  assert state.observation_statistics == state.return_statistics == ()
  assert types.actor_variables(state).observation_statistics == ()


@pytest.mark.parametrize(
  'agent',
  [
    pytest.param(a2c, marks=pytest.mark.slow),
    pytest.param(impala, marks=pytest.mark.ci),
    pytest.param(ppo, marks=pytest.mark.slow),
  ],
)
def test_the_value_loss_has_one_scale_for_members_of_any(agent):
  make_config = {a2c: a2c.A2CConfig, impala: impala.IMPALAConfig}.get(
    agent, ppo.PPOConfig
  )
  losses = {}
  for on in (False, True):
    config = make_config(normalize_returns=on, **SIZES)
    network, _, core = _make(agent, config)
    batch = random_batches.make_batch(0, SPEC, network, config)
    batch = types.LearnerBatch(batch.trajectory)
    states = jax.vmap(core.init)(jax.random.split(jax.random.PRNGKey(0), 2))
    states = jax.tree.map(lambda x: jnp.stack([x[0], x[0]]), states)
    states = states._replace(internal_rewards=jnp.array([[1e-2], [1e2]]))
    update = jax.jit(jax.vmap(core.update, in_axes=(0, None)))
    states, metrics = update(states, batch)
    losses[on] = np.asarray(metrics['value_loss'])
    if on:
      scales = np.asarray(metrics['return_scale'])
      np.testing.assert_allclose(scales[1], 1e4 * scales[0], rtol=1e-4)
      np.testing.assert_allclose(
        jax.vmap(normalization.return_scale)(states.return_statistics), scales
      )
  assert losses[False][1] > 100.0 * losses[False][0]
  assert 0.3 < losses[True][1] / losses[True][0] < 3.0


def test_a_reward_that_is_not_a_number_is_skipped():
  config = ppo.PPOConfig(**ON, **SIZES)
  network, _, core = _make(ppo, config)
  batch = random_batches.make_batch(0, SPEC, network, config)
  good = types.LearnerBatch(batch.trajectory)
  timestep = batch.trajectory.timestep
  timestep = timestep._replace(
    reward=timestep.reward.at[3, 1].set(jnp.nan),
    observation=timestep.observation.at[2, 1].set(jnp.nan),
  )
  bad = types.LearnerBatch(batch.trajectory._replace(timestep=timestep))
  update = jax.jit(core.update)
  before, _ = update(core.init(jax.random.PRNGKey(0)), good)
  after, _ = update(before, bad)
  assert int(after.skipped) == 1
  jax.tree.map(
    np.testing.assert_array_equal,
    (before.observation_statistics, before.return_statistics),
    (after.observation_statistics, after.return_statistics),
  )


def test_scaled_rewards_are_clipped_after_the_bound_on_rewards():
  rewards = np.array([[0.0], [1.0], [50.0], [-400.0]], 'f')[:, 0]
  timestep = _make_timestep(rewards[:, None], rewards[:, None])
  trajectory = types.Trajectory(
    jax.tree.map(lambda x: x[:, 0], timestep),
    jnp.zeros(4, jnp.int32),
    jnp.zeros((3, 2)),
    (),
  )
  output = types.NetworkOutput(jnp.zeros((4, 2)), jnp.zeros(4), (), {})
  config = impala.IMPALAConfig().replace(max_abs_reward=100.0)
  hypers = config.sample_hyperparameters(jax.random.PRNGKey(0))
  for scale, expected in (
    (None, [1.0, 50.0, -100.0]),
    (jnp.float32(2.0), [0.5, 10.0, -10.0]),
    (jnp.float32(50.0), [0.02, 1.0, -2.0]),
  ):
    found = policy_loss.make_transitions(output, trajectory, hypers, scale)
    np.testing.assert_allclose(found.r_t, expected)


# Advantages.


@pytest.mark.parametrize('weighed', [False, True])
def test_advantages_are_normalized_over_all_streams(weighed):
  rng = np.random.default_rng(0)
  raw = 3.0 + 2.0 * rng.normal(size=(6, 4))
  weights = rng.uniform(size=(6, 4)) if weighed else np.ones((6, 4))
  weights[2, 1] = 0.0
  found = jax.vmap(
    lambda x, w: policy_loss.normalize_advantages(x, w, policy_loss.STREAMS),
    in_axes=1,
    out_axes=1,
    axis_name=policy_loss.STREAMS,
  )(jnp.asarray(raw * weights, 'float32'), jnp.asarray(weights, 'float32'))
  mean = np.average(raw, weights=weights)
  centred = weights * (raw - mean)
  expected = centred / np.sqrt((centred**2).sum() / weights.sum())
  np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize(
  ('agent', 'make_config'),
  [
    (impala, impala.IMPALAConfig),
    pytest.param(a2c, a2c.A2CConfig, marks=pytest.mark.slow),
    pytest.param(ppo, ppo.PPOConfig, marks=pytest.mark.slow),
  ],
)
def test_the_option_makes_policy_losses_of_one_scale(agent, make_config):
  metrics = {}
  for on in (False, True):
    config = make_config(
      normalize_advantages=on,
      learning_rate=0.0,
      **SIZES | {'core': cores.FeedForward(4)},
    )
    network, _, core = _make(agent, config)
    batch = random_batches.make_batch(0, SPEC, network, config)
    batch = types.LearnerBatch(batch.trajectory)
    state = core.init(jax.random.PRNGKey(0))
    update = jax.jit(core.update)
    for scale in (1.0, 100.0):
      rewarded = state._replace(internal_rewards=jnp.array([scale]))
      _, metrics[on, scale] = update(rewarded, batch)
  losses = {key: abs(float(m['policy_loss'])) for key, m in metrics.items()}
  assert losses[False, 100.0] > 10.0 * losses[False, 1.0]
  assert losses[True, 100.0] < 3.0
  # The value's loss is as it was.
  for scale in (1.0, 100.0):
    np.testing.assert_allclose(
      metrics[True, scale]['value_loss'],
      metrics[False, scale]['value_loss'],
      rtol=1e-5,
    )
