"""R2D2: its head, exploration, targets, and learning from a replay."""

import functools

import dm_env
import fakes
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import random_batches

from ftwax import hyperparameters, types
from ftwax.agents import r2d2
from ftwax.agents.actor_critic import (
  exploration,
  joint_loss,
  replays,
  target_parameters,
)
from ftwax.agents.actor_critic import learning as learning_lib
from ftwax.networks import cores, heads, torsos
from ftwax.replay import prioritized_replay, replay_options

LENGTH, BATCH_SIZE, NUM_ROWS = 4, 3, 2
SPEC = fakes.make_vector_spec()
REPLAY = replay_options.Prioritized(
  capacity=12, min_size=6, samples_per_insert=3.0
)
CONFIG = r2d2.R2D2Config(
  core=cores.GRU(8),
  torso=torsos.Torso(hidden_sizes=(4,)),
  sequence_length=LENGTH,
  batch_size=BATCH_SIZE,
  replay=REPLAY,
  learning_rate=0.01,
)


def _make(config=CONFIG, spec=SPEC):
  """Returns a network and its learner, whose update is compiled."""
  network = config.make_network(spec)
  learner = config.make_learner_core(network, spec)
  return network, learner._replace(update=jax.jit(learner.update))


def _trajectories(seed, network, start=0, spec=SPEC):
  """Trajectories of `NUM_ROWS` streams, whose seeds count their steps."""
  made = random_batches.make_trajectory(seed, spec, network, LENGTH, NUM_ROWS)
  steps = start + np.arange(LENGTH + 1, dtype=np.int32)
  rows = 1000 * np.arange(NUM_ROWS, dtype=np.int32)
  rng = np.random.default_rng(seed)
  state = jax.tree.map(
    lambda x: jnp.asarray(rng.normal(size=x.shape), jnp.float32),
    made.recurrent_state,
  )
  seed = jnp.asarray(steps[:, None] + rows)
  return made._replace(seed=seed, recurrent_state=state)


def test_dueling_values_are_a_value_and_centred_advantages():
  config = CONFIG.replace(core=cores.FeedForward(8))
  for dueling in (True, False):
    spec = fakes.add_action_mask(fakes.make_composite_spec())
    network, _ = _make(
      config.replace(heads=heads.ActionValues(dueling=dueling)), spec
    )
    rng = np.random.default_rng(0)
    params = jax.tree.map(
      lambda x, rng=rng: rng.normal(size=x.shape).astype(np.float32),
      jax.eval_shape(network.init, jax.random.PRNGKey(0)),
    )
    has_value = any('value_head' in name for name in params)
    assert has_value == dueling
    timestep = random_batches.make_timesteps(0, spec, (2,))
    ones = jax.tree.map(np.ones_like, timestep.observation[types.ACTION_MASK])
    observation = {**timestep.observation, types.ACTION_MASK: ones}
    previous = jax.tree.map(
      lambda part: np.zeros((2, *part.shape), part.dtype), spec.actions
    )
    output, _ = jax.jit(network.apply)(
      params,
      None,
      None,
      types.NetworkInput(observation, previous, np.zeros(2, np.float32)),
      network.initial_state(2),
    )
    parts = jax.tree.leaves(output.logits)
    means = [np.mean(part, axis=-1) for part in parts]
    if dueling:  # The mean of each part is the one value.
      for mean in means[1:]:
        np.testing.assert_allclose(mean, means[0], atol=1e-5)
    else:
      assert np.max(np.abs(means[1] - means[0])) > 1e-3
    largest = np.mean([np.max(part, axis=-1) for part in parts], axis=0)
    np.testing.assert_allclose(output.value, largest, rtol=1e-6)


def test_vectors_as_actions_are_refused_by_name():
  with pytest.raises(ValueError, match=r"must be discrete.*choose agent='ppo'"):
    CONFIG.make_network(fakes.make_continuous_spec())


def test_the_ladder_is_that_of_ape_x():
  ladder = exploration.EpsilonLadder(0.4, 7.0)
  expected = 0.4 ** (1 + 7 * np.arange(5) / 4)
  np.testing.assert_allclose(ladder.epsilons(5), expected, rtol=1e-5)
  np.testing.assert_allclose(ladder.epsilons(1), [0.4])


def test_rows_explore_as_often_as_their_epsilons_say():
  num_rows, num_draws = 3, 4000
  ladder = exploration.EpsilonLadder(0.5, 2.0)
  # The best action is forbidden where a mask says so.
  q = jnp.tile(jnp.asarray([0.0, 3.0, 1.0, -1e9]), (num_rows, 1))
  keys = jax.random.split(jax.random.PRNGKey(0), num_draws)
  chosen = np.asarray(jax.vmap(lambda key: ladder.choose(key, q))(keys))
  assert not np.any(chosen == 3)
  found = np.mean(chosen != 1, axis=0)
  # A random action is the greedy one in one of three cases.
  expected = np.asarray(ladder.epsilons(num_rows)) * 2 / 3
  deviation = np.sqrt(expected * (1 - expected) / num_draws)
  assert np.all(np.abs(found - expected) < 5 * deviation + 1e-6)


def test_actors_read_the_ladder_from_their_variables():
  network, learner = _make()
  actor = CONFIG.make_policy(network, SPEC)
  state = learner.init(jax.random.PRNGKey(0))
  timestep = random_batches.make_timesteps(0, SPEC, (64,))
  select = jax.jit(actor.select_action)
  evaluated = CONFIG.make_policy(network, SPEC, evaluation=True)
  greedy, _ = jax.jit(evaluated.select_action)(
    types.actor_variables(state),
    timestep,
    actor.init(jax.random.PRNGKey(1), 64),
  )
  differ = []
  for epsilon in (0.0, 1.0):
    values = hyperparameters.update(
      state.hyperparameters,
      {
        'exploration.epsilon': lambda x, e=epsilon: jnp.full_like(x, e),
        'exploration.exponent': jnp.zeros_like,
      },
    )
    action, _ = select(
      types.actor_variables(state._replace(hyperparameters=values)),
      timestep,
      actor.init(jax.random.PRNGKey(1), 64),
    )
    differ.append(float(np.mean(np.asarray(action) != np.asarray(greedy))))
  assert differ[0] == 0.0 and differ[1] > 0.3


def test_target_parameters_follow():
  old, new = {'w': jnp.zeros(2)}, {'w': jnp.ones(2)}
  periodic = target_parameters.PeriodicTarget(3)
  for steps, expected in ((2, 0.0), (3, 1.0), (4, 0.0), (6, 1.0)):
    found = periodic.update(old, new, jnp.int32(steps))
    np.testing.assert_array_equal(found['w'], expected)
  found = target_parameters.AverageTarget(0.1).update(old, new, jnp.int32(3))
  np.testing.assert_allclose(found['w'], 0.1)


@pytest.mark.parametrize(
  'target',
  [target_parameters.PeriodicTarget(2), target_parameters.AverageTarget(0.25)],
)
def test_an_update_moves_the_target_parameters_last(target):
  config = CONFIG.replace(target=target)
  network, learner = _make(config)
  state = learner.init(jax.random.PRNGKey(0))
  for step in (1, 2):
    batch = random_batches.make_batch(step, SPEC, network, config)
    before = state
    state, _ = learner.update(state, batch._replace(replay=None))
    expected = target.update(
      before.target_params, state.params, jnp.int32(step)
    )
    for found, wanted in zip(
      jax.tree.leaves(state.target_params),
      jax.tree.leaves(expected),
      strict=True,
    ):
      np.testing.assert_allclose(found, wanted, atol=1e-7)


def test_burn_in_gives_the_state_of_one_unroll():
  network, learner = _make()
  state = learner.init(jax.random.PRNGKey(0))
  first = _trajectories(0, network)
  second = _trajectories(1, network, start=LENGTH)
  # The second stream restarted in between.
  second = second._replace(seed=second.seed.at[:, 1].add(7))
  batch = types.LearnerBatch(second, burn_in=(first,))
  objective = joint_loss.Objective(network, CONFIG, SPEC.observations)
  found = jax.jit(functools.partial(joint_loss.refresh_state, objective))(
    state.params, state.hyperparameters, batch
  )
  assert found.burn_in == ()
  _, expected = jax.jit(network.unroll)(
    state.params,
    state.hyperparameters,
    first.seed[:-1],
    types.NetworkInput(
      first.timestep.observation[:-1],
      first.previous_action[:-1],
      first.timestep.reward[:-1],
    ),
    first.timestep.step_type[:-1] == dm_env.StepType.FIRST,
    first.recurrent_state,
  )
  for new, unrolled, stored in zip(
    jax.tree.leaves(found.trajectory.recurrent_state),
    jax.tree.leaves(expected),
    jax.tree.leaves(second.recurrent_state),
    strict=True,
  ):
    np.testing.assert_allclose(new[0], unrolled[0], atol=1e-6)
    np.testing.assert_array_equal(new[1], stored[1])
    assert np.all(np.asarray(stored[0]) != np.asarray(unrolled[0]))


def _make_replay(network, config=CONFIG):
  policy = config.make_policy(network, SPEC)
  return replays.Replays(config, SPEC, policy).make(NUM_ROWS)


def test_samples_come_with_what_was_before_them():
  network, _ = _make()
  replay = _make_replay(network)
  assert isinstance(replay, prioritized_replay.PrioritizedReplay)
  state, add = replay.init(jax.random.PRNGKey(0)), jax.jit(replay.add)
  for index in range(4):
    past = _trajectories(index, network, start=index * LENGTH)
    state = add(state, past, np.zeros((LENGTH, NUM_ROWS), np.int8))
  _, drawn = jax.jit(lambda state: replay.draw(state, REPLAY))(state)
  (before,) = drawn.batch.burn_in
  np.testing.assert_array_equal(before.seed[-1], drawn.batch.trajectory.seed[0])
  assert drawn.batch.trajectory.seed.shape == (LENGTH + 1, BATCH_SIZE)
  np.testing.assert_allclose(drawn.batch.weight, 1.0)  # All are new.


def test_learning_sets_the_priorities_of_what_it_sampled():
  network, learner = _make()
  replay = _make_replay(network)
  state = learner.init(jax.random.PRNGKey(0))
  replay_state = replay.init(jax.random.PRNGKey(1))
  learn = jax.jit(learning_lib.learn, static_argnums=(0, 1, 2))
  num_updates = []
  for index in range(4):
    rollout = _trajectories(index, network, start=index * LENGTH)
    before = state
    state, replay_state, (metrics, _) = learn(
      learner,
      replay,
      2,
      state,
      replay_state,
      jax.tree.map(lambda x: x[None], rollout),
    )
    assert int(state.steps) == 2 * (index + 1)
    stays = jax.tree.map(np.array_equal, state.params, before.params)
    num_updates.append(not all(jax.tree.leaves(stays)))
    assert metrics['loss'].shape == (2,)
    assert joint_loss.PRIORITIES not in metrics
    np.testing.assert_array_equal(
      metrics['replay_size'], NUM_ROWS * (index + 1)
    )
  # The minimum size is that of three rollouts.
  assert num_updates == [False, False, True, True]
  _, drawn = replay.draw(replay_state, REPLAY)
  _, metrics = learner.update(state, drawn.batch)
  priorities = np.asarray(metrics[joint_loss.PRIORITIES])
  assert priorities.shape == (BATCH_SIZE,) and np.all(priorities > 0)
  updated = replay.update_priorities(
    replay_state, drawn, 100.0 * metrics[joint_loss.PRIORITIES], REPLAY
  )
  # The exponent is a hyperparameter: members may have others.
  other = replay.update_priorities(
    replay_state,
    drawn,
    100.0 * metrics[joint_loss.PRIORITIES],
    REPLAY.replace(priority_exponent=0.1),
  )
  same = jax.tree.map(np.array_equal, other.replay, updated.replay)
  assert not all(jax.tree.leaves(same))
  # What has a hundred times the priority is what is sampled from now on.
  sampled = set(
    zip(*map(np.ravel, (drawn.env_id, drawn.position)), strict=True)
  )
  _, again = replay.draw(updated, REPLAY)
  found = set(zip(*map(np.ravel, (again.env_id, again.position)), strict=True))
  assert found <= sampled
  if len(sampled) < 6:
    assert not np.allclose(again.batch.weight, drawn.batch.weight)


def test_weights_scale_the_losses_of_their_sequences():
  network, learner = _make()
  state = learner.init(jax.random.PRNGKey(0))
  batch = random_batches.make_batch(0, SPEC, network, CONFIG)
  batch = batch._replace(replay=None, reward_prediction=None)
  weight = jnp.asarray([1.0, 0.0, 0.0])
  _, weighted = learner.update(state, batch._replace(weight=weight))
  _, whole = learner.update(state, batch)
  _, none = learner.update(state, batch._replace(weight=jnp.zeros(BATCH_SIZE)))
  assert none['loss'] == 0.0
  assert 0.0 < weighted['loss'] < whole['loss']
  # Priorities are of errors, whatever their weights.
  np.testing.assert_array_equal(
    weighted[joint_loss.PRIORITIES], whole[joint_loss.PRIORITIES]
  )
  assert not {'entropy', 'policy_loss'} & set(whole)


def test_updates_depend_on_every_hyperparameter(key):
  """But for those of the actor and of the replay's draws."""
  config = CONFIG.replace(target=target_parameters.AverageTarget(0.5))
  network, learner = _make(config)
  batch = random_batches.make_batch(0, SPEC, network, config)
  batch = batch._replace(replay=None)
  state = learner.init(key)

  @jax.jit
  def update_twice(values):
    changed = state._replace(hyperparameters=values)
    for _ in range(2):
      changed, metrics = learner.update(changed, batch)
    return changed.params, metrics[joint_loss.PRIORITIES]

  values = jax.tree.map(jnp.asarray, state.hyperparameters)
  expected = update_twice(values)

  def shrink(value):
    small = 1 if value.dtype == jnp.int32 else jnp.minimum(0.5 * value, 0.01)
    return jnp.asarray(small, value.dtype)

  without_effect = set()
  for name in hyperparameters.names(values):
    found = update_twice(hyperparameters.update(values, {name: shrink}))
    if all(jax.tree.leaves(jax.tree.map(np.array_equal, found, expected))):
      without_effect.add(name)
  assert without_effect == {
    'exploration.epsilon',
    'exploration.exponent',
    'replay.importance_exponent',
    'replay.priority_exponent',
  }


@pytest.mark.parametrize(
  ('options', 'message'),
  [
    (
      {'batch_size': 13},
      r'batch_size \(13\) must not be above capacity \(12\) of the replay',
    ),
    (
      {'heads': heads.Heads()},
      r'heads \(Heads.*\) must be a part for action values; choose'
      r' ActionValues',
    ),
    (
      {'replay': replay_options.Replay(64)},
      r'replay \(Replay.*\) must be a part for action values',
    ),
    ({'n_step': 0}, r'n_step \(0\) must lie in \[1, '),
    ({'tasks': ('off_policy',)}, r'tasks \(off_policy\) must not train'),
  ],
)
def test_bad_options_are_refused(options, message):
  with pytest.raises(ValueError, match=message):
    CONFIG.replace(**options)


@pytest.mark.parametrize(
  ('options', 'message'),
  [
    (
      {'min_size': 13},
      r'capacity \(12\) of Prioritized must not be below min_',
    ),
    ({'burn_in': 12}, r'capacity \(12\) of Prioritized must not be below burn'),
    ({'samples_per_insert': 0.0}, r'samples_per_insert \(0.0\) of Prioritized'),
  ],
)
def test_a_replay_in_which_nothing_could_be_learned_is_refused(
  options, message
):
  with pytest.raises(ValueError, match=message):
    REPLAY.replace(**options)


def test_a_replay_must_hold_a_sample_of_each_environment():
  config = CONFIG.replace(
    replay=REPLAY.replace(capacity=3, min_size=1), batch_size=2
  )
  network, _ = _make(config)
  with pytest.raises(ValueError, match=r'replay.capacity \(3\) must hold burn'):
    _make_replay(network, config)
