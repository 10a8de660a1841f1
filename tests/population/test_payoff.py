import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from ftwax.population import payoff as payoff_lib
from ftwax.population import ratings, tournament, win_rates


def test_counts_against_a_loop():
  rng = np.random.default_rng(0)
  teams = rng.integers(0, 5, size=(60, 2, 2))
  outcomes = rng.choice([0.0, 0.5, 1.0], size=(60,))
  counts = ratings.count_seats(teams.reshape(60, 4), (0, 0, 1, 1), 5)
  is_played = rng.random(60) < 0.7
  scores, games = np.zeros((5, 5)), np.zeros((5, 5))
  for (blue, red), outcome, played in zip(
    teams, outcomes, is_played, strict=True
  ):
    for i in blue:
      for j in red:
        if i != j and played:
          scores[i, j] += outcome
          scores[j, i] += 1 - outcome
          games[i, j] += 1
          games[j, i] += 1
  payoff = payoff_lib.init(5)
  for half in (slice(0, 30), slice(30, 60)):
    payoff = payoff_lib.update(
      payoff,
      counts[half],
      jnp.float32(outcomes[half])[:, None],
      jnp.asarray(is_played[half]),
    )
  np.testing.assert_array_equal(payoff.scores, scores)
  np.testing.assert_array_equal(payoff.games, games)


def test_every_pair_of_teams_meets():
  counts = ratings.count_seats(jnp.array([[0, 1, 2]]), (0, 1, 2), 3)
  scores = ratings.pair_scores(jnp.array([[3.0, 2.0, 2.0]]))
  payoff = payoff_lib.update(
    payoff_lib.init(3), counts, scores, jnp.array([True])
  )
  np.testing.assert_array_equal(payoff.games, 1 - np.eye(3))
  np.testing.assert_array_equal(
    payoff.scores, [[0, 1, 1], [0, 0, 0.5], [0, 0.5, 0]]
  )


def test_what_is_not_played_may_be_nan():
  payoff = payoff_lib.update(
    payoff_lib.init(2),
    jnp.array([[[1.0, 0.0], [0.0, 1.0]]]),
    jnp.array([[jnp.nan]]),
    jnp.array([False]),
  )
  assert not np.any(payoff.scores) and not np.any(payoff.games)


def test_forget_drops_rows_and_columns():
  payoff = payoff_lib.Payoff(jnp.ones((3, 3)), 2 * jnp.ones((3, 3)))
  payoff = payoff_lib.forget(payoff, jnp.array([False, True, False]))
  expected = np.array([[1, 0, 1], [0, 0, 0], [1, 0, 1]])
  np.testing.assert_array_equal(payoff.scores, expected)
  np.testing.assert_array_equal(payoff.games, 2 * expected)


def test_round_robin_seats_every_pair_on_both_sides():
  seats = tournament.round_robin(4, games_per_pair=6, teams=(0, 1, 0, 1))
  assert seats.shape == (36, 4)
  assert (seats[:, :2] == seats[:, 2:]).all()
  counts = np.zeros((4, 4))
  np.add.at(counts, (seats[:, 0], seats[:, 1]), 1)
  np.testing.assert_array_equal(counts, 3 * (1 - np.eye(4)))


def test_round_robin_of_many_teams():
  seats = tournament.round_robin(2, games_per_pair=6, teams=(0, 1, 2))
  expected = [[0, 1, 1], [1, 0, 1], [1, 1, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]]
  assert sorted(seats.tolist()) == sorted(expected)


@pytest.mark.parametrize(
  ('arguments', 'message'),
  [
    ((1, 2), r'num_players \(1\) must be at least 2'),
    ((2, 3), r'games_per_pair \(3\) must be a positive multiple.*choose 4'),
    ((2, 0), r'games_per_pair \(0\) must be a positive multiple.*choose 2'),
    ((2, 4, (0, 1, 2)), r'games_per_pair \(4\) .* of 6, .*; choose 6'),
    ((2, 2, (0, 0)), r'teams \(0, 0\) of a tournament must be at least two'),
  ],
)
def test_no_tournament(arguments, message):
  with pytest.raises(ValueError, match=message):
    tournament.round_robin(*arguments)


def test_intervals_are_scipys():
  for wins, games in [(0, 10), (7, 10), (100, 100), (430, 1000)]:
    expected = scipy.stats.binomtest(wins, games).proportion_ci(method='wilson')
    low, high = win_rates.wilson_interval(
      np.float64(wins), np.float64(games), 1.959964
    )
    np.testing.assert_allclose([low, high], expected, atol=1e-6)


def test_summary_of_a_tournament():
  teams = 0, 0, 1, 1
  seats = tournament.round_robin(3, games_per_pair=100, teams=teams)
  rng = np.random.default_rng(0)
  strengths = np.array([0.0, 60.0, 120.0])
  gap = 2 * (strengths[seats[:, 0]] - strengths[seats[:, 2]])
  wins = rng.random(300) < 1 / (1 + 10 ** (-gap / 400))
  outcomes = np.stack([wins, ~wins], axis=1)
  summary = tournament.summarize(seats, outcomes, teams, 3, anchor_rating=500.0)
  is_other = ~np.eye(3, dtype=bool)
  assert (summary.games[is_other] == 100).all()
  rates = summary.win_rates
  np.testing.assert_allclose((rates + rates.T)[is_other], 1.0)
  assert np.isnan(np.diag(rates)).all()
  assert (summary.lows < rates)[is_other].all()
  assert (rates < summary.highs)[is_other].all()
  np.testing.assert_allclose(
    summary.highs[is_other], 1 - summary.lows.T[is_other]
  )
  assert summary.ratings[0] == 500.0
  error = np.abs(summary.ratings - 500.0 - strengths)
  assert (error <= 1.5 * summary.rating_errors).all()
  assert (summary.rating_errors[1:] < 60.0).all()


def test_pairs_without_a_game_may_win_anything():
  summary = tournament.summarize([[0, 1]], [[0, 0]], (0, 1), 3)
  assert (summary.lows[0, 2], summary.highs[0, 2]) == (0.0, 1.0)
  assert np.isnan(summary.win_rates[0, 2])


def test_teams_may_be_mixed():
  seats = [[0, 1, 2, 2], [2, 0, 1, 1]]
  summary = tournament.summarize(seats, [[1, -1], [0, 0]], (0, 0, 1, 1), 3)
  np.testing.assert_array_equal(
    summary.games, [[0, 1, 1], [1, 0, 2], [1, 2, 0]]
  )
  np.testing.assert_array_equal(summary.win_rates[0, 1:], [0.5, 1.0])
  np.testing.assert_array_equal(summary.win_rates[1, [0, 2]], [0.5, 0.75])


def test_ratings_of_games_drawn_anew_scatter_as_their_errors():
  seats = tournament.round_robin(3, games_per_pair=100)
  rng = np.random.default_rng(0)
  outcomes = jnp.asarray(rng.random(300) < 0.6, jnp.float32)
  games = ratings.multiplicities(jnp.asarray(seats), (0, 1), 3)[:, 0]

  def fit_sample(drawn):
    return ratings.fit(games[drawn], outcomes[drawn]).ratings

  samples = jax.lax.map(fit_sample, rng.integers(0, 300, (200, 300)))
  fitted = ratings.fit(games, outcomes)
  np.testing.assert_array_equal(samples[:, 0], 1000.0)
  deviation = np.std(samples[:, 1:], axis=0)
  np.testing.assert_allclose(deviation, fitted.standard_errors[1:], rtol=0.25)


def test_intervals_of_games_of_many_teams_cover():
  teams, strengths = (0, 1, 2, 3), np.array([1000.0, 1080.0, 900.0])
  seats = tournament.round_robin(3, 40, teams)
  logits = strengths * np.log(10.0) / 400.0
  rng = np.random.default_rng(0)
  # Of Gumbel's noise each pair follows Elo's formula, and pairs of one game
  # depend on each other.
  noise = rng.gumbel(size=(200, *seats.shape))
  outcomes = jnp.asarray(logits[seats] + noise)
  design = ratings.multiplicities(jnp.asarray(seats), teams, 3)
  scores = ratings.pair_scores(outcomes).reshape(200, -1)

  def cover(rows_per_game):
    fitted = jax.vmap(
      lambda scores: ratings.fit(
        design.reshape(-1, 3), scores, rows_per_game=rows_per_game
      )
    )(scores)
    errors = np.abs(np.asarray(fitted.ratings) - strengths)[:, 1:]
    return np.mean(errors < 1.96 * fitted.standard_errors[:, 1:])

  assert 0.92 < cover(6) < 0.98
  assert cover(1) < 0.9
  truth = 1.0 / (1.0 + np.exp(logits[None, :] - logits[:, None]))
  is_in = []
  for own in outcomes[:20]:
    summary = tournament.summarize(seats, own, teams, 3)
    is_in.append((summary.lows <= truth) & (truth <= summary.highs))
  assert np.mean(np.array(is_in)[:, [0, 0, 1], [1, 2, 2]]) > 0.95
