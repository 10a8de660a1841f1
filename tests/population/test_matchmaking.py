import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from ftwax.population import matchmaking
from ftwax.population import population_config as config_lib

RATINGS = jnp.array([1000.0, 1100.0, 900.0, 1300.0, 1050.0])


def _sample(key, ratings, config, num_games):
  """Returns the seats [G, 2, team_size] of many games."""
  sample = functools.partial(matchmaking.sample_match, config=config)
  keys = jax.random.split(key, num_games)
  return np.asarray(jax.jit(jax.vmap(sample, in_axes=(0, None)))(keys, ratings))


def _chi_square_p(counts, probabilities):
  expected = np.asarray(probabilities, np.float64)
  expected = expected / expected.sum() * counts.sum()
  return scipy.stats.chisquare(counts, expected).pvalue


def test_density_is_scipys_of_the_win_probability():
  density = np.exp(matchmaking.log_density(RATINGS, 1 / 6))
  gap = np.asarray(RATINGS, np.float64)[:, None] - np.asarray(RATINGS)
  win = 1 / (1 + 10 ** (-gap / 400))
  expected = scipy.stats.norm.pdf(win, loc=0.5, scale=1 / 6)
  expected /= scipy.stats.norm.pdf(0.5, loc=0.5, scale=1 / 6)
  np.fill_diagonal(expected, 0.0)
  np.testing.assert_allclose(density, expected, atol=1e-6)


def test_pairs_are_drawn_by_the_density(key):
  config = config_lib.PopulationConfig(5, num_players=2)
  seats = _sample(key, RATINGS, config, 20_000)[:, :, 0]
  assert (seats[:, 0] != seats[:, 1]).all()
  density = np.exp(matchmaking.log_density(RATINGS, 1 / 6))
  # First a player, uniformly, then the other one; in either order of seats.
  ordered = density / density.sum(axis=1, keepdims=True) / 5
  counts = np.zeros((5, 5))
  np.add.at(counts, (seats[:, 0], seats[:, 1]), 1)
  is_other = ~np.eye(5, dtype=bool)
  probabilities = 0.5 * (ordered + ordered.T)
  assert _chi_square_p(counts[is_other], probabilities[is_other]) > 1e-3
  # The test is sharp enough to tell a uniform draw.
  assert _chi_square_p(counts[is_other], np.ones(20)) < 1e-6


def test_sides_are_drawn_by_chance(key):
  config = config_lib.PopulationConfig(5, num_players=4)
  seats = _sample(key, RATINGS, config, 4000).reshape(-1, 4)
  for player in range(5):
    counts = np.array([(seats[:, seat] == player).sum() for seat in range(4)])
    assert _chi_square_p(counts, np.ones(4)) > 1e-3


def test_nobody_sits_twice_where_there_are_enough(key):
  config = config_lib.PopulationConfig(5, num_players=4)
  seats = _sample(key, RATINGS, config, 500)
  assert seats.shape == (500, 2, 2)
  assert seats.dtype == np.int32
  assert all(len(set(game)) == 4 for game in seats.reshape(-1, 4))
  config = config_lib.PopulationConfig(4, num_players=4)
  seats = _sample(key, RATINGS[:4], config, 50)
  assert all(set(game) == set(range(4)) for game in seats.reshape(-1, 4))


def test_two_play_four_seats_with_the_first_against_copies(key):
  config = config_lib.PopulationConfig(2, num_players=4)
  seats = _sample(key, RATINGS[:2], config, 200).reshape(-1, 4)
  counts = np.stack([(seats == player).sum(axis=1) for player in range(2)])
  assert set(counts.min(axis=0)) == {1}
  assert set(counts[0]) == {1, 3}


def test_one_plays_itself(key):
  config = config_lib.PopulationConfig(1, num_players=4, exploits=False)
  match = matchmaking.sample_match(key, RATINGS[:1], config)
  np.testing.assert_array_equal(match, [[0, 0], [0, 0]])


def test_single_agent_tasks_have_one_seat(key):
  config = config_lib.PopulationConfig(5, num_players=1)
  seats = _sample(key, RATINGS, config, 1000)
  assert seats.shape == (1000, 1, 1)
  counts = np.bincount(seats.ravel(), minlength=5)
  assert _chi_square_p(counts, np.ones(5)) > 1e-3


@pytest.mark.parametrize('gap', [10.0, 1e4])
def test_no_gap_is_so_wide_that_nobody_plays(key, gap):
  config = config_lib.PopulationConfig(3, num_players=2)
  seats = _sample(key, jnp.array([0.0, gap, 2 * gap]), config, 500)[:, :, 0]
  assert set(np.bincount(seats.ravel(), minlength=3) > 0) == {True}
  assert (seats[:, 0] != seats[:, 1]).all()
