"""The payoff matrix: scores of members against each other."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from ftwax import shapes, types
from ftwax.population import ratings as ratings_lib

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
  counts: types.Array,
  scores: types.Array,
  is_played: types.Array,
) -> Payoff:
  """Counts the results of `G` games.

  Args:
    payoff: counts so far.
    counts: float32 [G, num_teams, N], seats of each player in each team.
    scores: float32 [G, C], see `ratings.pair_scores`.
    is_played: bool [G], false where there was no game.

  Returns:
    The new counts.

  Raises:
    ValueError: if an argument does not have this shape.
  """
  shapes.check(
    'update',
    payoff=(payoff.scores, 'N N'),
    counts=(counts, 'G _ N'),
    scores=(scores, 'G _'),
    is_played=(is_played, 'G'),
  )
  num_teams, num_players = counts.shape[1:]
  first, second = (  # [G * C, N]
    counts[:, team].reshape(-1, num_players)
    for team in ratings_lib.pairs(num_teams)
  )
  is_played = jnp.repeat(is_played, scores.shape[1])
  scores = scores.reshape(-1)
  first_scores = jnp.where(is_played, scores, 0.0)
  second_scores = jnp.where(is_played, 1.0 - scores, 0.0)

  def meetings(
    weight: types.Array, own: types.Array, other: types.Array
  ) -> types.Array:
    own = own * jnp.expand_dims(weight, -1)
    return jnp.dot(own.T, other, precision=_HIGHEST)  # [N, N]

  won = meetings(first_scores, first, second)
  won = won + meetings(second_scores, second, first)
  weights = is_played.astype(jnp.float32)
  games = meetings(weights, first, second) + meetings(weights, second, first)
  # A player with seats in several teams would meet itself.
  is_off_diagonal = ~jnp.eye(num_players, dtype=bool)
  return Payoff(
    payoff.scores + jnp.where(is_off_diagonal, won, 0.0),
    payoff.games + jnp.where(is_off_diagonal, games, 0.0),
  )


def forget(payoff: Payoff, is_forgotten: types.Array) -> Payoff:
  """Drops the games of players, bool [N], that have copied another one."""
  shapes.check(
    'forget', payoff=(payoff.scores, 'N N'), is_forgotten=(is_forgotten, 'N')
  )
  drop = jnp.expand_dims(is_forgotten, -1) | jnp.expand_dims(is_forgotten, -2)
  return jax.tree.map(lambda leaf: jnp.where(drop, 0.0, leaf), payoff)
