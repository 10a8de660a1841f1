"""Round-robin tournaments: who meets whom, and what the results tell."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from ftwax import types
from ftwax.population import ratings as ratings_lib


class Tournament(NamedTuple):
  """Statistics of the games of a tournament.

  Attributes:
    games: int [N, N], of a team with `i` against one with `j`; zero on the
      diagonal.
    win_rates: [N, N], mean score of `i` against `j`, NaN without a game.
    lows: [N, N], lower ends of confidence intervals.
    highs: [N, N], upper ends.
    ratings: [N], Elo points by maximum likelihood.
    rating_errors: [N], half widths of their confidence intervals.
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
  """Seats every pair of players equally often on either side.

  Args:
    num_players: N.
    games_per_pair: of each pair; even, so that sides cancel out.
    team_size: a team is that many copies of one player.

  Returns:
    int32 [G, 2, team_size], blue first.

  Raises:
    ValueError: when the numbers do not make a tournament.
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
  """Returns win rates and ratings with confidence intervals.

  Those of win rates are Wilson's, with a draw as half a win; as draws scatter
  less than wins and losses, they are then a little too wide.

  Args:
    teams: int [G, 2, team_size], blue first; teams may be mixed.
    outcomes: [G], those of blue.
    num_players: N.
    anchor: player whose rating is given, such as a scripted one.
    anchor_rating: its rating.
    deviations: half width of intervals in standard deviations; 1.96 is 95%.

  Raises:
    ValueError: when these are no results of such games.
  """
  teams, outcomes = np.asarray(teams), np.asarray(outcomes, np.float64)
  ratings_lib.check_games(teams, outcomes, num_players)
  # Whether each player is in each team, [G, 2, N].
  sits = (teams[..., None] == np.arange(num_players)).any(axis=2)
  blue, red = sits[:, 0].astype(np.float64), sits[:, 1].astype(np.float64)
  won = outcomes[:, None]
  scores = (blue * won).T @ red + (red * (1.0 - won)).T @ blue
  games = (blue.T @ red + red.T @ blue).astype(np.int64)
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
  """Returns Wilson's interval for win rates; all of [0, 1] without a game."""
  games = np.asarray(games, np.float64)
  square = deviations**2
  rate = scores / np.maximum(games, 1.0)
  centre = (scores + 0.5 * square) / (games + square)
  half = (
    deviations
    / (games + square)
    * np.sqrt(games * rate * (1.0 - rate) + 0.25 * square)
  )
  return np.maximum(centre - half, 0.0), np.minimum(centre + half, 1.0)
