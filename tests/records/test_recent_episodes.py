"""Which episodes are the last ones."""

import numpy as np

from ftwax.records import recent_episodes


def test_they_are_those_of_the_last_tenth_within_bounds():
  rng = np.random.default_rng(0)
  lengths = rng.integers(1, 9, 3000)
  steps = np.cumsum(lengths).astype(np.float64)
  found = recent_episodes.count(steps, np.ones(3000))
  for row in (0, 10, 250, 700, 2999):
    own = np.sum(steps[: row + 1] > 0.9 * steps[row])
    assert found[row] == np.clip(own, 20, 100)
  assert found[700] not in (20, 100)


def test_rows_hold_several_episodes():
  found = recent_episodes.count(np.array([10.0, 95.0, 100.0]), np.full(3, 15.0))
  np.testing.assert_array_equal(found, [20, 20, 30])
