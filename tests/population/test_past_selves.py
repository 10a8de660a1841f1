"""Past selves: snapshots, and the draws of those that play."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ftwax.population import (
  evolution,
  matchmaking,
  past_selves,
  population_config,
  seating,
)
from ftwax.population import state as state_lib

# Two members, an opponent, and three past selves of which two play at once.
CONFIG = population_config.PopulationConfig(
  2, num_past=3, past_period=2, num_past_at_once=2
)
TEAMS = (0, 1)
PLACES = seating.make_seating(
  TEAMS, 2, 12, opponent_teams=[TEAMS] * 3, opponent_share=1.0
)


def _members(values):
  rewards = jnp.array(values, jnp.float32)[:, None]
  return evolution.members_of_traits(evolution.Traits((), rewards))


def _population(key):
  return state_lib.from_members(
    _members([1.0, 2.0]), key, CONFIG, num_opponents=1
  )


def _values(variables):
  return np.asarray(variables.internal_rewards)[:, 0]


def test_snapshots_are_of_each_member_in_turn_and_replace_the_oldest():
  past = past_selves.init(_members([1.0, 2.0]), 3)
  np.testing.assert_array_equal(_values(past.variables), [1, 2, 1])
  seen = []
  for round_ in range(9):
    members = _members([10.0 + round_, 20.0 + round_])
    past, is_new = past_selves.begin_round(past, members, 2)
    seen.append(_values(past.variables).tolist())
    assert bool(is_new.any()) == (round_ in (2, 4, 6, 8))
  # Nothing changes between two snapshots.
  assert seen[2] == seen[3] == [12, 2, 1]
  assert seen[4:9:2] == [[12, 24, 1], [12, 24, 16], [28, 24, 16]]
  np.testing.assert_array_equal(past.member, [1, 1, 0])


def test_results_count_for_the_snapshot_and_fade(key):
  population = _population(key)
  # The second member beats the snapshot with index 2, player 2 + 1 + 2.
  seats = jnp.array([[1, 5], [5, 1], [0, 2], [0, 1]])
  outcomes = jnp.array([[1.0, -1.0], [-1.0, 1.0], [1.0, -1.0], [1.0, -1.0]])
  population = state_lib.record_games(
    population, seats, outcomes, jnp.ones(4, bool), TEAMS, CONFIG
  )
  expected = np.array([[0, 0, 0], [0, 0, 2]])
  np.testing.assert_array_equal(population.past.payoff.scores, expected)
  np.testing.assert_array_equal(population.payoff.games, [[0, 1], [1, 0]])
  np.testing.assert_allclose(
    past_selves.win_rates(population.past), 0.5 + expected / 6, rtol=1e-6
  )
  assert population.opponent_ratings[-1] < 1000.0
  past, _ = past_selves.begin_round(
    population.past, _members([1.0, 2.0]), CONFIG.past_period
  )
  np.testing.assert_allclose(past.payoff.games, 0.95 * expected, rtol=1e-6)
  # A copy has its parent's results.
  copied = evolution.copy_rows(
    population, jnp.array([1, 1]), jnp.zeros(2, bool)
  )
  np.testing.assert_array_equal(copied.past.payoff.games, [[0, 0, 2]] * 2)


def _rounds(population, config, num_rounds=2_000):
  """Returns the seats [R, G, P] and variables [R, J, 1] of many rounds."""

  def begin(key):
    return matchmaking.begin_round(key, population, PLACES, config)[1:]

  keys = jax.random.split(jax.random.PRNGKey(1), num_rounds)
  seats, past = jax.jit(jax.vmap(begin))(keys)
  return np.asarray(seats), np.asarray(past.internal_rewards)


def test_snapshots_are_drawn_by_win_rates(key):
  expected = [0.04, 0.25, 0.64]  # (1 - p)^2
  population = _population(key)
  games = jnp.full((2, 3), 1e6)
  payoff = population.past.payoff._replace(
    scores=games * jnp.array([[0.8, 0.5, 0.2]]), games=games
  )
  population = population._replace(past=population.past._replace(payoff=payoff))
  seats, past = _rounds(population, CONFIG)
  # Opponents have the seats of the seating, under the snapshots' numbers.
  named = seats[:, PLACES.opponents == 0]
  assert set(named.reshape(-1).tolist()) == {2}
  for place in range(2):
    drawn = seats[:, PLACES.opponents == 1 + place]
    assert (drawn == drawn[:, :1]).all()  # One snapshot for a whole round.
    snapshots = drawn[:, 0] - 3
    rates = np.bincount(snapshots, minlength=3) / len(snapshots)
    np.testing.assert_allclose(
      rates, np.array(expected) / np.sum(expected), atol=0.04
    )
    np.testing.assert_array_equal(
      past[:, place, 0], np.array([1.0, 2.0, 1.0])[snapshots]
    )


def test_a_league_is_a_rule(key):
  """An exploiter meets snapshots of the main agent alone."""

  def league(population, config):
    meetings = matchmaking.ByStrength()(population, config)
    is_main = population.past.member == 0
    return meetings._replace(past=meetings.past * is_main[None])

  population = _population(key)
  seats, past = _rounds(
    population, CONFIG.replace(matchmake=league), num_rounds=200
  )
  assert set(seats[seats > 2].tolist()) == {3, 5}
  assert set(past.reshape(-1).tolist()) == {1.0}


def test_bad_options_are_refused():
  for options, message in (
    ({'num_past': -1}, r'num_past \(-1\) must be at least 0'),
    ({'past_period': 0}, r'past_period \(0\) must be at least 1'),
  ):
    with pytest.raises(ValueError, match=message):
      CONFIG.replace(**options)
