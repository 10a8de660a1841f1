"""Matchmaking: the distribution of the players of a game.

Jaderberg et al., 2019 (arXiv:1807.01281), section "Matchmaking": one player is
sampled uniformly, the others in proportion to a normal density, with mean one
half, of its win probability against them. Games between equals teach most.
"""

import dataclasses
from typing import Protocol

import jax.numpy as jnp

from ftwax import parts, registry, shapes, types
from ftwax.population import ratings as ratings_lib
from ftwax.population import state as state_lib


class MatchmakingRule(Protocol):
  """Decides whom members meet; a pure function."""

  def __call__(
    self,
    population: state_lib.PopulationState,
  ) -> types.Array:
    """Returns the log density of members' meeting in a round.

    It is float32 [N, N], up to a constant for each row.
    """


def log_density(
  ratings: types.Array, deviation: types.Array | float
) -> types.Array:
  """Returns the log density of each player meeting each other one.

  The density is a function of win probability, not of rating difference, and
  therefore bounded below: no gap is so wide that a player finds no game.

  Args:
    ratings: float32 [N].
    deviation: standard deviation of the density.

  Returns:
    float32 [N, N], up to a constant; minus infinity on the diagonal.

  Raises:
    ValueError: if an argument does not have this shape.
  """
  shapes.check('log_density', ratings=(ratings, 'N'), deviation=(deviation, ''))
  # Of one against one, whatever the size of the teams.
  surprise = ratings_lib.pairwise_win_probability(ratings) - 0.5
  density = -0.5 * jnp.square(surprise / deviation)
  return jnp.where(jnp.eye(ratings.shape[0], dtype=bool), -jnp.inf, density)


@registry.register('rule.by_strength')
@dataclasses.dataclass(frozen=True)
class ByStrength(parts.Part):
  """Prefers equal members.

  Attributes:
    deviation: standard deviation, in win probability, of the normal density
      from which the other players of a game are sampled.
  """

  deviation: float = parts.option(1.0 / 6.0, above=0)

  def __call__(
    self,
    population: state_lib.PopulationState,
  ) -> types.Array:
    """Returns the log density [N, N]; see `MatchmakingRule`."""
    return log_density(population.ratings, self.deviation)
