"""Recall over a long delay: what is shown, what is asked for, what is paid."""

import episodes
import memory_tasks as tasks
import numpy as np
import pytest

_DELAY, _NUM_GOALS = 6, 3


def _make_loop():
  return episodes.HostLoop(tasks.long_recall(_DELAY, _NUM_GOALS, noise_size=2))


def test_who_remembers_earns_one():
  loop, goals = _make_loop(), set()
  for _ in range(20):
    seen, rewards = episodes.play(
      loop, lambda seen: int(np.argmax(seen[0][:_NUM_GOALS]))
    )
    goals.add(int(np.argmax(seen[0][:_NUM_GOALS])))
    seen = np.stack(seen)
    assert seen.shape == (_DELAY + 1, _NUM_GOALS + 1 + 2)
    np.testing.assert_array_equal(rewards, [0.0] * _DELAY + [1.0])
    # Later steps say nothing of the goal, and only the last one asks for it.
    assert seen[0, :_NUM_GOALS].sum() == 1.0
    np.testing.assert_array_equal(seen[1:, :_NUM_GOALS], 0.0)
    np.testing.assert_array_equal(seen[:, _NUM_GOALS], [0.0] * _DELAY + [1.0])
    assert len(np.unique(seen[:, _NUM_GOALS + 1 :])) == 2 * (_DELAY + 1)
  assert goals == set(range(_NUM_GOALS))


def test_who_is_wrong_earns_nothing():
  _, rewards = episodes.play(
    _make_loop(), lambda seen: (np.argmax(seen[0][:_NUM_GOALS]) + 1) % 3
  )
  assert not np.any(rewards)


@pytest.mark.parametrize(
  ('options', 'message'),
  [
    ({'delay': 0}, r'delay \(0\) must be at least 1'),
    ({'num_goals': 1}, r'num_goals \(1\) must be at least 2'),
    ({'noise_size': -1}, r'noise_size \(-1\) must be at least 0'),
  ],
)
def test_bad_options(options, message):
  with pytest.raises(ValueError, match=message):
    tasks.long_recall(**options)
