"""Copying: what is shown, what is asked for, what is paid."""

import episodes
import numpy as np
import pytest

from ftwax.environments import copying

_LENGTH, _NUM_SYMBOLS = 5, 3


def _remember(seen):
  """The symbol that came as many steps after the first as this question."""
  shown = [int(np.argmax(x[:-1])) for x in seen if not x[-1]]
  return shown[len(seen) - len(shown) - 1] if seen[-1][-1] else 0


def _make_loop():
  return episodes.HostLoop(copying.make(_LENGTH, _NUM_SYMBOLS))


def test_who_remembers_earns_one():
  loop = _make_loop()
  first = set()
  for _ in range(30):
    seen, rewards = episodes.play(loop, _remember)
    length = len(seen) // 2
    assert length == _LENGTH
    first.add(int(np.argmax(seen[0][:-1])))
    np.testing.assert_array_equal(rewards[:length], 0.0)
    np.testing.assert_allclose(rewards[length:], 1.0 / length)
    np.testing.assert_array_equal(seen[:length, -1], 0.0)
    np.testing.assert_array_equal(seen[:length, :-1].sum(-1), 1.0)
    # A question says nothing of the answer.
    np.testing.assert_array_equal(seen[length:, :-1], 0.0)
    np.testing.assert_array_equal(seen[length:, -1], 1.0)
  assert first == set(range(_NUM_SYMBOLS))


def test_who_guesses_earns_a_share():
  loop, rng = _make_loop(), np.random.default_rng(0)
  returns = [
    episodes.play(loop, lambda _: rng.integers(_NUM_SYMBOLS))[1].sum()
    for _ in range(200)
  ]
  # The standard error is 0.015.
  np.testing.assert_allclose(np.mean(returns), 1 / _NUM_SYMBOLS, atol=0.06)


@pytest.mark.parametrize(
  ('options', 'message'),
  [
    ({'num_symbols': 1}, r'num_symbols \(1\) must be at least 2'),
    ({'length': 0}, r'length \(0\) must be at least 1'),
  ],
)
def test_bad_numbers_are_told_at_once(options, message):
  with pytest.raises(ValueError, match=message):
    copying.make(**options)
