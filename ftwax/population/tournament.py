"""Round-robin tournaments: their games and statistics."""

import functools
from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np

from ftwax import types
from ftwax.population import ratings as ratings_lib
from ftwax.population import win_rates as win_rates_lib


class Tournament(NamedTuple):
  """Statistics of the games of a tournament.

  Attributes:
    games: int64 [N, N], games of a team with `i` against one with `j`; zero on
      the diagonal.
    win_rates: float64 [N, N], mean score of `i` against `j`, NaN without games.
    lows: float64 [N, N], lower ends of confidence intervals of win rates.
    highs: float64 [N, N], upper ends.
    ratings: float32 [N], Elo points by maximum likelihood.
    rating_errors: float32 [N], half widths of confidence intervals of ratings.
  """

  games: types.NumpyArray
  win_rates: types.NumpyArray
  lows: types.NumpyArray
  highs: types.NumpyArray
  ratings: types.NumpyArray
  rating_errors: types.NumpyArray


def round_robin(
  num_players: int, games_per_pair: int, teams: Sequence[int] = (0, 1)
) -> types.NumpyArray:
  """Assigns seats such that every pair meets equally often on every side.

  In a game of two teams, the players of a pair have a team each. In a game of
  more, one player has one team, and the other one all the others.

  Args:
    num_players: N.
    games_per_pair: games of each pair; a multiple that lets sides cancel out.
    teams: the team of each seat, at least two.

  Returns:
    int32 [G, P], the player on each seat.

  Raises:
    ValueError: if there are fewer than two players or teams, or
      `games_per_pair` is not such a multiple.
  """
  if num_players < 2:
    raise ValueError(
      f'num_players ({num_players}) must be at least 2; add one, such as a'
      ' scripted player.'
    )
  num_teams = max(teams) + 1
  if num_teams < 2:
    raise ValueError(
      f'teams {tuple(teams)} of a tournament must be at least two; compare'
      ' members of one team by their returns.'
    )
  # Both players of a pair sit alone in each team, in turn.
  sides = range(num_teams) if num_teams > 2 else (0,)
  cycle = 2 * len(sides)
  if games_per_pair < 1 or games_per_pair % cycle:
    raise ValueError(
      f'games_per_pair ({games_per_pair}) must be a positive multiple of'
      f' {cycle}, so that sides cancel out; choose'
      f' {max(-(-games_per_pair // cycle), 1) * cycle}.'
    )
  first, second = np.triu_indices(num_players, k=1)
  pairs = np.stack([first, second], axis=1)
  pairs = np.concatenate([pairs, pairs[:, ::-1]])[:, :, None]
  games = [
    np.where(np.equal(teams, side), pairs[:, 0], pairs[:, 1]) for side in sides
  ]
  return np.tile(np.concatenate(games), (games_per_pair // cycle, 1)).astype(
    np.int32
  )


def summarize(
  seats: types.NumpyArray,
  outcomes: types.NumpyArray,
  teams: Sequence[int],
  num_players: int,
  anchor: int = 0,
  anchor_rating: float = 1000.0,
  deviations: float = 1.96,
) -> Tournament:
  """Computes win rates and ratings with confidence intervals.

  Intervals of win rates are Wilson's, with a draw as half a win. With draws
  they are slightly too wide, since draws have less variance than wins and
  losses. In games of three teams and more each pair of teams counts as a game
  in means, but intervals are those of as many games as there are: those of win
  rates take a player's results in one game to be one result.

  Args:
    seats: int [G, P], the player on each seat; teams may be mixed.
    outcomes: [G, num_teams], the score of each team.
    teams: the team of each seat.
    num_players: N.
    anchor: player with a given rating, such as a scripted one.
    anchor_rating: rating of the anchor.
    deviations: half width of intervals in standard deviations; 1.96 is 95%.

  Raises:
    ValueError: if the arguments are not results of such games.
  """
  seats, outcomes = np.asarray(seats), np.asarray(outcomes, np.float64)
  ratings_lib.check_games(seats, outcomes, teams, num_players)
  counts, pair_scores, fit = jax.device_get(
    _rate(seats, outcomes, tuple(teams), num_players, anchor, anchor_rating)
  )
  first, second = (  # Whether each player is in the team, [G * C, N].
    (counts[:, team] > 0).reshape(-1, num_players).astype(np.float64)
    for team in ratings_lib.pairs(max(teams) + 1)
  )
  # The first team's part of the point of each meeting, [G * C, 1].
  share = np.asarray(pair_scores, np.float64)[:, None]
  scores = (first * share).T @ second + (second * (1.0 - share)).T @ first
  games = (first.T @ second + second.T @ first).astype(np.int64)  # [N, N]
  # In mixed teams a player may sit on both sides of a game.
  np.fill_diagonal(scores, 0.0)
  np.fill_diagonal(games, 0)
  win_rates = np.where(games > 0, scores / np.maximum(games, 1), np.nan)
  num_pairs = len(first) // max(len(seats), 1)
  met = games
  if num_pairs > 1:
    shape = len(seats), num_pairs, num_players
    meetings = zip(first.reshape(shape), second.reshape(shape), strict=True)
    met = np.sum([a.T @ b + b.T @ a > 0 for a, b in meetings], axis=0)
    np.fill_diagonal(met, 0)
  wins = np.nan_to_num(win_rates) * met
  lows, highs = win_rates_lib.wilson_interval(wins, met, deviations)
  return Tournament(
    games=games,
    win_rates=win_rates,
    lows=lows,
    highs=highs,
    ratings=fit.ratings,
    rating_errors=deviations * fit.standard_errors,
  )


@functools.partial(jax.jit, static_argnames=('teams', 'num_players', 'anchor'))
def _rate(
  seats: types.Array,
  outcomes: types.Array,
  teams: tuple[int, ...],
  num_players: int,
  anchor: int,
  anchor_rating: float,
) -> tuple[types.Array, types.Array, ratings_lib.Fit]:
  """Returns seats in each team, scores of pairs of teams, and ratings.

  One program, since each of its operations would be compiled by itself.

  Returns:
    float32 [G, num_teams, N]; float32 [G * C], for `C` pairs of teams; the
    ratings [N].
  """
  pair_scores = ratings_lib.pair_scores(outcomes)  # [G, C]
  design = ratings_lib.multiplicities(seats, teams, num_players)  # [G, C, N]
  fit = ratings_lib.fit(
    design.reshape(-1, num_players),
    pair_scores.reshape(-1),
    anchor,
    anchor_rating,
    rows_per_game=pair_scores.shape[-1],
  )
  counts = ratings_lib.count_seats(seats, teams, num_players)
  return counts, pair_scores.reshape(-1), fit
