import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
import scipy.stats

from ftwax.population import ratings as ratings_lib
from ftwax.population import win_rates

STRENGTHS = np.array([1000.0, 1150.0, 900.0, 1300.0, 1050.0])


def _play(key, strengths, num_games, team_size=2):
  """Returns multiplicities and scores of games between random teams."""
  teams_key, outcome_key = jax.random.split(key)
  seats = jax.vmap(lambda key: jax.random.permutation(key, len(strengths)))(
    jax.random.split(teams_key, num_games)
  )
  teams = (0,) * team_size + (1,) * team_size
  m = ratings_lib.multiplicities(seats[:, : len(teams)], teams, len(strengths))
  p = ratings_lib.win_probability(jnp.float32(strengths), m)
  return m, jax.random.bernoulli(outcome_key, p).astype(jnp.float32)


def _fit(multiplicities, scores):
  """Fits ratings to games of two teams."""
  return ratings_lib.fit(multiplicities[:, 0], scores[:, 0])


def test_multiplicities():
  seats = jnp.array([[0, 2, 1, 2], [3, 0, 0, 1]])
  np.testing.assert_array_equal(
    ratings_lib.multiplicities(seats, (0, 1, 0, 1), 4)[:, 0],
    [[1, 1, -2, 0], [0, -1, 0, 1]],
  )


def test_a_larger_team_counts_as_much_as_a_smaller_one():
  m = ratings_lib.multiplicities(jnp.array([0, 1, 1, 2]), (0, 0, 0, 1), 3)
  np.testing.assert_allclose(m, [[1 / 3, 2 / 3, -1]], rtol=1e-6)
  even = ratings_lib.win_probability(jnp.full((3,), 1000.0), m)
  np.testing.assert_allclose(even, [0.5], atol=1e-6)


def test_a_game_of_many_teams_is_one_of_each_pair():
  teams = (0, 1, 2)
  m = ratings_lib.multiplicities(jnp.array([2, 0, 1]), teams, 3)
  np.testing.assert_array_equal(m, [[-1, 0, 1], [0, -1, 1], [1, -1, 0]])
  scores = ratings_lib.pair_scores(jnp.array([5.0, 1.5, 1.5]))
  np.testing.assert_array_equal(scores, [1.0, 1.0, 0.5])
  # The first beats two equals, half of 8 points at a time.
  ratings = ratings_lib.update(jnp.full((3,), 1000.0), m, scores, 8.0)
  np.testing.assert_array_equal(ratings, [996.0, 996.0, 1008.0])


@pytest.mark.parametrize('teams', [(0, 0, 0, 1), (0, 1, 2, 3)])
def test_strengths_are_found_in_games_of_other_teams(teams):
  rng = np.random.default_rng(0)
  seats = np.stack([rng.permutation(5)[:4] for _ in range(4000)])
  m = ratings_lib.multiplicities(jnp.asarray(seats), teams, 5)
  p = ratings_lib.win_probability(jnp.float32(STRENGTHS), m)
  scores = (rng.random(p.shape) < p).astype(np.float32)
  fit = ratings_lib.fit(m.reshape(-1, 5), jnp.asarray(scores).reshape(-1))
  error = np.abs(fit.ratings - STRENGTHS)[1:]
  assert (error < 3.0 * fit.standard_errors[1:]).all()
  ratings = ratings_lib.update_in_turn(
    jnp.full((5,), 1000.0), m, jnp.asarray(scores), jnp.full((4000,), 4.0)
  )
  assert scipy.stats.spearmanr(ratings, STRENGTHS).statistic >= 0.9 - 1e-6


def test_win_probability_against_the_formula():
  ratings = np.array([1000.0, 1200.0, 900.0, 1100.0], np.float32)
  m = np.array([[1, 1, -2, 0], [0, -1, 0, 1], [0, 0, 0, 0]], np.float32)
  expected = 1 / (1 + 10 ** (-(m.astype(np.float64) @ ratings) / 400))
  actual = ratings_lib.win_probability(jnp.asarray(ratings), jnp.asarray(m))
  np.testing.assert_allclose(actual, expected, rtol=1e-5)


def test_two_copies_each_need_half_the_gap():
  # 400 log10(7 / 3) / 2 points make 70% between teams of two.
  ratings = jnp.array([0.0, 73.5954])
  pairs = ratings_lib.pairwise_win_probability(ratings, team_size=2)
  np.testing.assert_allclose(pairs, [[0.5, 0.3], [0.7, 0.5]], atol=1e-5)
  alone = ratings_lib.pairwise_win_probability(2 * ratings)
  np.testing.assert_allclose(alone, pairs, atol=1e-6)


def test_update_of_one_game():
  ratings = jnp.array([1000.0, 1000.0, 1000.0])
  m = jnp.array([[2.0, -1.0, -1.0]])
  win = ratings_lib.update(ratings, m, jnp.ones(1), 16.0)
  np.testing.assert_array_equal(win, [1016.0, 992.0, 992.0])
  draw = ratings_lib.update(ratings, m, jnp.full(1, ratings_lib.DRAW), 16.0)
  np.testing.assert_array_equal(draw, ratings)


def test_update_is_the_gradient_of_the_log_likelihood():
  ratings = jnp.array([1000.0, 1100.0, 950.0])
  m = jnp.array([1.0, -2.0, 1.0])

  def log_likelihood(ratings):
    p = ratings_lib.win_probability(ratings, m)
    return 0.3 * jnp.log(p) + 0.7 * jnp.log(1 - p)

  gradient = jax.grad(log_likelihood)(ratings) * 400 / np.log(10)
  step = ratings_lib.update(ratings, m[None], jnp.full(1, 0.3), 10.0) - ratings
  np.testing.assert_allclose(step, 10.0 * gradient, atol=5e-3)


def test_the_sum_is_kept_to_the_last_bit(key):
  keys = jax.random.split(key, 3)
  # Far from each other, so that points move by all kinds of amounts.
  strengths = np.linspace(0.0, 3000.0, 9)
  m, outcomes = _play(keys[0], strengths, 5000)
  ratings = jnp.float32(np.arange(9) * 333.0)
  k_factors = jax.random.uniform(keys[1], (5000,), maxval=40.0)
  after = jax.jit(ratings_lib.update_in_turn)(ratings, m, outcomes, k_factors)
  assert np.abs(after - ratings).max() > 50.0
  total = np.sum(np.asarray(after, np.float64))
  assert abs(total - np.sum(np.asarray(ratings, np.float64))) <= 1e-6


@pytest.mark.parametrize('seed', range(3))
def test_online_ratings_rank_players_of_known_strength(seed):
  m, outcomes = _play(jax.random.PRNGKey(seed), STRENGTHS, 2000)
  ratings = jnp.full((5,), 1000.0)
  k_factors = jnp.full((2000,), 4.0)
  ratings = ratings_lib.update_in_turn(ratings, m, outcomes, k_factors)
  assert scipy.stats.spearmanr(ratings, STRENGTHS).statistic >= 0.9 - 1e-6


@pytest.mark.parametrize('seed', range(3))
def test_the_fit_recovers_strengths_within_its_errors(seed):
  m, outcomes = _play(jax.random.PRNGKey(seed), STRENGTHS, 2000)
  fit = jax.jit(_fit)(m, outcomes)
  assert fit.ratings[0] == 1000.0
  assert fit.standard_errors[0] == 0.0
  # 2,000 games tell each strength to about 13 to 15 points.
  assert np.all(fit.standard_errors[1:] < 17.0)
  error = np.abs(fit.ratings - STRENGTHS)[1:]
  assert np.all(error < 3.0 * fit.standard_errors[1:])
  np.testing.assert_array_equal(np.argsort(fit.ratings), np.argsort(STRENGTHS))


def test_the_fit_is_where_scipy_finds_the_maximum(key):
  m, outcomes = _play(key, STRENGTHS, 300)
  m, outcomes = np.asarray(m[:, 0], np.float64), np.array(outcomes[:, 0])
  outcomes[::7] = 0.5

  def loss(free):
    # Players 0, 1, 3, 4; player 2 is the anchor.
    x = np.insert(free, 2, 0.0)
    logits = m @ x
    likelihood = outcomes * logits - np.logaddexp(0.0, logits)
    return -likelihood.sum() + 0.5 * np.sum((x * 400 / np.log(10) / 800) ** 2)

  best = scipy.optimize.minimize(loss, np.zeros(4), tol=1e-10)
  expected = 500.0 + np.insert(best.x, 2, 0.0) * 400 / np.log(10)
  fit = ratings_lib.fit(
    jnp.float32(m), jnp.float32(outcomes), 2, 500.0, prior_deviation=800.0
  )
  np.testing.assert_allclose(fit.ratings, expected, atol=0.1)


def test_standard_errors_are_those_of_repeated_tournaments():
  @jax.jit
  @jax.vmap
  def repeat(key):
    m, outcomes = _play(key, STRENGTHS, 500)
    return _fit(m, outcomes)

  fits = repeat(jax.random.split(jax.random.PRNGKey(0), 200))
  spread = np.std(np.asarray(fits.ratings)[:, 1:], axis=0)
  mean_error = np.mean(np.asarray(fits.standard_errors)[:, 1:], axis=0)
  np.testing.assert_allclose(spread, mean_error, rtol=0.2)


def test_who_won_every_game_gets_a_finite_rating():
  m = jnp.tile(jnp.array([[-1.0, 1.0, 0.0]]), (50, 1))
  fit = ratings_lib.fit(m, jnp.ones((50,)))
  assert 1500.0 < fit.ratings[1] < 3000.0
  # Who played none stays at the anchor, and is known not to be known.
  assert fit.ratings[2] == 1000.0
  np.testing.assert_allclose(fit.standard_errors[2], 2000.0, rtol=1e-3)


def test_without_a_prior_a_single_pair_has_the_rating_of_its_score():
  outcomes = jnp.array([1.0] * 7 + [0.0] * 3)
  m = jnp.tile(jnp.array([[-1.0, 1.0]]), (10, 1))
  fit = ratings_lib.fit(m, outcomes, prior_deviation=float('inf'))
  expected = 1000.0 + 400 * np.log10(7 / 3)
  np.testing.assert_allclose(fit.ratings[1], expected, atol=0.01)


@pytest.mark.parametrize(
  ('seats', 'outcomes', 'message'),
  [
    (
      [[0, 1, 2]] * 2,
      [[1, 0], [1, np.nan]],
      r'1.0, nan\]\) of game 1 must',
    ),
    (
      [[0, 1, 2]],
      [[1, 0], [0, 1]],
      r'outcomes \(shape \(2, 2\)\) must be',
    ),
    ([[0, 1, 2]], [[1, 0, 0]], r'outcomes \(shape \(1, 3\)\) must be of shape'),
    ([[0, 1]], [[1, 0]], r'seats \(shape \(1, 2\)\) must be of shape'),
    ([[0, 4, 0]], [[1, 0]], r'seats \(player 4\) must name players 0 to 3'),
    ([[0, -1, 0]], [[1, 0]], r'seats \(player -1\) must name players 0 to 3'),
  ],
)
def test_results_that_are_none(seats, outcomes, message):
  with pytest.raises(ValueError, match=message):
    ratings_lib.check_games(seats, outcomes, (0, 0, 1), 4)


def test_one_team_has_no_ratings():
  with pytest.raises(ValueError, match=r'teams \(0, 0\) must be at least two'):
    ratings_lib.check_games([[0, 1]], [[0]], (0, 0), 4)


def test_good_results_pass():
  seats, outcomes = [[0, 1, 2]] * 3, [[1, -1], [0, 0], [7, 2.5]]
  ratings_lib.check_games(seats, outcomes, (0, 0, 1), 4)


def test_equal_players_scatter_as_the_step_size_says():
  num_games, k_factor = 40_000, 4.0
  keys = jax.random.split(jax.random.PRNGKey(0))
  order = jax.vmap(lambda key: jax.random.permutation(key, 4))(
    jax.random.split(keys[0], num_games)
  )
  games = ratings_lib.multiplicities(order, (0, 0, 1, 1), 4)
  wins = jax.random.bernoulli(keys[1], 0.5, (num_games, 1)).astype(jnp.float32)

  def step(ratings, game):
    ratings = ratings_lib.update(ratings, *game, k_factor)
    return ratings, ratings

  _, ratings = jax.lax.scan(step, jnp.zeros(4), (games, wins))
  difference = np.asarray(ratings[1000:, 0] - ratings[1000:, 1])
  expected = ratings_lib.online_deviation(k_factor)
  # The differences of some hundred independent times.
  assert abs(difference.std() / expected - 1.0) < 0.15


@pytest.mark.parametrize('team_size', [1, 2])
def test_games_against_the_same_opponents_are_fitted_at_once(team_size):
  """As `fit` of the same games, with players that won all of theirs."""
  rng = np.random.default_rng(0)
  games = rng.integers(5, 20, (6, 3)).astype(float)
  games[2, 1] = 0.0
  wins = np.floor(games * rng.uniform(0.1, 0.9, games.shape))
  wins[4] = games[4]
  players, opponents = win_rates.fit_to_opponents(
    np.where(games > 0, wins / np.maximum(games, 1.0), np.nan), games, team_size
  )
  rows, outcomes = [], []
  for player, opponent in np.ndindex(games.shape):
    row = np.zeros(9)
    row[3 + player], row[opponent] = team_size, -team_size
    number, won = int(games[player, opponent]), int(wins[player, opponent])
    rows += [row] * number
    outcomes += [1.0] * won + [0.0] * (number - won)
  both = ratings_lib.fit(
    jnp.asarray(rows), jnp.asarray(outcomes), anchor_rating=0.0
  )
  for part, expected in zip(
    zip(opponents, players, strict=True), both, strict=True
  ):
    np.testing.assert_allclose(
      np.concatenate(part), expected, rtol=1e-3, atol=0.1
    )
