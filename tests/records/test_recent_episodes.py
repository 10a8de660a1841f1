"""Which episodes are the last ones."""

import numpy as np

from ftwax.records import recent_episodes


def test_they_are_those_of_the_last_tenth_within_bounds():
  rng = np.random.default_rng(0)
  lengths = rng.integers(1, 9, 3000)
  steps = np.cumsum(lengths).astype(np.float64)
  found = {}
  for row in (0, 10, 250, 700, 2999):
    before = steps[: row + 1]
    found[row] = recent_episodes.count(before, np.ones(row + 1))
    own = np.sum(before > 0.9 * steps[row])
    assert found[row] == np.clip(own, 20, 100)
  assert found[700] not in (20, 100)


def test_rows_hold_several_episodes():
  steps = np.array([10.0, 95.0, 100.0])
  assert recent_episodes.count(steps[:2], np.full(2, 15.0)) == 20
  assert recent_episodes.count(steps, np.full(3, 15.0)) == 30
