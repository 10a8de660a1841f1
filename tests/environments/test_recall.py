"""Recall: what is shown, what is asked for, what is paid."""

import episodes
import numpy as np
import pytest

from ftwax.environments import recall

_NUM_PAIRS, _NUM_VALUES = 5, 3


def _split(observation):
  key, value = observation[:_NUM_PAIRS], observation[_NUM_PAIRS:-1]
  return int(np.argmax(key)), value, bool(observation[-1])


def _remember(seen):
  """The value that was shown with the key of the last observation."""
  key, _, is_asked = _split(seen[-1])
  if not is_asked:
    return 0
  (value,) = [v for k, v, _ in map(_split, seen[:-1]) if k == key]
  return int(np.argmax(value))


def _make_loop():
  return episodes.HostLoop(recall.make(_NUM_PAIRS, _NUM_VALUES))


def test_who_remembers_earns_one():
  loop = _make_loop()
  for _ in range(30):
    seen, rewards = episodes.play(loop, _remember)
    num_shown = len(seen) // 2
    assert num_shown == _NUM_PAIRS
    np.testing.assert_array_equal(rewards[:num_shown], 0.0)
    np.testing.assert_allclose(rewards[num_shown:], 1.0 / num_shown)
    parts = [_split(x) for x in seen]
    assert not any(is_asked for _, _, is_asked in parts[:num_shown])
    assert all(is_asked for _, _, is_asked in parts[num_shown:])
    shown = [key for key, _, _ in parts[:num_shown]]
    asked = [key for key, _, _ in parts[num_shown:]]
    assert len(set(shown)) == num_shown and set(asked) == set(shown)
    assert not any(np.any(value) for _, value, _ in parts[num_shown:])


def test_who_guesses_earns_a_share():
  loop, rng = _make_loop(), np.random.default_rng(0)
  returns = [
    episodes.play(loop, lambda _: rng.integers(_NUM_VALUES))[1].sum()
    for _ in range(200)
  ]
  # The standard error is 0.015.
  np.testing.assert_allclose(np.mean(returns), 1 / _NUM_VALUES, atol=0.06)


def test_keys_are_asked_for_in_another_order():
  loop = _make_loop()
  orders = set()
  for _ in range(20):
    seen, _ = episodes.play(loop, _remember)
    keys = [_split(x)[0] for x in seen]
    shown, asked = keys[:_NUM_PAIRS], keys[_NUM_PAIRS:]
    orders.add(tuple(shown.index(key) for key in asked))
  assert len(orders) > 10


def test_random_keys_are_new_in_every_episode():
  made = recall.make(_NUM_PAIRS, _NUM_VALUES, key_size=7)
  loop = episodes.HostLoop(made)
  seen = [episodes.play(loop, lambda _: 0)[0][:, :7] for _ in range(2)]
  for keys in seen:
    np.testing.assert_allclose(np.linalg.norm(keys, axis=-1), 1.0, rtol=1e-5)
    # Each is asked for as it was shown.
    same = keys[:_NUM_PAIRS] @ keys[_NUM_PAIRS:].T > 1.0 - 1e-5
    np.testing.assert_array_equal(same.sum(axis=0), 1)
    np.testing.assert_array_equal(same.sum(axis=1), 1)
  assert np.max(seen[0] @ seen[1].T) < 1.0 - 1e-3


@pytest.mark.parametrize(
  ('options', 'message'),
  [
    ({'num_pairs': 1}, r'num_pairs \(1\) must be at least 2'),
    ({'num_values': 1}, r'num_values \(1\) must be at least 2'),
    ({'key_size': 1}, r'key_size \(1\) must be at least 2'),
  ],
)
def test_bad_numbers_are_told_at_once(options, message):
  with pytest.raises(ValueError, match=message):
    recall.make(**options)
