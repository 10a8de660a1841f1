"""What a functional replay promises, apart from what the oracle tells."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import replay_steps

from ftwax.replay import functional

pytestmark = pytest.mark.slow

KEY = jax.random.PRNGKey(1)


def make_plain(**changes):
  return replay_steps.make(
    functional.ReplayConfig(
      **{'num_environments': 1, 'max_length': 8, **changes}
    )
  )


def equal(got, want):
  jax.tree.map(np.testing.assert_array_equal, got, want)


def frequencies(
  replay, state, hyperparameters=replay_steps.HYPERPARAMETERS, num_keys=3000
):
  """Returns how often each sequence was drawn, [E, positions]."""
  keys = jax.random.split(KEY, num_keys)
  sample = functools.partial(replay.sample, hyperparameters=hyperparameters)
  info = jax.jit(jax.vmap(sample, in_axes=(None, 0)))(state, keys).info
  assert np.all(info.is_valid)
  counts = np.zeros((int(info.env_id.max()) + 1, int(info.position.max()) + 1))
  np.add.at(counts, (info.env_id, info.position), 1)
  return counts


def assert_frequencies(counts, probabilities):
  """Chi-square: within three standard deviations."""
  counts, probabilities = counts.reshape(-1), np.asarray(probabilities).ravel()
  expected = counts.sum() * probabilities / probabilities.sum()
  np.testing.assert_array_equal(counts[expected == 0], 0)
  counts, expected = counts[expected > 0], expected[expected > 0]
  statistic = np.sum((counts - expected) ** 2 / expected)
  freedom = len(counts) - 1
  assert statistic < freedom + 3 * np.sqrt(2 * freedom)


@pytest.mark.parametrize('num_steps', [1, 2, 5, 6])
@pytest.mark.parametrize('num_before', [0, 4, 9])
def test_adding_a_sequence_is_adding_its_steps(num_before, num_steps):
  replay = replay_steps.make(num_earliest_frames_ignored=1)
  before = replay_steps.fill(replay, num_before, 2)
  batch = replay_steps.make_sequence(num_before, num_steps, 2)
  want = replay_steps.fill(replay, num_steps, 2, num_before, before)
  equal(replay.add_sequence(before, batch), want)
  # Of some environments, in another order.
  batch = jax.tree.map(lambda leaf: leaf[:, 1:], batch)
  want = before
  for t in range(num_steps):
    step = jax.tree.map(lambda leaf, t=t: leaf[t], batch)
    want = replay.add(want, step, jnp.array([0]))
  equal(replay.add_sequence(before, batch, jnp.array([0])), want)


def test_dtypes_and_structures_are_kept():
  spec = {
    'a': (np.zeros((2, 3), np.uint8), np.zeros((), bool)),
    'b': [np.zeros((), np.int8), np.zeros((4,), np.float16)],
    'c': jax.ShapeDtypeStruct((1,), jnp.bfloat16),
  }
  replay = functional.make_replay(
    spec, functional.ReplayConfig(num_environments=3, max_length=2)
  )
  step = jax.tree.map(lambda leaf: jnp.ones((3, *leaf.shape), leaf.dtype), spec)
  state = replay.add(replay.init(), step)
  sample = replay.sample(state, KEY)
  chex.assert_trees_all_equal_dtypes(sample.data, spec)
  chex.assert_tree_shape_prefix(sample.data, (1, 32))
  equal(replay.get_field(state, 'a.0', jnp.arange(3), 0), step['a'][0])
  equal(replay.get_field(state, '', 1, 0), jax.tree.map(lambda x: x[1], step))
  names = {'x': 'b.1', 'y': ('c',)}
  got = replay.get_field(
    state, names, jnp.arange(3)[:, None], jnp.zeros((1, 2), int)
  )
  chex.assert_shape(got['x'], (3, 2, 4))
  chex.assert_shape(got['y'][0], (3, 2, 1))


def test_environments_have_the_share_of_what_they_hold():
  replay = make_plain(
    num_environments=3, max_length=6, sequence_length=2, batch_size=8
  )
  state = replay.init()
  for num_steps, env_id in ((2, 0), (9, 1)):
    batch = replay_steps.make_sequence(0, num_steps)
    for t in range(num_steps):
      step = jax.tree.map(lambda leaf, t=t: leaf[t], batch)
      state = replay.add(state, step, jnp.array([env_id]))
  counts = frequencies(replay, state)
  # One sequence of the first, five of the second, none of the third.
  want = np.zeros((2, 8))
  want[0, 0] = want[1, 3:8] = 1
  assert_frequencies(counts, want)


@pytest.mark.parametrize('draw', ['independent', 'stratified'])
def test_priorities_are_frequencies(draw):
  replay = replay_steps.make(draw=draw, recent_data=False)
  state = replay_steps.fill(replay, 8, 2)
  ids, positions = jnp.array([0, 1, 1]), jnp.array([3, 2, 5])
  state = replay.update_priorities(
    state,
    ids,
    positions,
    jnp.array([4.0, 9.0, 0.0]),
    replay_steps.HYPERPARAMETERS,
  )
  want = np.zeros((2, 7))
  want[:, 2:] = 1
  want[ids, positions] = [4, 9, 0]
  # Those drawn on their own; rows of a stratified batch are more even.
  plain = replay_steps.HYPERPARAMETERS._replace(recent_data_ratio=0.0)
  assert_frequencies(frequencies(replay, state, plain), want)


def test_importance_weights_make_up_for_priorities():
  replay = replay_steps.make(recent_data=True, batch_size=8)
  state = replay_steps.fill(replay, 8, 2)
  state = replay.update_priorities(
    state, jnp.array([0, 1]), jnp.array([3, 2]), jnp.array([4.0, 9.0])
  )
  hp = replay_steps.HYPERPARAMETERS._replace(
    recent_data_ratio=0.4, recent_data_steps=1
  )
  keys = jax.random.split(KEY, 4000)
  sample = functools.partial(replay.sample, hyperparameters=hp)
  info = jax.jit(jax.vmap(sample, in_axes=(None, 0)))(state, keys).info
  # Recent rows included, the mean of x / (N P) is that of x over all.
  value = 10.0 * info.env_id + info.position
  mean = np.mean(value / (info.num_candidates[:, None] * info.probability))
  assert (
    abs(mean - np.mean([10.0 * e + p for e in (0, 1) for p in range(2, 7)]))
    < 0.2
  )


def test_share_of_recent_data():
  replay = make_plain(
    num_environments=2,
    max_length=100,
    batch_size=100,
    recent_data=True,
  )
  state = replay.add_sequence(
    replay.init(), replay_steps.make_sequence(0, 100, 2)
  )

  def count(ratio, steps):
    hp = replay_steps.HYPERPARAMETERS._replace(
      recent_data_ratio=ratio, recent_data_steps=steps
    )
    info = jax.jit(replay.sample)(state, KEY, hp).info
    return int(np.argmin(np.append(info.position >= 100 - steps, False)))

  # 15 rows come first; 100 * 0.15 is more than that in float32.
  assert count(0.15, 2) == 15
  assert count(0.151, 2) == 16
  assert count(0.07, 2) == 7
  assert count(1.0, 2) == 100
  # As many as asked for are recent anyway, a stratified batch begins anywhere.
  assert count(0.02, 2) < 4
  assert count(0.0, 2) < 4


def test_uniform_draws_without_replacement():
  replay = make_plain(draw='distinct', batch_size=5, sequence_length=3)
  state = replay_steps.fill(replay, 15)
  counts = frequencies(replay, state)
  want = np.zeros(13)
  want[7:] = 1
  assert_frequencies(counts, want)
  info = replay.sample(state, KEY).info
  assert len(set(np.asarray(info.position))) == 5


def test_weighted_draws_balance_rewards():
  replay = make_plain(sequence_length=3, batch_size=64, draw='independent')
  state = replay_steps.fill(replay, 13)
  # Reward prediction: the last reward of half of the sequences is above ten.
  last_reward = jnp.roll(state.ring.data['reward'], -2, axis=1)
  is_candidate = (last_reward >= 7) & (last_reward <= 12)
  is_high = last_reward > 10
  num_high = jnp.sum(is_high & is_candidate)
  num_low = jnp.sum(~is_high & is_candidate)
  assert (num_high, num_low) == (2, 4)
  # Slots that begin no sequence do not matter.
  weights = jnp.where(is_high, 1 / num_high, 1 / num_low)
  keys = jax.random.split(KEY, 100)
  sample = jax.vmap(replay.sample_weighted, in_axes=(None, 0, None))(
    state, keys, weights
  )
  reward = sample.data['reward']  # [keys, T, B]
  np.testing.assert_array_equal(reward[:, 2], reward[:, 0] + 2)
  assert np.all((reward[:, 0] >= 5) & (reward[:, 2] <= 12))
  assert abs(np.mean(reward[:, 2] > 10) - 0.5) < 0.03


def test_new_sequences_begin_with_the_largest_priority_learned():
  replay = make_plain(max_length=4, prioritized=True)

  def newest(state):
    slot = (state.ring.head[0] - 1) % 4
    return state.priorities.sampling[4 + slot]

  state = replay_steps.fill(replay, 4)
  assert newest(state) == 1
  alpha_one = functional.ReplayHyperparameters(priority_exponent=1.0)
  update = functools.partial(
    replay.update_priorities, hyperparameters=alpha_one
  )
  state = update(state, jnp.array([0]), jnp.array([2]), jnp.array([50.0]))
  state = replay_steps.fill(replay, 1, first=4, state=state)
  assert newest(state) == 50
  # The outlier is forgotten once it is overwritten, though what began with its
  # priority is still there.
  state = replay_steps.fill(replay, 2, first=5, state=state)
  assert newest(state) == 1
  # So it is once it is updated.
  state = update(state, jnp.array([0]), jnp.array([4]), jnp.array([60.0]))
  state = update(state, jnp.array([0]), jnp.array([4]), jnp.array([0.1]))
  state = replay_steps.fill(replay, 1, first=7, state=state)
  assert newest(state) == 1


def test_outdated_and_empty_updates_change_nothing():
  replay = replay_steps.make()
  state = replay_steps.fill(replay, 12, 2)
  # Overwritten; and the newest, with which no whole sequence begins.
  for positions in ([0, 5], [11, 11]):
    new = replay.update_priorities(
      state, jnp.array([0, 1]), jnp.array(positions), jnp.array([5.0, 6.0])
    )
    equal(new, state)
  none = jnp.zeros([0], jnp.int32)
  equal(replay.update_priorities(state, none, none, jnp.zeros([0])), state)


def test_of_repeated_updates_the_last_one_counts():
  replay = replay_steps.make()
  state = replay_steps.fill(replay, 8, 2)
  ids, positions = jnp.zeros([40], jnp.int32), jnp.full([40], 3)
  got = replay.update_priorities(state, ids, positions, jnp.arange(40.0))
  want = replay.update_priorities(
    state, ids[:1], positions[:1], jnp.array([39.0])
  )
  equal(got, want)


def test_cleared_replays_hold_nothing():
  replay = replay_steps.make()
  state = replay_steps.fill(replay, 8, 2)
  sample = replay.sample(state, KEY)
  state = replay.clear(state)
  assert replay.total_size(state) == 0
  assert not replay.can_sample(state)
  assert state.priorities.sampling[1] == 0
  assert not np.any(replay.gather_all(state).is_valid)
  # Positions go on, so that what was sampled before is known to be gone.
  state = replay_steps.fill(replay, 4, 2, first=8, state=state)
  np.testing.assert_array_equal(state.ring.position, 12)
  assert not np.any(
    replay.is_stored(state, sample.info.env_id, sample.info.position)
  )
  new = replay.update_priorities(
    state, sample.info.env_id, sample.info.position, jnp.full([4], 9.0)
  )
  equal(new, state)


def test_longer_and_shorter_sequences():
  short, long = (
    replay_steps.make(recent_data=False),
    replay_steps.make(sequence_length=4, recent_data=False),
  )
  state = replay_steps.fill(short, 8, 2)
  state = short.update_priorities(
    state,
    jnp.array([0]),
    jnp.array([3]),
    jnp.array([5.0]),
    replay_steps.HYPERPARAMETERS,
  )
  longer = long.reindex(state)
  # Sequences 2, 3 and 4 are whole; the priority of 3 is kept.
  want = np.zeros((2, 5))
  want[:, 2:] = 1
  want[0, 3] = 5
  assert_frequencies(frequencies(long, longer), want)
  np.testing.assert_allclose(longer.priorities.sampling[1], 10)
  # Those that are whole again begin with the largest priority learned.
  shorter = short.reindex(longer)
  np.testing.assert_allclose(shorter.priorities.sampling[1], 10 + 4 * 5)
  equal(shorter.ring, state.ring)
  plain = replay_steps.make(prioritized=False)
  equal(plain.reindex(plain.init()), plain.init())
