"""Population based training: exploit better members, then explore.

Jaderberg et al., 2017 (arXiv:1711.09846) and, for games, 2019
(arXiv:1807.01281). One call of `evolve` is one generation, a pure function of
key and population that can be jitted and vmapped. It reads all rows before it
writes any, so that the order of members does not matter. A
`selection.SelectionRule` decides which members copy which, an
`exploring.ExploreRule` how copies explore.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ftwax import shapes, trees, types
from ftwax.population import exploring, population_config
from ftwax.population import payoff as payoff_lib
from ftwax.population import ratings as ratings_lib
from ftwax.population import state as state_lib


class Generation(NamedTuple):
  """The record of one generation, for the lineage.

  Attributes:
    number: int32 [], index of the generation, from 1.
    games: int32 [N], games that each member has played.
    parent: int32 [N], the member that each one copied; itself for no copy.
    is_redrawn: bool [N], whether a member drew new traits from their priors.
    evidence: float32 [N], the value on which the selection rule decided.
    inherited: traits [N, ...] of the parents.
    explored: traits [N, ...] with which the members continue.
  """

  number: types.Array
  games: types.Array
  parent: types.Array
  is_redrawn: types.Array
  evidence: types.Array
  inherited: exploring.Traits
  explored: exploring.Traits


# Runs one generation with all options given; see `evolve`.
Evolve = Callable[
  [state_lib.PopulationState], tuple[state_lib.PopulationState, Generation]
]


def evolve(
  key: types.Key,
  population: state_lib.PopulationState,
  priors: exploring.Traits,
  config: population_config.PopulationConfig,
) -> tuple[state_lib.PopulationState, Generation]:
  """Runs one generation.

  A member that copies another takes its parameters, optimizer state,
  statistics, hyperparameters, internal rewards, rating and returns, explores
  from there, and restarts its burn-in. Its past results against others are
  forgotten. It keeps its own key and step count. Ratings of copies are not
  balanced by losses elsewhere, since the population did become better.

  With `crossover_probability`, a copy keeps some of its own hyperparameters and
  internal rewards, but never its parameters.

  With `min_decided_fraction`, members in whose games nobody wins draw new
  hyperparameters and internal rewards from their priors. They keep the rest.

  Args:
    key: random key.
    population: the population before the generation. Members may lack what
      `heritage` returns, for a caller that copies it elsewhere.
    priors: traits whose leaves are priors; static.
    config: options of the population, with its rules; static.

  Returns:
    The population after the generation, and its record.

  Raises:
    ValueError: if the population does not have `config.num_members` members.
  """
  size = (config.num_members,)
  ratings = population.ratings
  shapes.check_leaves('evolve', 'population.ratings', ratings, size)
  shapes.check_leaves('evolve', 'population.members', population.members, size)
  select_key, explore_key = jax.random.split(key)
  deviation = ratings_lib.online_deviation(config.k_factor)
  selection = config.select(select_key, population, deviation)
  itself = jnp.arange(config.num_members, dtype=jnp.int32)
  copies = population.games_since_exploitation >= config.burn_in_games
  if not config.exploits:
    # The rule is evaluated all the same, for the evidence in the record.
    copies = jnp.zeros_like(copies)
  selection = selection._replace(
    parent=jnp.where(copies, selection.parent, itself).astype(jnp.int32)
  )
  has_copied = selection.parent != itself
  previous = traits(population.members)  # [N, ...]
  # The record keeps what the parents had; crossover counts as exploring.
  inherited = start = trees.take(previous, selection.parent)
  if config.crossover_probability > 0.0:
    # Keys of optional draws are folded in, so that the other draws are the same
    # with and without them. Folding in 0 and 1 gives the keys of the split.
    cross_key = jax.random.fold_in(key, 3)
    start = exploring.cross(
      cross_key, inherited, previous, config.crossover_probability
    )
  explored = config.explore(explore_key, start, priors)
  # Others keep their values to the last bit, even outside of the bounds.
  explored = trees.where_rows(
    has_copied, exploring.clip(explored, priors), inherited
  )
  is_redrawn = jnp.zeros_like(has_copied)
  if config.exploits and config.min_decided_fraction > 0.0:
    is_redrawn = _is_undecided(population, config) & ~has_copied
    redraw_key = jax.random.fold_in(key, 2)
    new_traits = exploring.redraw(redraw_key, inherited, priors, 1.0)
    explored = trees.where_rows(is_redrawn, new_traits, explored)
  generation = Generation(
    number=population.generation + 1,
    games=population.games,
    parent=selection.parent,
    is_redrawn=is_redrawn,
    evidence=selection.evidence,
    inherited=inherited,
    explored=explored,
  )
  population = copy_rows(population, selection.parent, is_redrawn)
  members = population.members._replace(**explored._asdict())
  return population._replace(
    members=members, generation=generation.number
  ), generation


def heritage(members: types.TrainingState) -> dict[str, Any]:
  """Returns what a copy takes from its parent apart from traits, by name."""
  return {
    name: getattr(members, name)
    for name in (
      'params',
      'opt_state',
      'observation_statistics',
      'return_statistics',
      'target_params',
    )
  }


def traits(members: types.TrainingState) -> exploring.Traits:
  """Returns the traits of `members`."""
  return exploring.Traits(members.hyperparameters, members.internal_rewards)


def members_of_traits(traits: exploring.Traits) -> types.TrainingState:
  """Returns members with the given traits [N, ...] and nothing else."""
  nothing: dict[str, Any] = dict.fromkeys(types.TrainingState._fields, ())
  return types.TrainingState(**{**nothing, **traits._asdict()})


def copy_rows(
  population: state_lib.PopulationState,
  parent: types.Array | types.NumpyArray,
  is_redrawn: types.Array | types.NumpyArray,
) -> state_lib.PopulationState:
  """Gives each member the rows of its parent [N], before exploring.

  Args:
    population: the population before the copies.
    parent: int32 [N], itself for no copy.
    is_redrawn: bool [N]; those that drew new traits restart their burn-in, too.

  Raises:
    ValueError: if an argument does not have this shape.
  """
  shapes.check(
    'copy_rows',
    **{'population.ratings': (population.ratings, 'N')},
    parent=(parent, 'N'),
    is_redrawn=(is_redrawn, 'N'),
  )
  has_copied = parent != jnp.arange(parent.shape[0])
  has_changed = has_copied | is_redrawn
  members = population.members
  # One gather reads all rows before any is written. A parent that copies
  # somebody itself in this generation passes on its old parameters.
  rows = trees.take({**heritage(members), **traits(members)._asdict()}, parent)
  return population._replace(
    members=members._replace(**rows),
    ratings=population.ratings[parent],
    payoff=payoff_lib.forget(population.payoff, has_copied),
    returns=population.returns[parent],
    num_returns=population.num_returns[parent],
    games_since_exploitation=jnp.where(
      has_changed, 0, population.games_since_exploitation
    ),
    decided_games=jnp.where(has_changed, 0, population.decided_games),
  )


def _is_undecided(
  population: state_lib.PopulationState,
  config: population_config.PopulationConfig,
) -> types.Array:
  """Returns which members [N] past their burn-in see too few games won."""
  min_decided = (
    config.min_decided_fraction * population.games_since_exploitation
  )
  is_past_burn_in = population.games_since_exploitation >= config.burn_in_games
  return is_past_burn_in & (population.decided_games < min_decided)
