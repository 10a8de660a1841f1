"""Bandits: what they pay, and the players that they are compared with."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ftwax.environments import bandits, functional, trials


def test_arms_pay_with_their_probabilities_and_keep_them():
  environment = functional.vectorize(bandits.make(num_pulls=200), 16)
  state, timestep = environment.reset(jax.random.PRNGKey(0))
  probability = state.state.probability
  step = jax.jit(environment.step)
  action = jnp.arange(16, dtype=jnp.int32) % 2
  total = jnp.zeros(16)
  for pull in range(200):
    state, timestep = step(state, action)
    total += timestep.reward
    assert bool(jnp.all(timestep.last())) == (pull == 199)
    np.testing.assert_array_equal(
      timestep.observation[trials.EPISODE_START], np.ones(16)
    )
  np.testing.assert_array_equal(state.state.probability, probability)
  chance = np.asarray(probability)[np.arange(16), np.asarray(action)]
  deviation = np.sqrt(chance * (1 - chance) / 200)
  assert np.all(np.abs(total / 200 - chance) < 4 * deviation + 0.01)
  np.testing.assert_array_equal(timestep.discount, np.zeros(16))
  assert len(set(np.asarray(chance))) == 16


def test_best_player_by_hand():
  """After a win the arm pays two in three times; else the other is as good."""
  assert bandits.best_return(1) == 0.5
  np.testing.assert_allclose(bandits.best_return(2), 0.5 + 1 / 3 + 1 / 4)


def test_thompson_sampling_lies_between_chance_and_the_best():
  found = bandits.thompson_return(10, 20_000, seed=0)
  assert 5.5 < found < bandits.best_return(10) < 6.67  # Knowing the arms: 2/3.


@pytest.mark.parametrize(
  ('arguments', 'message'),
  [
    ({'num_pulls': 0}, r'num_pulls \(0\) must be at least 1'),
    ({'num_arms': 1}, r'num_arms \(1\) must be at least 2'),
  ],
)
def test_bad_sizes_are_refused(arguments, message):
  with pytest.raises(ValueError, match=message):
    bandits.make(**arguments)
