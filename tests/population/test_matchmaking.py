import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from ftwax.population import matchmaking, seating

RATINGS = jnp.array([1000.0, 1100.0, 900.0, 1300.0, 1050.0])


def _sample(key, ratings, num_players, num_games):
  """Returns the first game, [G, P], of many draws of seats."""
  num_members = len(ratings)
  teams = tuple(np.arange(num_players) * 2 // num_players)
  made = seating.make_seating(teams, num_members, num_members)
  density = matchmaking.log_density(ratings, 1 / 6)
  draw = jax.vmap(lambda key: seating.draw_seats(key, density, made)[0])
  return np.asarray(jax.jit(draw)(jax.random.split(key, num_games)))


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
  seats = _sample(key, RATINGS, 2, 20_000)
  assert (seats[:, 0] != seats[:, 1]).all()
  density = np.exp(matchmaking.log_density(RATINGS, 1 / 6))
  # First a member, uniformly, then the other one; in either order of seats.
  ordered = density / density.sum(axis=1, keepdims=True) / 5
  counts = np.zeros((5, 5))
  np.add.at(counts, (seats[:, 0], seats[:, 1]), 1)
  is_other = ~np.eye(5, dtype=bool)
  probabilities = 0.5 * (ordered + ordered.T)
  assert _chi_square_p(counts[is_other], probabilities[is_other]) > 1e-3
  # The test is sharp enough to tell a uniform draw.
  assert _chi_square_p(counts[is_other], np.ones(20)) < 1e-6


def test_sides_are_drawn_by_chance(key):
  seats = _sample(jax.random.fold_in(key, 1), RATINGS, 4, 20_000)
  for member in range(5):
    counts = np.array([(seats[:, seat] == member).sum() for seat in range(4)])
    assert _chi_square_p(counts, np.ones(4)) > 1e-3


def test_nobody_sits_twice_where_there_are_enough(key):
  seats = _sample(key, RATINGS, 4, 500)
  assert seats.shape == (500, 4) and seats.dtype == np.int32
  assert all(len(set(game)) == 4 for game in seats)
  seats = _sample(key, RATINGS[:4], 4, 50)
  assert all(set(game) == set(range(4)) for game in seats)


def test_one_plays_itself(key):
  np.testing.assert_array_equal(_sample(key, RATINGS[:1], 4, 3), 0)


@pytest.mark.parametrize('gap', [10.0, 1e4])
def test_no_gap_is_so_wide_that_nobody_plays(key, gap):
  seats = _sample(key, jnp.array([0.0, gap, 2 * gap]), 2, 500)
  assert set(np.bincount(seats.ravel(), minlength=3) > 0) == {True}
  assert (seats[:, 0] != seats[:, 1]).all()
