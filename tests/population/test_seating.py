"""Who sits where."""

import collections

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ftwax.population import matchmaking, seating


def _draw(key, log_density, num_games, num_players):
  seats = jax.jit(seating.draw_seats, static_argnums=(2, 3))(
    key, log_density, num_games, num_players
  )
  return np.asarray(seats)


@pytest.mark.parametrize(
  ('num_members', 'num_games', 'num_players'),
  [(4, 6, 4), (8, 4, 4), (3, 3, 2), (2, 5, 4), (1, 2, 2), (5, 5, 1)],
)
def test_everybody_has_the_same_number_of_seats(
  key, num_members, num_games, num_players
):
  density = matchmaking.log_density(jnp.linspace(0, 3e3, num_members), 1 / 6)
  for seed_key in jax.random.split(key, 5):
    seats = _draw(seed_key, density, num_games, num_players)
    assert seats.shape == (num_games, num_players)
    counts = np.bincount(seats.ravel(), minlength=num_members)
    assert set(counts) == {num_games * num_players // num_members}


def test_nobody_sits_twice_while_others_have_seats_left(key):
  seats = _draw(key, matchmaking.log_density(jnp.zeros(16), 1 / 6), 4, 4)
  assert len(set(seats[0])) == 4
  # The first of many games are drawn while all have seats left.
  seats = _draw(key, matchmaking.log_density(jnp.zeros(8), 1 / 6), 40, 4)
  assert all(len(set(game)) == 4 for game in seats[:20])


def test_equals_meet_more_often(key):
  ratings = jnp.array([0.0, 0.0, 800.0, 800.0])
  density = matchmaking.log_density(ratings, 1 / 6)
  meetings = collections.Counter()
  for seed_key in jax.random.split(key, 100):
    for game in _draw(seed_key, density, 20, 2)[:5]:
      meetings[tuple(sorted(game.tolist()))] += 1
  equal = meetings[0, 1] + meetings[2, 3]
  # exp(0) to exp(-0.5 (0.49 / (1 / 6))^2) = 0.013, for each of two others.
  assert equal > 0.9 * sum(meetings.values())


def test_seats_that_cannot_be_shared_out_are_refused():
  with pytest.raises(
    ValueError, match=r'num_environments \(3 games of 4 .*a multiple of 2 game'
  ):
    seating.seats_per_member(8, 3, 4)
