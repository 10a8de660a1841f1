"""The payoff matrix: scores of members against each other."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from ftwax import types

# Counts must stay exact; by default, accelerators may multiply float32 matrices
# in lower precision.
_HIGHEST = jax.lax.Precision.HIGHEST


class Payoff(NamedTuple):
  """Counts over pairs of opposing seats; zero on the diagonal.

  Attributes:
    scores: float32 [N, N], wins and half the draws of `i` against `j`.
    games: float32 [N, N], meetings of `i` and `j`, exact up to 2^24.
  """

  scores: types.Array
  games: types.Array


def init(num_players: int) -> Payoff:
  """Returns the payoff before any game."""
  zeros = jnp.zeros((num_players, num_players))
  return Payoff(zeros, zeros)


def update(
  payoff: Payoff,
  teams: types.Array,
  outcomes: types.Array,
  is_played: types.Array,
) -> Payoff:
  """Counts the results of `G` games.

  Args:
    payoff: counts so far.
    teams: int32 [G, 2, team_size], blue first.
    outcomes: float32 [G], outcomes for blue.
    is_played: bool [G], false where there was no game.

  Returns:
    The new counts.
  """
  num_players = payoff.games.shape[0]
  seats = jnp.sum(jax.nn.one_hot(teams, num_players), axis=-2)  # [G, 2, N]
  blue, red = seats[:, 0], seats[:, 1]
  blue_scores = jnp.where(is_played, outcomes, 0.0)  # [G]
  red_scores = jnp.where(is_played, 1.0 - outcomes, 0.0)  # [G]

  def meetings(
    weight: types.Array, first: types.Array, second: types.Array
  ) -> types.Array:
    first = first * jnp.expand_dims(weight, -1)  # [G, N]
    return jnp.dot(first.T, second, precision=_HIGHEST)  # [N, N]

  scores = meetings(blue_scores, blue, red) + meetings(red_scores, red, blue)
  weights = is_played.astype(jnp.float32)
  games = meetings(weights, blue, red) + meetings(weights, red, blue)
  # A player with seats in both teams would meet itself.
  is_off_diagonal = ~jnp.eye(num_players, dtype=bool)
  return Payoff(
    payoff.scores + jnp.where(is_off_diagonal, scores, 0.0),
    payoff.games + jnp.where(is_off_diagonal, games, 0.0),
  )


def forget(payoff: Payoff, is_forgotten: types.Array) -> Payoff:
  """Drops the games of players, bool [N], that have copied another one."""
  drop = jnp.expand_dims(is_forgotten, -1) | jnp.expand_dims(is_forgotten, -2)
  return jax.tree.map(lambda leaf: jnp.where(drop, 0.0, leaf), payoff)


def win_rates(payoff: Payoff) -> types.Array:
  """Returns the mean score [N, N] of `i` against `j`; NaN without games."""
  return jnp.where(
    payoff.games > 0.0,
    payoff.scores / jnp.maximum(payoff.games, 1.0),
    jnp.nan,
  )
