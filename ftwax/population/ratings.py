"""Elo ratings of players that meet in teams.

Jaderberg et al., 2019 (arXiv:1807.01281), section "Tournaments and ratings":
the multiplicity `m` of a player is the number of its seats in the blue team
minus those in the red team. Blue wins with probability

  P = 1 / (1 + 10^(-(m . ratings) / 400)).

A game of more teams counts as a game of each pair of them. In teams of several
sizes the seats of a larger team weigh less, so that all teams count as much as
the smallest. `update` takes a gradient step on the log-likelihood of each game
as it comes in, `fit` maximizes the log-likelihood of many games. Ratings are in
Elo points; only differences matter. A draw is half a win.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ftwax import shapes, types
from ftwax.population import win_rates

DRAW = 0.5

_SCALE = win_rates.SCALE

# Online ratings are multiples of 1 / _GRID, which float32 adds without error up
# to 16,384 points: the sum of ratings is conserved to the last bit.
_GRID = 1024.0

# By default, accelerators may multiply float32 matrices in lower precision.
_HIGHEST = jax.lax.Precision.HIGHEST


class Fit(NamedTuple):
  """Maximum-likelihood ratings.

  Attributes:
    ratings: float32 [N], in Elo points.
    standard_errors: float32 [N], of the difference to the anchor, zero there.
  """

  ratings: types.Array
  standard_errors: types.Array


def check_games(
  seats: Any, outcomes: Any, teams: Sequence[int], num_players: int
) -> None:
  """Raises a ValueError unless these are results of games between teams.

  It reads values, so call it outside of jitted functions.

  Args:
    seats: integers [G, P], the player on each seat.
    outcomes: [G, num_teams], the score of each team.
    teams: the team of each seat, at least two.
    num_players: N.
  """
  seats, outcomes = np.asarray(seats), np.asarray(outcomes)
  num_teams = max(teams) + 1
  if num_teams < 2:
    raise ValueError(
      f'teams {tuple(teams)} must be at least two for ratings; judge members of'
      ' one team by their returns.'
    )
  if seats.shape[1:] != (len(teams),):
    raise ValueError(
      f'seats (shape {seats.shape}) must be of shape [games, {len(teams)}];'
      ' give the player on each seat.'
    )
  if outcomes.shape != (len(seats), num_teams):
    raise ValueError(
      f'outcomes (shape {outcomes.shape}) must be of shape'
      f' {(len(seats), num_teams)}; give each team of each game a score.'
    )
  outside = (seats < 0) | (seats >= num_players)
  if outside.any():
    raise ValueError(
      f'seats (player {seats[outside][0]}) must name players 0 to'
      f' {num_players - 1}; leave out players that are not rated.'
    )
  is_odd = ~np.isfinite(outcomes).all(axis=1)
  if is_odd.any():
    raise ValueError(
      f'outcome ({outcomes[is_odd][0].tolist()}) of game'
      f' {int(np.argmax(is_odd))} must be a finite score for each team; higher'
      ' scores beat lower ones.'
    )


def count_seats(
  seats: types.Array, teams: Sequence[int], num_players: int
) -> types.Array:
  """Returns the number of seats of each player in each team.

  Args:
    seats: int32 [..., P], the player on each seat; others than 0 to N - 1 are
      not counted.
    teams: the team of each seat.
    num_players: N.

  Returns:
    float32 [..., num_teams, N].

  Raises:
    ValueError: if there is not a seat for each of `teams`.
  """
  shapes.check('count_seats', seats=(seats, f'... {len(teams)}'))
  sits = jax.nn.one_hot(seats, num_players)  # [..., P, N]
  counts = [
    jnp.sum(sits[..., np.flatnonzero(np.equal(teams, team)), :], axis=-2)
    for team in range(max(teams) + 1)
  ]
  return jnp.stack(counts, axis=-2)


def multiplicities(
  seats: types.Array, teams: Sequence[int], num_players: int
) -> types.Array:
  """Returns each player's seats in the first minus those in the second team.

  Args:
    seats: int32 [..., P], the player on each seat.
    teams: the team of each seat.
    num_players: N.

  Returns:
    float32 [..., C, N], for the `C` pairs of teams.
  """
  counts = count_seats(seats, teams, num_players)
  sizes = np.bincount(teams)
  # One, and hence exact, for teams of one size.
  weights = (sizes.min() / sizes).astype(np.float32)
  counts = counts * np.broadcast_to(weights[:, None], counts.shape)
  first, second = pairs(len(sizes))
  return counts[..., first, :] - counts[..., second, :]


def pairs(num_teams: int) -> tuple[types.NumpyArray, types.NumpyArray]:
  """Returns the first and the second team of each pair, int [C]."""
  first, second = np.triu_indices(num_teams, k=1)
  return first, second


def pair_scores(outcomes: types.Array) -> types.Array:
  """Returns scores of the first against the second team of each pair.

  Args:
    outcomes: [..., num_teams], the score of each team.

  Returns:
    float32 [..., C], 1 for a win, 0.5 for a draw and 0 for a loss.
  """
  first, second = pairs(outcomes.shape[-1])
  lead = jnp.sign(outcomes[..., first] - outcomes[..., second])
  return 0.5 * (1.0 + lead.astype(jnp.float32))


def win_probability(
  ratings: types.Array, multiplicities: types.Array
) -> types.Array:
  """Returns the probability [...] that blue wins.

  Args:
    ratings: float32 [N].
    multiplicities: float32 [..., N].

  Raises:
    ValueError: if the two do not have as many players.
  """
  shapes.check(
    'win_probability',
    ratings=(ratings, 'N'),
    multiplicities=(multiplicities, '... N'),
  )
  ratings = jnp.broadcast_to(ratings, multiplicities.shape)
  advantage = jnp.sum(multiplicities * ratings, axis=-1)
  return jax.nn.sigmoid(_SCALE * advantage)


def pairwise_win_probability(
  ratings: types.Array,
  team_size: types.Array | int = 1,
  handicap: float = 0.0,
) -> types.Array:
  """Returns P(a team of copies of `i` beats one of copies of `j`), [N, N].

  Args:
    ratings: float32 [N].
    team_size: players in a team.
    handicap: Elo points that each player of `i` has more than its rating.

  Raises:
    ValueError: if an argument does not have this shape.
  """
  shapes.check(
    'pairwise_win_probability',
    ratings=(ratings, 'N'),
    team_size=(team_size, ''),
    handicap=(handicap, ''),
  )
  difference = jnp.expand_dims(ratings, -1) - jnp.expand_dims(ratings, -2)
  return jax.nn.sigmoid(_SCALE * team_size * (difference + handicap))


def online_deviation(k_factor: float) -> float:
  """Returns the standard deviation of a difference of two online ratings.

  It is that of players whose strength stays the same, after many games of two
  teams of any size. Steps of size K on the gradient of a log-likelihood with
  curvature A scatter by a covariance S with A S + S A = K A / scale, since the
  noise of that gradient is its curvature. So each rating has a variance of
  K / (2 scale).
  """
  return math.sqrt(k_factor / _SCALE)


def update(
  ratings: types.Array,
  multiplicities: types.Array,
  scores: types.Array,
  k_factor: types.Array | float,
) -> types.Array:
  """Updates ratings after one game.

  The sum of ratings is conserved exactly if the teams have equal sizes and
  ratings started as whole numbers below 16,384.

  Args:
    ratings: float32 [N].
    multiplicities: float32 [C, N].
    scores: [C], see `pair_scores`.
    k_factor: step size in Elo points of each pair, []; zero if there was no
      game.

  Returns:
    The new ratings, float32 [N].

  Raises:
    ValueError: if an argument does not have this shape.
  """
  shapes.check(
    'update',
    ratings=(ratings, 'N'),
    multiplicities=(multiplicities, 'C N'),
    scores=(scores, 'C'),
    k_factor=(k_factor, ''),
  )
  # The gradient of the log-likelihood is (outcome - P) m, up to a constant that
  # is part of the step size.
  surprise = scores - win_probability(ratings, multiplicities)  # [C]
  step = jnp.round(_GRID * k_factor * surprise) / _GRID
  return ratings + jnp.sum(step[:, None] * multiplicities, axis=0)


def update_in_turn(
  ratings: types.Array,
  multiplicities: types.Array,
  scores: types.Array,
  k_factors: types.Array,
) -> types.Array:
  """Updates ratings [N] after `G` games, one after another; leaves [G, ...]."""
  shapes.check(
    'update_in_turn',
    ratings=(ratings, 'N'),
    multiplicities=(multiplicities, 'G C N'),
    scores=(scores, 'G C'),
    k_factors=(k_factors, 'G'),
  )

  def step(ratings: types.Array, game: Any) -> tuple[types.Array, None]:
    return update(ratings, *game), None

  games = (multiplicities, scores, k_factors)
  return jax.lax.scan(step, ratings, games)[0]


def fit(
  multiplicities: types.Array,
  outcomes: types.Array,
  anchor: int = 0,
  anchor_rating: float = 1000.0,
  prior_deviation: float = 2000.0,
  rows_per_game: int = 1,
) -> Fit:
  """Fits ratings to the results of games by maximum likelihood.

  A wide normal prior around the anchor keeps ratings finite for players that
  won, or lost, every game; its influence on others is far below their standard
  error. `math.inf` disables it.

  Args:
    multiplicities: float32 [G, N].
    outcomes: [G], outcomes for blue.
    anchor: player with a given rating.
    anchor_rating: rating of the anchor.
    prior_deviation: standard deviation of the prior, in Elo points.
    rows_per_game: number of consecutive rows that are the pairs of teams of one
      game. Their results are not independent.

  Returns:
    Ratings and their standard errors, from the curvature at the maximum. With
    several rows per game, errors are from what games differ in (Liang and
    Zeger, 1986, "Longitudinal data analysis using generalized linear models").

  Raises:
    ValueError: if there is not an outcome for each row of multiplicities.
  """
  shapes.check(
    'fit', multiplicities=(multiplicities, 'G N'), outcomes=(outcomes, 'G')
  )
  is_free = jnp.arange(multiplicities.shape[-1]) != anchor
  # The anchor's strength is fixed at zero.
  design = jnp.where(is_free, multiplicities, 0.0)
  precision = 1.0 / (_SCALE * prior_deviation) ** 2
  # The anchor's row of the Hessian is zero otherwise. Its gradient is zero,
  # too, so that it does not move.
  diagonal = jnp.diag(jnp.where(is_free, precision, 1.0))

  def curvature(strengths: types.Array) -> tuple[types.Array, types.Array]:
    p = jax.nn.sigmoid(jnp.dot(design, strengths, precision=_HIGHEST))
    weighted = design * jnp.expand_dims(p * (1.0 - p), -1)
    return p, jnp.dot(design.T, weighted, precision=_HIGHEST) + diagonal

  def newton_step(_: int, strengths: types.Array) -> types.Array:
    p, hessian = curvature(strengths)
    gradient = jnp.dot(outcomes - p, design, precision=_HIGHEST)
    gradient = gradient - precision * strengths
    step = jnp.linalg.solve(hessian, gradient)
    return strengths + jnp.clip(step, -1.0, 1.0)

  strengths = jax.lax.fori_loop(
    0, win_rates.NUM_NEWTON_STEPS, newton_step, jnp.zeros(is_free.shape)
  )
  p, hessian = curvature(strengths)
  covariance = jnp.linalg.inv(hessian)
  if rows_per_game > 1:
    gradients = jnp.expand_dims(outcomes - p, -1) * design
    gradients = gradients.reshape(-1, rows_per_game, len(strengths)).sum(axis=1)
    spread = jnp.dot(gradients.T, gradients, precision=_HIGHEST)
    covariance = jnp.linalg.multi_dot(
      [covariance, spread, covariance], precision=_HIGHEST
    )
  variances = jnp.diag(covariance)
  return Fit(
    ratings=anchor_rating + strengths / _SCALE,
    standard_errors=jnp.where(is_free, jnp.sqrt(variances) / _SCALE, 0.0),
  )
