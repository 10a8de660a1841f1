"""Strength from counted games, in NumPy: what only reads records loads no JAX.

Win rates with their intervals, and Elo ratings against fixed opponents; see
`ratings` for the model.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ftwax import shapes

if TYPE_CHECKING:
  from ftwax import types

# One Elo point in logits.
SCALE = math.log(10.0) / 400.0

# A Newton step changes a strength by at most one logit, since full steps may
# overshoot far from the optimum. Hence many steps are needed.
NUM_NEWTON_STEPS = 100


class Ratings(NamedTuple):
  """Maximum-likelihood ratings.

  Attributes:
    ratings: float64 [N], in Elo points.
    standard_errors: float64 [N], of the difference to the first opponent.
  """

  ratings: types.Floats
  standard_errors: types.Floats


def wilson_interval(
  scores: types.NumpyArray, games: types.NumpyArray, deviations: float = 1.96
) -> tuple[types.NumpyArray, types.NumpyArray]:
  """Returns Wilson's interval of win rates; [0, 1] without games.

  Args:
    scores: [...], wins and half the draws.
    games: [...], number of games.
    deviations: half width of the interval in standard deviations.

  Raises:
    ValueError: if scores and games differ in shape.
  """
  shapes.check('wilson_interval', scores=(scores, '...'), games=(games, '...'))
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


def fit_to_opponents(
  scores: types.Floats,
  games: types.Floats,
  team_size: float = 1.0,
  prior_deviation: float = 2000.0,
) -> tuple[Ratings, Ratings]:
  """Fits ratings of many players that only met the same few opponents.

  That is `ratings.fit` of all their games at once, such as those of all
  evaluations of a run, in which each member counts as another player each time
  and opponents stay the same. It solves for the opponents first, by the Schur
  complement of the players' diagonal block, so its time grows with `R` alone.

  Args:
    scores: float64 [R, K], mean score of each player against each opponent.
    games: float64 [R, K], number of games; scores without games are ignored.
    team_size: number of copies of a player in its team.
    prior_deviation: see `ratings.fit`.

  Returns:
    The players [R] and the opponents [K], relative to the first opponent.

  Raises:
    ValueError: if scores and games differ in shape.
  """
  shapes.check('fit_to_opponents', scores=(scores, 'R K'), games=(games, 'R K'))
  wins = np.where(games > 0, np.nan_to_num(scores), 0.0) * games
  precision = 1.0 / (SCALE * prior_deviation) ** 2
  players, opponents = np.zeros(len(games)), np.zeros(games.shape[1] - 1)
  for _ in range(NUM_NEWTON_STEPS):
    difference = players[:, None] - np.append(0.0, opponents)
    p = 1.0 / (1.0 + np.exp(-team_size * difference))
    surprise = team_size * (wins - games * p)  # [R, K]
    weights = team_size**2 * games * p * (1.0 - p)
    diagonal = weights.sum(axis=1) + precision  # [R]
    shares = weights[:, 1:] / diagonal[:, None]  # [R, K - 1]
    schur = np.diag(weights[:, 1:].sum(axis=0) + precision)
    schur -= weights[:, 1:].T @ shares
    player_step = (surprise.sum(axis=1) - precision * players) / diagonal
    gradient = -surprise[:, 1:].sum(axis=0) - precision * opponents
    gradient += weights[:, 1:].T @ player_step
    opponent_step = np.linalg.solve(schur, gradient)
    player_step += shares @ opponent_step
    players += np.clip(player_step, -1.0, 1.0)
    opponents += np.clip(opponent_step, -1.0, 1.0)
    if np.abs(np.append(player_step, opponent_step)).max() < 1e-6:
      break
  covariance = np.linalg.inv(schur)
  variances = 1.0 / diagonal + np.sum(shares @ covariance * shares, axis=1)
  found = (
    (players, np.sqrt(variances)),
    (np.append(0.0, opponents), np.append(0.0, np.sqrt(np.diag(covariance)))),
  )
  one, other = (Ratings(x / SCALE, error / SCALE) for x, error in found)
  return one, other
