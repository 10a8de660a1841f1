"""Population based training: exploit better members, then explore.

Jaderberg et al., 2017 (arXiv:1711.09846) and, for games, 2019
(arXiv:1807.01281). One call of `evolve` is one generation, a pure function of
key and population that can be jitted and vmapped. It reads all rows before it
writes any, so that the order of members does not matter. A
`selection.SelectionRule` decides which members copy which, an `ExploreRule`
decides how copies explore.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import optax

from ftwax import hyperparameters as hyperparameters_lib
from ftwax import internal_rewards as internal_rewards_lib
from ftwax import parts, registry, shapes, trees, types
from ftwax.population import payoff as payoff_lib
from ftwax.population import selection as selection_lib
from ftwax.population import state as state_lib

if TYPE_CHECKING:
  from ftwax.population import population_config as config_lib


class Traits(NamedTuple):
  """Values of a member that evolution may change, or their priors.

  Attributes:
    hyperparameters: scalars [N], or a prior for each.
    internal_rewards: float32 [N, num_events], or their prior or priors; see
      `internal_rewards.sample`.
  """

  hyperparameters: Any
  internal_rewards: Any


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
  inherited: Traits
  explored: Traits


# Runs one generation with all options given; see `evolve`.
Evolve = Callable[
  [state_lib.PopulationState], tuple[state_lib.PopulationState, Generation]
]


class ExploreRule(Protocol):
  """Explores from inherited traits.

  A rule gets the traits of all members; those that did not copy keep theirs
  whatever it returns. Values are clipped to their bounds afterwards.
  """

  def __call__(
    self, key: types.Key, inherited: Traits, priors: Traits
  ) -> Traits:
    """Returns explored traits [N, ...].

    Args:
      key: random key.
      inherited: traits [N, ...], after crossover if there is any.
      priors: traits whose leaves are priors.
    """


@registry.register('rule.perturb')
@dataclasses.dataclass(frozen=True)
class Perturb(parts.Part):
  """Scales each value with a small probability; integers are resampled.

  Attributes:
    probability: probability of perturbing each value, independently of the
      others.
    factors: a perturbed value is scaled by one of the two.
  """

  probability: float = parts.option(0.05, low=0, high=1)
  factors: tuple[float, float] = parts.option((0.8, 1.2), above=0)

  def __call__(
    self, key: types.Key, inherited: Traits, priors: Traits
  ) -> Traits:
    """Explores from inherited traits; see `ExploreRule`."""
    functions = Traits(
      hyperparameters_lib.perturb, internal_rewards_lib.perturb
    )
    return _change(
      functions, key, inherited, priors, self.probability, self.factors
    )


@registry.register('rule.resample')
@dataclasses.dataclass(frozen=True)
class Resample(parts.Part):
  """Resamples each value from its prior with some probability.

  Attributes:
    probability: of each value, independently of the others.
  """

  probability: float = parts.option(0.25, low=0, high=1)

  def __call__(
    self, key: types.Key, inherited: Traits, priors: Traits
  ) -> Traits:
    """Explores from inherited traits; see `ExploreRule`."""
    return redraw(key, inherited, priors, self.probability)


def redraw(
  key: types.Key, traits: Traits, priors: Traits, probability: float
) -> Traits:
  """Samples each trait [N, ...] anew from its prior with some probability."""
  functions = Traits(
    hyperparameters_lib.resample, internal_rewards_lib.resample
  )
  return _change(functions, key, traits, priors, probability)


def _change(
  functions: Traits,
  key: types.Key,
  traits: Traits,
  priors: Traits,
  *arguments: Any,
) -> Traits:
  """Applies `function(key, values, priors, *arguments)` to each member.

  There is a function for each kind of traits [N, ...].
  """

  def change_member(key: types.Key, traits: Traits) -> Traits:
    keys = jax.random.split(key)
    return Traits(
      *(
        function(keys[kind], traits[kind], priors[kind], *arguments)
        for kind, function in enumerate(functions)
      )
    )

  keys = jax.random.split(key, len(traits.internal_rewards))
  return jax.vmap(change_member)(keys, traits)


def cross(
  key: types.Key, inherited: Traits, previous: Traits, probability: float
) -> Traits:
  """Crosses the traits [N, ...] of members with those of their parents.

  This is uniform crossover (Syswerda, 1989). It changes inherited traits less
  as members become alike.

  Args:
    key: random key.
    inherited: traits of the parents.
    previous: traits of the members before they copied.
    probability: probability of keeping each of a member's own values,
      independently of the others.

  Returns:
    The mixed traits.
  """
  return jax.tree.map(
    lambda key, inherited, previous: jnp.where(
      jax.random.bernoulli(key, probability, inherited.shape),
      previous,
      inherited,
    ),
    optax.tree.split_key_like(key, inherited),
    inherited,
    previous,
  )


def evolve(
  key: types.Key,
  population: state_lib.PopulationState,
  priors: Traits,
  config: config_lib.PopulationConfig,
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
  selection = config.select(select_key, population, config)
  itself = jnp.arange(config.num_members, dtype=jnp.int32)
  if not config.exploits:
    # The rule is evaluated all the same, for the evidence in the record.
    selection = selection._replace(parent=itself)
  has_copied = selection.parent != itself
  previous = traits(population.members)  # [N, ...]
  # The record keeps what the parents had; crossover counts as exploring.
  inherited = start = trees.take(previous, selection.parent)
  if config.crossover_probability > 0.0:
    # Keys of optional draws are folded in, so that the other draws are the same
    # with and without them. Folding in 0 and 1 gives the keys of the split.
    cross_key = jax.random.fold_in(key, 3)
    start = cross(cross_key, inherited, previous, config.crossover_probability)
  explored = config.explore(explore_key, start, priors)
  # Others keep their values to the last bit, even outside of the bounds.
  explored = trees.where_rows(has_copied, clip(explored, priors), inherited)
  is_redrawn = jnp.zeros_like(has_copied)
  if config.exploits and config.min_decided_fraction > 0.0:
    is_redrawn = _is_undecided(population, config) & ~has_copied
    redraw_key = jax.random.fold_in(key, 2)
    new_traits = redraw(redraw_key, inherited, priors, 1.0)
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
    )
  }


def traits(members: types.TrainingState) -> Traits:
  """Returns the traits of `members`."""
  return Traits(members.hyperparameters, members.internal_rewards)


def members_of_traits(traits: Traits) -> types.TrainingState:
  """Returns members with the given traits [N, ...] and nothing else."""
  nothing: dict[str, Any] = dict.fromkeys(types.TrainingState._fields, ())
  return types.TrainingState(**{**nothing, **traits._asdict()})


def clip(explored: Traits, priors: Traits) -> Traits:
  """Clips each value to the bounds of its prior."""
  return Traits(
    hyperparameters_lib.clip(explored.hyperparameters, priors.hyperparameters),
    jax.vmap(
      lambda weights: internal_rewards_lib.clip(
        weights, priors.internal_rewards
      )
    )(explored.internal_rewards),
  )


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
  """
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
  population: state_lib.PopulationState, config: config_lib.PopulationConfig
) -> types.Array:
  """Returns which members [N] past their burn-in see too few games won."""
  min_decided = (
    config.min_decided_fraction * population.games_since_exploitation
  )
  return selection_lib.is_past_burn_in(population, config) & (
    population.decided_games < min_decided
  )
