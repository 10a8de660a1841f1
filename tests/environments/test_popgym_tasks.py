"""Tasks of POPGym: what an agent with a perfect memory earns, and the cart."""

import dm_env
import episodes
import gymnasium
import jax
import jax.numpy as jnp
import memory_tasks as tasks
import numpy as np
import pytest


def _play(made, choose):
  """Returns what was seen at each action, the rewards, and the last step."""
  loop = episodes.HostLoop(made)
  timestep, seen, rewards = loop.reset(), [], []
  while timestep.step_type != dm_env.StepType.LAST:
    seen.append(timestep.observation)
    timestep = loop.step(choose(seen))
    rewards.append(float(timestep.reward))
  return np.stack(seen), np.array(rewards), timestep


def test_repeat_previous_pays_for_the_card_some_steps_ago():
  k, num_cards = 4, 52

  def remember(seen):
    return int(np.argmax(seen[max(len(seen) - k, 0)]))

  made = tasks.repeat_previous()
  seen, rewards, last = _play(made, remember)
  assert len(rewards) == num_cards - 1
  np.testing.assert_array_equal(rewards[: k - 1], 0.0)
  np.testing.assert_allclose(rewards[k - 1 :], 1 / (num_cards - k))
  np.testing.assert_allclose(rewards.sum(), 1.0, rtol=1e-5)
  assert last.discount == 1.0  # Truncated.
  # Thirteen cards of each suit, the last of which is not acted on.
  shown = seen.sum(0) + last.observation
  np.testing.assert_array_equal(shown, 13)
  _, wrong, _ = _play(made, lambda seen: (remember(seen) + 1) % 4)
  np.testing.assert_allclose(wrong.sum(), -1.0, rtol=1e-5)


def test_autoencode_pays_for_the_reverse_order():
  num_cards = 52

  def remember(seen):
    return int(np.argmax(seen[max(2 * num_cards - 1 - len(seen), 0)][:4]))

  def choose(seen):
    return remember(seen) if len(seen) >= num_cards else 0

  seen, rewards, last = _play(tasks.autoencode(), choose)
  assert len(rewards) == 2 * num_cards - 1
  np.testing.assert_array_equal(rewards[: num_cards - 1], 0.0)
  np.testing.assert_allclose(rewards[num_cards - 1 :], 1 / num_cards)
  assert last.discount == 0.0
  np.testing.assert_array_equal(seen[:num_cards, :4].sum(0), 13)
  # The flag falls with the last card; then the first suit stands for none.
  np.testing.assert_array_equal(seen[: num_cards - 1, 4], 1.0)
  np.testing.assert_array_equal(seen[num_cards - 1 :, 4], 0.0)
  np.testing.assert_array_equal(seen[num_cards:, 0], 1.0)


def test_count_recall_pays_for_the_number_of_cards_of_a_kind():
  def count(seen):
    return int(np.sum(np.stack(seen)[:, :2] @ seen[-1][2:]))

  seen, rewards, last = _play(tasks.count_recall(), count)
  np.testing.assert_allclose(rewards, np.full(51, 1 / 51), rtol=1e-6)
  assert last.discount == 0.0
  np.testing.assert_array_equal(seen.sum(0) + last.observation, 26)
  _, wrong, _ = _play(tasks.count_recall(), lambda seen: count(seen) - 1)
  np.testing.assert_allclose(wrong.sum(), -1.0, rtol=1e-5)


def test_concentration_pays_for_pairs():
  def turn_in_order(seen):
    return len(seen) - 1 if len(seen) <= 52 else 0

  seen, rewards, last = _play(tasks.concentration(), turn_in_order)
  assert len(rewards) == 104
  assert last.discount == 1.0  # Truncated.
  tables = seen.reshape(-1, 52, 3)
  np.testing.assert_array_equal(tables[0, :, 2], 1)
  kinds = [np.argmax(tables[i + 1, i]) for i in range(52)]
  is_pair = np.equal(kinds[::2], kinds[1::2])
  np.testing.assert_array_equal(rewards[:52:2], 0.0)
  np.testing.assert_allclose(
    rewards[1:52:2], np.where(is_pair, 1 / 26, -2 / 104), rtol=1e-6
  )
  np.testing.assert_array_equal(tables[52, :50, 2] == 0, is_pair.repeat(2)[:50])
  # The first card is up for good, or turned twice at a time.
  expected = np.full(52, -1 / 104) if is_pair[0] else [0, -2 / 104] * 26
  np.testing.assert_allclose(rewards[52:], expected, rtol=1e-6)


def test_concentration_ends_with_the_last_pair():
  made = tasks.concentration()
  state, timestep = made.reset(jax.random.PRNGKey(0))
  step, rewards = jax.jit(made.step), []
  for card in np.argsort(state.kinds):
    assert timestep.step_type != dm_env.StepType.LAST
    state, timestep = step(state, jnp.int32(card))
    rewards.append(timestep.reward)
  assert timestep.discount == 0.0
  np.testing.assert_allclose(rewards, [0, 1 / 26] * 26, rtol=1e-6)


def test_the_cart_moves_as_in_gymnasium():
  made = tasks.stateless_cart_pole(num_steps=30)
  other = gymnasium.make('CartPole-v1').unwrapped
  other.reset(seed=0)
  state, timestep = made.reset(jax.random.PRNGKey(0))
  other.state = np.float64(state.motion)
  step, rng = jax.jit(made.step), np.random.default_rng(0)
  terminated = False
  while timestep.step_type != dm_env.StepType.LAST:
    action = int(rng.integers(2))
    state, timestep = step(state, jnp.int32(action))
    observation, _, terminated, *_ = other.step(action)
    np.testing.assert_allclose(state.motion, observation, atol=1e-4)
    np.testing.assert_array_equal(timestep.observation, state.motion[::2])
    np.testing.assert_allclose(timestep.reward, 1 / 30, rtol=1e-6)
  assert timestep.discount == (0.0 if terminated else 1.0)


def test_a_cart_that_stays_up_is_stopped():
  def balance(seen):
    velocity = seen[-1] - seen[-2] if len(seen) > 1 else np.zeros(2)
    return int(seen[-1][1] + 20 * velocity[1] > 0)

  made = tasks.stateless_cart_pole(num_steps=50)
  _, rewards, last = _play(made, balance)
  assert len(rewards) == 50
  np.testing.assert_allclose(rewards.sum(), 1.0, rtol=1e-5)
  assert last.discount == 1.0


@pytest.mark.parametrize(
  ('make', 'options', 'message'),
  [
    (tasks.repeat_previous, {'k': 0}, r'k \(0\) must be at least 1'),
    (tasks.repeat_previous, {'k': 52}, r'k \(52\) must be below'),
    (
      tasks.count_recall,
      {'num_kinds': 3},
      r'num_kinds \(3\) of count_recall',
    ),
    (tasks.concentration, {'num_kinds': 4}, r'num_kinds \(4\) of concentra'),
    (tasks.autoencode, {'num_decks': 0}, r'num_decks \(0\) must be at'),
    (
      tasks.stateless_cart_pole,
      {'num_steps': 0},
      r'num_steps \(0\) must be at least 1',
    ),
  ],
)
def test_bad_options(make, options, message):
  with pytest.raises(ValueError, match=message):
    make(**options)
