import json
import pathlib

import numpy as np
import pytest

from ftwax.population import rankings, ratings, tournament

# Made by record_open_spiel.py.
RECORDS = json.loads(
  pathlib.Path(__file__).with_name('open_spiel.json').read_text()
)['rankings']


@pytest.mark.parametrize('name', RECORDS)
def test_rankings_are_those_of_open_spiel(name):
  record = RECORDS[name]
  nash = rankings.nash_average(record['win_rates'])
  np.testing.assert_allclose(nash.weights, record['nash'], atol=1e-6)


# Rock, paper and scissors as numbers; each is beaten by the next one.
def _play(scripts, games_per_pair=20):
  """Returns the tournament of players that always show the same."""
  scripts = np.array(scripts)
  seats = tournament.round_robin(len(scripts), games_per_pair, (0, 1))
  shown = scripts[seats]
  outcomes = np.array([0, 1, -1])[(shown[:, 0] - shown[:, 1]) % 3]
  outcomes = np.stack([outcomes, -outcomes], axis=1)
  return tournament.summarize(seats, outcomes, (0, 1), len(scripts))


def test_elo_cannot_rank_rock_paper_and_scissors_and_nash_can():
  three = _play([0, 1, 2])
  # Elo foresees draws only, where each game has a sure winner.
  foreseen = ratings.pairwise_win_probability(three.ratings)
  np.testing.assert_allclose(foreseen, 0.5, atol=1e-3)
  np.testing.assert_allclose(
    rankings.nash_average(three.win_rates).weights, 1 / 3, atol=1e-6
  )

  # A second rock makes no player better or worse. By Elo, paper rises above
  # scissors, which beat it.
  four = _play([0, 0, 1, 2])
  assert four.ratings[2] > four.ratings[3] + 50.0
  assert four.win_rates[2, 3] == 0.0
  nash = rankings.nash_average(four.win_rates)
  np.testing.assert_allclose(nash.scores, 0.5, atol=1e-6)
  np.testing.assert_allclose(
    nash.weights, [1 / 6, 1 / 6, 1 / 3, 1 / 3], atol=1e-6
  )


def test_a_player_that_is_beaten_by_a_mixture_has_no_weight():
  rates = _play([0, 1, 2]).win_rates
  # A fourth player that loses more often than not to each.
  rates = np.pad(rates, (0, 1), constant_values=0.0)
  rates[:3, 3], rates[3, :3] = 0.6, 0.4
  nash = rankings.nash_average(rates)
  np.testing.assert_allclose(nash.weights, [1 / 3] * 3 + [0.0], atol=1e-6)
  np.testing.assert_allclose(nash.scores, [0.5] * 3 + [0.4], atol=1e-6)


def test_pairs_without_games_are_refused():
  rates = np.full((2, 2), np.nan)
  with pytest.raises(ValueError, match=r'win_rates \(NaN of players \[0, 1\]'):
    rankings.nash_average(rates)
