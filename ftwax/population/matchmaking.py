"""Matchmaking: the distribution of the players of a game.

Jaderberg et al., 2019 (arXiv:1807.01281), section "Matchmaking": one player is
sampled uniformly, the others in proportion to a normal density, with mean one
half, of its win probability against them. Games between equals teach most.

Past selves, if there are any, are drawn by prioritized fictitious self-play
(PFSP; Vinyals et al., 2019): in proportion to (1 - p)^k, for the score
p of a member against each. A league of main agents and exploiters is a
rule in which members differ in whom they meet.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from ftwax import parts, registry, trees, types
from ftwax.population import past_selves, seating
from ftwax.population import ratings as ratings_lib
from ftwax.population import state as state_lib

if TYPE_CHECKING:
  from ftwax.population import population_config as config_lib


class Meetings(NamedTuple):
  """Whom members meet.

  Attributes:
    members: float32 [N, N], log density of meeting each other member, up to a
      constant.
    past: float32 [N, S], weight of each past self; `()` without any.
  """

  members: types.Array
  past: Any = ()


class MatchmakingRule(Protocol):
  """Decides whom members meet; a pure function."""

  def __call__(
    self,
    population: state_lib.PopulationState,
    config: config_lib.PopulationConfig,
  ) -> Meetings:
    """Returns whom members meet in a round."""


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
  """
  # Of one against one, whatever the size of the teams.
  surprise = ratings_lib.pairwise_win_probability(ratings) - 0.5
  density = -0.5 * jnp.square(surprise / deviation)
  return jnp.where(jnp.eye(ratings.shape[0], dtype=bool), -jnp.inf, density)


@registry.register('rule.by_strength')
@dataclasses.dataclass(frozen=True)
class ByStrength(parts.Part):
  """Prefers equal members, and past selves that are hard to beat.

  Attributes:
    deviation: standard deviation, in win probability, of the normal density
      from which the other players of a game are sampled.
  """

  deviation: float = parts.option(1.0 / 6.0, above=0)

  def __call__(
    self,
    population: state_lib.PopulationState,
    config: config_lib.PopulationConfig,
  ) -> Meetings:
    """Returns whom members meet in a round."""
    members = log_density(population.ratings, self.deviation)
    if not config.num_past:
      return Meetings(members)
    p = past_selves.win_rates(population.past)
    return Meetings(members, jnp.square(1.0 - p))


def begin_round(
  key: types.Key,
  population: state_lib.PopulationState,
  places: seating.Seating,
  config: config_lib.PopulationConfig,
) -> tuple[state_lib.PopulationState, types.Array, Any]:
  """Takes a snapshot if one is due, and draws the players of a round.

  Args:
    key: random key.
    population: before the round. Without past selves, it may lack members.
    places: the seats of members and opponents; past selves come last.
    config: options of the population, with its rules.

  Returns:
    The population; int32 [G, P], the player on each seat, see
    `state.record_games`; and the variables of the past selves that play, leaves
    [J, ...], or `()`.
  """
  num_others = len(population.opponent_ratings) - config.num_past
  if config.num_past:
    past, is_new = past_selves.begin_round(
      population.past, population.members, config.past_period
    )
    # A snapshot is as strong as its member.
    own = population.opponent_ratings[num_others:]
    own = jnp.where(is_new, population.ratings[past.member], own)
    population = population._replace(
      past=past,
      opponent_ratings=population.opponent_ratings.at[num_others:].set(own),
    )
  meetings = config.matchmake(population, config)
  seats = seating.draw_seats(key, meetings.members, places)
  if not config.num_past:
    return population, seats, ()
  first = config.num_members + num_others
  snapshots = past_selves.draw(
    # Unlike the keys of a split, in which seats are drawn.
    jax.random.fold_in(key, 2),
    meetings.past,
    seats,
    first + jnp.arange(config.num_past_at_once),
  )
  is_past = places.opponents >= num_others
  place = np.where(is_past, places.opponents - num_others, 0)
  seats = jnp.where(is_past, first + snapshots[place], seats)
  return population, seats, trees.take(past.variables, snapshots)
