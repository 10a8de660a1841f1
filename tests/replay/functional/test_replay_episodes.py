"""Episodes and their returns: golden numbers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import replay_steps

from ftwax.replay import functional

DEFAULT = -7.0
FIRST, MID, LAST = 0, 1, 2


def make(max_length=20, spec=replay_steps.SPEC, **changes):
  config = functional.ReplayConfig(
    num_environments=1,
    max_length=max_length,
    episodes=True,
    record_returns=True,
  )
  return functional.make_replay(spec, config.replace(**changes))


def returns_of(replay, steps, discount=0.5, **changes):
  """Adds (step_type, reward, discount) and returns what is recorded, [L]."""
  hyperparameters = functional.ReplayHyperparameters(
    discount=discount, default_return=DEFAULT, **changes
  )
  step_type, reward, discounts = zip(*steps, strict=True)
  batch = {
    'image': np.zeros((len(steps), 1, 2), np.uint8),
    'step_type': np.array(step_type, np.int32)[:, None],
    'reward': np.array(reward, np.float32)[:, None],
    'discount': np.array(discounts, np.float32)[:, None],
  }
  state = replay.init()
  for t in range(len(steps)):
    step = {name: leaf[t] for name, leaf in batch.items()}
    state = replay.add(state, step, None, hyperparameters)
  # Sequences of one step are drawn from all that is stored.
  steps = replay.gather_all(state)
  slot = (state.ring.head - steps.is_valid.sum()) % state.ring.data[
    'reward'
  ].shape[1]
  value = np.roll(state.returns.value[0], -int(slot[0]), axis=0)
  return value[: int(steps.is_valid.sum())]


def test_returns_come_when_the_episode_ends():
  steps = [(FIRST, 0, 1), (MID, 1, 1), (MID, 2, 1)]
  np.testing.assert_array_equal(returns_of(make(), steps), [DEFAULT] * 3)
  steps += [(LAST, 4, 0), (FIRST, 9, 1)]
  # 1 + 0.5 (2 + 0.5 * 4), 2 + 0.5 * 4, 4; none for the last step.
  np.testing.assert_array_equal(
    returns_of(make(), steps), [3, 4, 4, DEFAULT, DEFAULT]
  )


def test_rewards_are_clipped_and_environments_discount():
  steps = [(FIRST, 0, 1), (MID, -9, 0.5), (MID, 9, 1), (LAST, 2, 0)]
  got = returns_of(make(), steps, min_reward=-1.0, max_reward=3.0)
  # -1 + 0.5 * 0.5 * (3 + 0.5 * 2), 3 + 0.5 * 2, 2.
  np.testing.assert_array_equal(got, [0, 4, 2, DEFAULT])


def test_episodes_cut_short_have_no_return_unless_asked_for():
  steps = [(FIRST, 0, 1), (MID, 1, 1), (LAST, 2, 1), (FIRST, 0, 1)]
  np.testing.assert_array_equal(returns_of(make(), steps), [DEFAULT] * 4)
  np.testing.assert_array_equal(
    returns_of(make(return_at_truncation=True), steps),
    [2, 2, DEFAULT, DEFAULT],
  )


def test_lives_end_returns_and_not_episodes():
  steps = [(FIRST, 0, 1), (MID, 1, 1), (MID, 2, 0), (MID, 4, 1), (LAST, 8, 0)]
  np.testing.assert_array_equal(
    returns_of(make(), steps[:4]), [2, 2, DEFAULT, DEFAULT]
  )
  # The life's last step earns what the next life does: 4 + 0.5 * 8.
  np.testing.assert_array_equal(
    returns_of(make(), steps), [2, 2, 8, 8, DEFAULT]
  )


def test_nothing_leaks_out_of_the_next_episode():
  # A FIRST step that carries a discount of zero and a reward.
  steps = [(FIRST, 0, 1), (LAST, 1, 1), (FIRST, 100, 0), (LAST, 3, 0)]
  np.testing.assert_array_equal(
    returns_of(make(), steps), [DEFAULT, DEFAULT, 3, DEFAULT]
  )


@pytest.mark.parametrize('discount', [0.0, 0.9, 1.0])
def test_long_episodes_have_finite_returns(discount):
  num_steps = 1500
  replay = make(max_length=1200)
  batch = {
    'image': np.zeros((num_steps, 1, 2), np.uint8),
    'step_type': np.full((num_steps, 1), MID, np.int32),
    'reward': np.ones((num_steps, 1), np.float32),
    'discount': np.ones((num_steps, 1), np.float32),
  }
  batch['discount'][-1] = 0
  batch['step_type'][-1] = LAST
  hp = functional.ReplayHyperparameters(discount=discount)
  state = replay.init()
  for part in (slice(0, 700), slice(700, num_steps)):
    steps = {name: leaf[part] for name, leaf in batch.items()}
    state = replay.add_sequence(state, steps, None, hp)
  # Position 300, the oldest, has 1199 rewards to come.
  oldest = int(state.ring.head[0])
  got = np.roll(state.returns.value[0], -oldest)
  left = np.arange(1199, 0, -1)
  want = left if discount == 1 else (1 - discount**left) / (1 - discount)
  np.testing.assert_allclose(got[:-1], want, rtol=1e-4)
  assert got[-1] == hp.default_return
  # The episode's beginning is known though it was overwritten.
  position = jnp.array([300, 1499])
  np.testing.assert_array_equal(
    replay.episode_begin_position(state, 0, position), 0
  )
  np.testing.assert_array_equal(
    replay.steps_to_episode_end(state, 0, position), [1199, 0]
  )


def test_rewards_of_several_parts():
  spec = {**replay_steps.SPEC, 'reward': np.zeros((2,), np.float32)}
  replay = make(spec=spec, max_length=4)
  state = replay.init()
  for t, (kind, discount) in enumerate([(FIRST, 1), (MID, 1), (LAST, 0)]):
    step = {
      'image': np.zeros((1, 2), np.uint8),
      'step_type': np.array([kind], np.int32),
      'reward': np.array([[t, 10 * t]], np.float32),
      'discount': np.array([discount], np.float32),
    }
    hp = functional.ReplayHyperparameters(discount=0.5, default_return=DEFAULT)
    state = replay.add(state, step, None, hp)
  np.testing.assert_array_equal(
    state.returns.value[0, :3], [[2, 20], [2, 20], [DEFAULT, DEFAULT]]
  )
  sample = replay.sample(state, jax.random.PRNGKey(0))
  assert sample.info.discounted_return.shape == (32, 2)


def test_streams_that_begin_in_the_middle():
  replay = make()
  state = replay.init()
  for t in range(1, 3):
    state = replay.add(state, replay_steps.make_step(t))
  positions = jnp.arange(2)
  np.testing.assert_array_equal(
    replay.episode_begin_position(state, 0, positions), 0
  )
  np.testing.assert_array_equal(
    replay.steps_to_episode_end(state, 0, positions), [1, 0]
  )
  # After clearing, what comes is another episode.
  state = replay.clear(state)
  state = replay.add(state, replay_steps.make_step(3))
  assert replay.episode_begin_position(state, 0, 2) == 2


def test_ending_episodes_that_go_on_elsewhere():
  replay = make()
  state = replay_steps.fill(replay, 6)
  other = replay.end_episodes(state)
  kinds = replay.get_field(other, 'step_type', 0, jnp.arange(6))
  np.testing.assert_array_equal(kinds, [0, 1, 1, 2, 0, 2])
  np.testing.assert_array_equal(
    other.ring.data['discount'], state.ring.data['discount']
  )
  # What comes next, a MID here, begins an episode.
  other = replay.add(other, replay_steps.make_step(1))
  np.testing.assert_array_equal(
    replay.episode_begin_position(other, 0, jnp.array([5, 6])), [4, 6]
  )
  # An empty environment stays as it is.
  empty = replay.end_episodes(replay.init())
  np.testing.assert_array_equal(empty.ring.data['step_type'], 0)


def test_fields_of_nested_steps():
  spec = {'timestep': (replay_steps.SPEC, np.zeros((), np.int8))}
  replay = make(
    spec=spec,
    step_type_field='timestep.0.step_type',
    reward_field='timestep.0.reward',
    discount_field='timestep.0.discount',
  )
  state = replay.init()
  for t in range(4):
    step = replay_steps.make_step(t)
    step = {'timestep': (step, np.zeros((1,), np.int8))}
    hp = functional.ReplayHyperparameters(discount=1.0)
    state = replay.add(state, step, None, hp)
  np.testing.assert_array_equal(state.returns.value[0, :3], [6, 5, 3])
  state = replay.end_episodes(state)
  assert state.ring.data['timestep'][0]['step_type'][0, 3] == LAST
