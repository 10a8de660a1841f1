import collections

import jax
import jax.numpy as jnp
import numpy as np
import population_fakes
import pytest

from ftwax.population import ratings as ratings_lib
from ftwax.population import state as state_lib


def test_members_begin_differently():
  population, _ = population_fakes.make_population(num_members=4)
  for leaf in (
    population.members.params['w'],
    population.members.key,
    population.members.hyperparameters.learning_rate,
    population.members.internal_rewards,
  ):
    assert len(np.unique(np.asarray(leaf), axis=0)) == 4
  np.testing.assert_array_equal(population.ratings, [1000.0] * 4)
  assert len(np.unique([*population.members.key, population.key], axis=0)) == 5


def test_games_are_rated_in_turn_and_counted():
  population, config = population_fakes.make_population(num_members=4)
  seats = jnp.array([[0, 1, 2, 3], [0, 0, 3, 1], [0, 2, 2, 1]])
  outcomes = jnp.array([[1.0, -1.0], [0.0, 0.0], [jnp.nan, 0.0]])
  is_played = jnp.array([True, True, False])
  teams = 0, 0, 1, 1
  after = jax.jit(state_lib.record_games, static_argnums=(4, 5))(
    population, seats, outcomes, is_played, teams, config
  )
  ratings = population.ratings
  for game in range(2):
    m = ratings_lib.multiplicities(seats[game], teams, 4)
    scores = ratings_lib.pair_scores(outcomes[game])
    ratings = ratings_lib.update(ratings, m, scores, config.k_factor)
  np.testing.assert_array_equal(after.ratings, ratings)
  np.testing.assert_array_equal(after.games, [2, 2, 1, 2])
  np.testing.assert_array_equal(after.games_since_exploitation, [2, 2, 1, 2])
  np.testing.assert_array_equal(after.decided_games, [1, 1, 1, 1])
  np.testing.assert_array_equal(after.payoff.games[0], [0, 2, 1, 3])


def test_the_last_returns_are_kept():
  population, _ = population_fakes.make_population(num_members=2, num_returns=3)
  np.testing.assert_array_equal(
    state_lib.mean_returns(population), [-np.inf] * 2
  )
  record = jax.jit(state_lib.record_returns)
  kept = [collections.deque(maxlen=3) for _ in range(2)]
  rng = np.random.default_rng(0)
  count = np.zeros((2,), int)
  # From no episode in a row to more than are kept.
  for _ in range(20):
    returns = rng.normal(size=(2, 5)).astype(np.float32)
    is_done = rng.random((2, 5)) < rng.choice([0.1, 0.9])
    population = record(population, jnp.asarray(returns), jnp.asarray(is_done))
    count += is_done.sum(axis=1)
    is_set = np.asarray(state_lib.has_return(population))
    for member in range(2):
      kept[member].extend(returns[member, is_done[member]])
      actual = np.asarray(population.returns)[member, is_set[member]]
      np.testing.assert_array_equal(np.sort(actual), np.sort(kept[member]))
      if kept[member]:
        mean = state_lib.mean_returns(population)[member]
        np.testing.assert_allclose(mean, np.mean(kept[member]), rtol=1e-5)
  np.testing.assert_array_equal(population.games, count)
  np.testing.assert_array_equal(population.games_since_exploitation, count)
  np.testing.assert_array_equal(population.decided_games, count)


def test_resume_with_another_size():
  population, config = population_fakes.make_population(num_members=4)
  state_lib.check_size(population, config)
  with pytest.raises(
    ValueError,
    match=r'population \(of 4 members\) must have num_members \(8\); resume',
  ):
    state_lib.check_size(population, config.replace(num_members=8))
  with pytest.raises(
    ValueError, match=r'population \(with 10 returns .* num_returns \(20\)'
  ):
    state_lib.check_size(population, config.replace(num_returns=20))


def test_members_without_an_axis_of_members():
  population, config = population_fakes.make_population(num_members=4)
  member = jax.tree.map(lambda leaf: leaf[0], population.members)
  with pytest.raises(ValueError, match=r'population \(of .*4 members\) must'):
    state_lib.from_members(member, population.key, config)


def test_log_values():
  population, _ = population_fakes.make_population(num_members=4)
  values = state_lib.log_values(population)
  np.testing.assert_array_equal(
    values['hyperparameters/slow_period'],
    population.members.hyperparameters.slow_period,
  )
  assert values['internal_rewards'].shape == (4, population_fakes.NUM_EVENTS)
  assert values['ratings'].shape == values['games'].shape == (4,)
