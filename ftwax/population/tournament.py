"""Round-robin tournaments: their games and statistics."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from ftwax import types
from ftwax.population import ratings as ratings_lib


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
  num_players: int, games_per_pair: int, team_size: int = 1
) -> types.NumpyArray:
  """Assigns seats such that every pair meets equally often on either side.

  Args:
    num_players: N.
    games_per_pair: games of each pair; even, so that sides cancel out.
    team_size: number of copies of one player in a team.

  Returns:
    int32 [G, 2, team_size], blue first.

  Raises:
    ValueError: if there are fewer than two players, or `games_per_pair` is odd
      or less than 2.
  """
  if num_players < 2:
    raise ValueError(
      f'num_players ({num_players}) must be at least 2; add one, such as a'
      ' scripted player.'
    )
  if games_per_pair < 2 or games_per_pair % 2:
    raise ValueError(
      f'games_per_pair ({games_per_pair}) must be even and at least 2, so that'
      f' sides cancel out; choose {max(games_per_pair + 1, 2)}.'
    )
  first, second = np.triu_indices(num_players, k=1)
  pairs = np.stack([first, second], axis=1)
  games = np.concatenate([pairs, pairs[:, ::-1]])
  games = np.tile(games, (games_per_pair // 2, 1)).astype(np.int32)
  return np.repeat(games[:, :, None], team_size, axis=2)


def summarize(
  teams: types.NumpyArray,
  outcomes: types.NumpyArray,
  num_players: int,
  anchor: int = 0,
  anchor_rating: float = 1000.0,
  deviations: float = 1.96,
) -> Tournament:
  """Computes win rates and ratings with confidence intervals.

  Intervals of win rates are Wilson's, with a draw as half a win. With draws
  they are slightly too wide, since draws have less variance than wins and
  losses.

  Args:
    teams: int [G, 2, team_size], blue first; teams may be mixed.
    outcomes: [G], outcomes for blue.
    num_players: N.
    anchor: player with a given rating, such as a scripted one.
    anchor_rating: rating of the anchor.
    deviations: half width of intervals in standard deviations; 1.96 is 95%.

  Raises:
    ValueError: if the arguments are not results of such games.
  """
  teams, outcomes = np.asarray(teams), np.asarray(outcomes, np.float64)
  ratings_lib.check_games(teams, outcomes, num_players)
  # Whether each player is in each team, [G, 2, N].
  sits = (teams[..., None] == np.arange(num_players)).any(axis=2)
  blue, red = sits[:, 0].astype(np.float64), sits[:, 1].astype(np.float64)
  share = outcomes[:, None]  # Blue's part of the point of each game, [G, 1].
  scores = (blue * share).T @ red + (red * (1.0 - share)).T @ blue  # [N, N]
  games = (blue.T @ red + red.T @ blue).astype(np.int64)
  # In mixed teams a player may sit on both sides of a game.
  np.fill_diagonal(scores, 0.0)
  np.fill_diagonal(games, 0)
  lows, highs = wilson_interval(scores, games, deviations)
  fit = ratings_lib.fit(
    ratings_lib.multiplicities(jnp.asarray(teams), num_players),
    jnp.asarray(outcomes, jnp.float32),
    anchor,
    anchor_rating,
  )
  return Tournament(
    games=games,
    win_rates=np.where(games > 0, scores / np.maximum(games, 1), np.nan),
    lows=lows,
    highs=highs,
    ratings=np.asarray(fit.ratings),
    rating_errors=deviations * np.asarray(fit.standard_errors),
  )


def wilson_interval(
  scores: types.NumpyArray, games: types.NumpyArray, deviations: float = 1.96
) -> tuple[types.NumpyArray, types.NumpyArray]:
  """Returns Wilson's interval of win rates; [0, 1] without games."""
  games = np.asarray(games, np.float64)
  square = deviations**2
  rate = scores / np.maximum(games, 1.0)
  # Wilson, 1927. Unlike rate +- error, it stays informative at rates of 0 and
  # 1.
  centre = (scores + 0.5 * square) / (games + square)
  half = (
    deviations
    / (games + square)
    * np.sqrt(games * rate * (1.0 - rate) + 0.25 * square)
  )
  return np.maximum(centre - half, 0.0), np.minimum(centre + half, 1.0)
