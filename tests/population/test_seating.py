"""Seats of members and opponents."""

import collections
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ftwax.population import matchmaking, players, seating


def _teams(num_players):
  return tuple(np.arange(num_players) * 2 // num_players)


def _draw(key, log_density, num_games, num_players):
  made = seating.make_seating(_teams(num_players), len(log_density), num_games)
  draw = jax.jit(functools.partial(seating.draw_seats, seating=made))
  return np.asarray(draw(key, log_density))


@pytest.mark.slow
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


@pytest.mark.slow
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
    ValueError, match=r'num_environments \(3 games of 4 .*a multiple of 2 such'
  ):
    seating.make_seating((0, 0, 1, 1), 8, 3)
  with pytest.raises(
    ValueError,
    match=r'\(2 games of 1 own teams of \d, so 2 seats.* of 4 su',
  ):
    seating.make_seating((0, 0, 0, 1), 4, 4, own_team_fraction=0.5)
  with pytest.raises(ValueError, match=r'opponents \(1\) must be 0 in a game'):
    seating.make_seating((0, 0), 2, 2, [(0,)])


def test_members_are_drawn_beside_opponents(key):
  made = seating.make_seating(
    (0, 0, 1, 1), 3, 6, [(0, 1)] * 2, opponent_share=1.0
  )
  assert made.seats_per_member == 4
  draw = jax.jit(functools.partial(seating.draw_seats, seating=made))
  density = matchmaking.log_density(jnp.zeros(3), 1 / 6)
  for seed_key in jax.random.split(key, 5):
    seats = np.asarray(draw(seed_key, density))
    np.testing.assert_array_equal(np.bincount(seats.ravel())[:3], [4] * 3)
    for game in range(6):
      # One team is copies of an opponent, in turn on either side.
      opponent, side = 3 + game % 2, 1 - game // 2 % 2
      np.testing.assert_array_equal(
        seats[game] == opponent, np.equal(made.teams, side)
      )


@pytest.mark.parametrize('fraction', [0.5, 1.0])
def test_own_teams_are_copies_of_one_member(key, fraction):
  teams = (0, 1, 0, 1)
  made = seating.make_seating(teams, 4, 8, own_team_fraction=fraction)
  draw = jax.jit(functools.partial(seating.draw_seats, seating=made))
  density = matchmaking.log_density(jnp.zeros(4), 1 / 6)
  num_mixed = round(8 * (1 - fraction))
  for seed_key in jax.random.split(key, 5):
    seats = np.asarray(draw(seed_key, density))
    np.testing.assert_array_equal(np.bincount(seats.ravel()), [8] * 4)
    own = seats[num_mixed:]
    assert (own[:, 0] == own[:, 2]).all() and (own[:, 1] == own[:, 3]).all()
    for game in seats[:num_mixed]:
      assert len(set(game)) == 4


def test_own_teams_play_opponents_too(key):
  made = seating.make_seating(
    (0, 0, 1, 1),
    3,
    6,
    [(0, 1)] * 2,
    opponent_share=1.0,
    own_team_fraction=1.0,
  )
  density = matchmaking.log_density(jnp.zeros(3), 1 / 6)
  seats = np.asarray(seating.draw_seats(key, density, made))
  assert made.seats_per_member == 4
  assert (seats[:, 0] == seats[:, 1]).all()
  assert (seats[:, 2] == seats[:, 3]).all()
  np.testing.assert_array_equal(seats.max(axis=1), [3, 4] * 3)


def test_own_teams_must_be_shared_out_evenly():
  with pytest.raises(
    ValueError, match=r'num_environments \(3 games of 2 own t'
  ):
    seating.make_seating((0, 0, 1, 1), 4, 6, own_team_fraction=0.5)


def test_evaluations_pair_each_member_with_each_opponent():
  made, seats = seating.make_evaluation_seating((0, 1), 2, 4, [(0, 1)] * 2)
  assert made.seats_per_member == 8
  pairs = collections.Counter(map(tuple, seats.tolist()))
  assert pairs == {
    pair: 2
    for member in (0, 1)
    for opponent in (2, 3)
    for pair in ((member, opponent), (opponent, member))
  }
  _, alone = seating.make_evaluation_seating((0, 1), 2, 2)
  assert sorted(alone.tolist()) == [[0, 0], [0, 0], [1, 1], [1, 1]]


@pytest.mark.parametrize('teams', [(0, 0), (0, 0, 0, 1), (0, 1, 2, 3)])
def test_members_share_seats_and_roles_of_any_teams(key, teams):
  made = seating.make_seating(teams, 4, 8, own_team_fraction=0.5)
  density = matchmaking.log_density(jnp.array([0.0, 0.0, 0.0, 900.0]), 1 / 6)
  draw = jax.jit(jax.vmap(functools.partial(
    seating.draw_seats, log_density=density, seating=made
  )))  # fmt: skip
  seats = np.asarray(draw(jax.random.split(key, 400)))  # [K, G, P]
  counts = (seats[..., None] == np.arange(4)).sum(axis=(1, 2))
  np.testing.assert_array_equal(counts, 2 * len(teams))
  own = seats[:, 8 - made.num_own_team_games :]
  for team in range(max(teams) + 1):
    copies = own[..., np.equal(teams, team)]
    assert (copies == copies[..., :1]).all()
  # Each member plays each seat of eight games twice on average.
  played = (seats[..., None] == np.arange(4)).sum(axis=1)  # [K, P, 4]
  errors = np.abs(played.mean(axis=0) - 2.0)
  assert (errors <= 4.0 * played.std(axis=0) / np.sqrt(400) + 1e-6).all()


def test_opponents_take_the_teams_whose_roles_they_play():
  prey = players.Player(_fail, _fail, roles=(1,))
  teams, roles = (0, 0, 0, 1), (0, 0, 0, 1)
  own = players.find_teams({'any': PLAYER, 'prey': prey}, teams, roles)
  assert own == [(0, 1), (1,)]
  made = seating.make_seating(teams, 1, 6, own, opponent_share=1.0)
  np.testing.assert_array_equal(
    made.opponents[:, [0, 3]],
    [[-1, 0], [-1, 1], [0, -1], [-1, 1], [-1, 0], [-1, 1]],
  )
  _, seats = seating.make_evaluation_seating(teams, 1, 2, own)
  pairs = {tuple(row) for row in seats.tolist()}
  assert pairs == {(0, 0, 0, 1), (1, 1, 1, 0), (0, 0, 0, 2)}


def test_an_opponent_of_another_role_is_refused():
  hunter = players.Player(_fail, _fail, roles=(2,))
  with pytest.raises(
    ValueError, match=r"opponent 'hunter' \(of roles \(2,\)\) must play all"
  ):
    players.find_teams({'hunter': hunter}, (0, 0, 1), (0, 1, 0))
  with pytest.raises(ValueError, match=r'opponent_teams \(\(0,\)\) must leave'):
    seating.make_evaluation_seating((0, 1, 2), 1, 1, [(0,)])


def test_members_of_one_team_are_evaluated_with_each_other():
  made, seats = seating.make_evaluation_seating((0, 0, 0), 2, 3)
  assert made.seats_per_member == len(seats) * 3 // 2
  pairs = collections.Counter(map(tuple, seats.tolist()))
  others = {(0, 1, 1), (1, 0, 1), (1, 1, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1)}
  assert pairs == {
    **dict.fromkeys(others, 1), (0, 0, 0): 3, (1, 1, 1): 3
  }  # fmt: skip


def _fail(*args):
  raise AssertionError(args)


PLAYER = players.Player(_fail, _fail)


@pytest.mark.parametrize('fraction', [0.0, 0.5, 1.0])
def test_members_have_equal_shares_of_each_group(key, fraction):
  teams = (0, 0, 1, 1)
  whole = seating.make_seating(teams, 4, 16, own_team_fraction=fraction)
  made = seating.in_groups(whole, 2)
  density = matchmaking.log_density(jnp.array([0.0, 0.0, 0.0, 900.0]), 1 / 6)
  draw = jax.jit(functools.partial(seating.draw_seats, seating=made))
  seats = np.asarray(draw(key, density))
  assert seating.is_grouped(seats, made)
  halves = np.split(seats, 2)
  for half in halves:
    np.testing.assert_array_equal(np.bincount(half.ravel()), [8] * 4)
    own = half[8 - round(8 * fraction) :]
    assert (own[:, 0] == own[:, 1]).all() and (own[:, 2] == own[:, 3]).all()
  assert (halves[0] != halves[1]).any()
  assert not seating.is_grouped(np.sort(seats, axis=None).reshape(16, 4), made)


@pytest.mark.parametrize(
  ('num_games', 'num_members', 'options'),
  [
    (7, 4, {}),  # Games that cannot be halved.
    (6, 8, {}),  # 12 seats in each half.
    (6, 4, {'own_team_fraction': 1 / 3}),  # One game of own teams, 2 teams.
    (8, 4, {'opponent_teams': [(0, 1)]}),
  ],
)
def test_games_that_cannot_be_grouped_are_not(num_games, num_members, options):
  made = seating.make_seating((0, 0, 1, 1), num_members, num_games, **options)
  assert seating.in_groups(made, 2) is None
