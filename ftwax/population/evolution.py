"""Population based training: copy who is better, then explore from there.

Jaderberg et al., 2017 (arXiv:1711.09846) and, for games, 2019
(arXiv:1807.01281). One call of `evolve` is one generation, a pure function of
key and population that compiles and batches; it reads all rows before it
writes any, so the order of members does not matter. Who copies whom is a
`selection.SelectionRule`, what a copy tries is an `ExploreRule`.
"""

from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp

from ftwax import hyperparameters as hyperparameters_lib
from ftwax import internal_rewards as internal_rewards_lib
from ftwax import trees, types
from ftwax.population import payoff as payoff_lib
from ftwax.population import population_config as config_lib
from ftwax.population import selection as selection_lib
from ftwax.population import state as state_lib


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
  """The record of one generation, which the lineage keeps.

  Attributes:
    number: int32, of the generation, from 1.
    games: int32 [N], games that each member has played.
    parent: int32 [N], the member that each one copied; itself for no copy.
    evidence: float32 [N], the number that the selection rule decided by.
    inherited: traits as they were copied.
    explored: traits that the members continue with.
  """

  number: types.Array
  games: types.Array
  parent: types.Array
  evidence: types.Array
  inherited: Traits
  explored: Traits


class ExploreRule(Protocol):
  """Changes traits that were inherited.

  A rule gets those of all members, and those that copied nobody keep theirs
  whatever it says. It sees the population as it was before anybody copied,
  and may keep what it learns in `explore_state`: a rule that fits a model of
  returns, such as PB2's (Parker-Holder et al., 2020, arXiv:2002.02518), keeps
  its data there. Values are moved inside their bounds afterwards.
  """

  def __call__(
    self,
    key: types.Key,
    inherited: Traits,
    selection: selection_lib.Selection,
    population: state_lib.PopulationState,
    priors: Traits,
    config: config_lib.PopulationConfig,
  ) -> tuple[Traits, Any]:
    """Explores from what was inherited.

    Args:
      key: key for the draws.
      inherited: traits [N, ...].
      selection: who copied whom.
      population: before the generation.
      priors: traits whose leaves are priors.
      config: that of the population.

    Returns:
      The traits explored, and the new `explore_state`.
    """


def perturb(
  key: types.Key,
  inherited: Traits,
  selection: selection_lib.Selection,
  population: state_lib.PopulationState,
  priors: Traits,
  config: config_lib.PopulationConfig,
) -> tuple[Traits, Any]:
  """Scales each value with a small probability; redraws integers."""
  del selection
  probability, factors = config.perturb_probability, config.perturb_factors

  def perturb_member(key: types.Key, traits: Traits) -> Traits:
    keys = jax.random.split(key)
    return Traits(
      hyperparameters_lib.perturb(
        keys[0], traits.hyperparameters, priors.hyperparameters, probability,
        factors,
      ),
      internal_rewards_lib.perturb(
        keys[1], traits.internal_rewards, priors.internal_rewards, probability,
        factors,
      ),
    )  # fmt: skip

  keys = jax.random.split(key, config.num_members)
  return jax.vmap(perturb_member)(keys, inherited), population.explore_state


def resample(
  key: types.Key,
  inherited: Traits,
  selection: selection_lib.Selection,
  population: state_lib.PopulationState,
  priors: Traits,
  config: config_lib.PopulationConfig,
) -> tuple[Traits, Any]:
  """Redraws each value from its prior with some probability."""
  del selection
  probability = config.resample_probability

  def resample_member(key: types.Key, traits: Traits) -> Traits:
    keys = jax.random.split(key)
    return Traits(
      hyperparameters_lib.resample(
        keys[0], traits.hyperparameters, priors.hyperparameters, probability
      ),
      internal_rewards_lib.resample(
        keys[1], traits.internal_rewards, priors.internal_rewards, probability
      ),
    )

  keys = jax.random.split(key, config.num_members)
  return jax.vmap(resample_member)(keys, inherited), population.explore_state


def evolve(
  key: types.Key,
  population: state_lib.PopulationState,
  priors: Traits,
  config: config_lib.PopulationConfig,
  select: selection_lib.SelectionRule = selection_lib.win_probability,
  explore: ExploreRule = perturb,
) -> tuple[state_lib.PopulationState, Generation]:
  """Does one generation.

  A member that copies another takes its parameters, optimizer state,
  statistics, hyperparameters, internal rewards, rating and returns, explores
  from there, and restarts its burn-in; its past results against others are
  forgotten.
  Its own key and step count stay. Ratings of copies are not balanced by
  losses elsewhere: the population did become better.

  Args:
    key: key for the draws.
    population: before the generation.
    priors: traits whose leaves are priors; static.
    config: that of the population; static.
    select: who copies whom.
    explore: what a copy tries.

  Returns:
    The population after the generation, and what it did.
  """
  generation, explore_state = propose(
    key, population, priors, config, select, explore
  )
  population = commit(population, generation)
  return population._replace(explore_state=explore_state), generation


def propose(
  key: types.Key,
  population: state_lib.PopulationState,
  priors: Traits,
  config: config_lib.PopulationConfig,
  select: selection_lib.SelectionRule = selection_lib.win_probability,
  explore: ExploreRule = perturb,
) -> tuple[Generation, Any]:
  """Draws one generation, the first half of `evolve`.

  Args:
    key: see `evolve`, for this and what follows.
    population: before the generation.
    priors: static.
    config: static.
    select: who copies whom.
    explore: what a copy tries.

  Returns:
    What the generation is to do, and the new `explore_state`.
  """
  select_key, explore_key = jax.random.split(key)
  selection = select(select_key, population, config)
  itself = jnp.arange(config.num_members, dtype=jnp.int32)
  if not config.exploits:
    selection = selection._replace(parent=itself)
  has_copied = selection.parent != itself
  inherited = inherit(traits(population.members), selection.parent)
  explored, explore_state = explore(
    explore_key, inherited, selection, population, priors, config
  )
  explored = trees.where_rows(has_copied, clip(explored, priors), inherited)
  generation = Generation(
    number=population.generation + 1,
    games=population.games,
    parent=selection.parent,
    evidence=selection.evidence,
    inherited=inherited,
    explored=explored,
  )
  return generation, explore_state


def commit(
  population: state_lib.PopulationState, generation: Generation
) -> state_lib.PopulationState:
  """Does what a generation says, the second half of `evolve`.

  Args:
    population: before the generation.
    generation: see `propose`.

  Returns:
    The population after it.
  """
  population = copy_rows(population, generation.parent)
  members = population.members._replace(**generation.explored._asdict())
  return population._replace(members=members, generation=generation.number)


def heritage(members: types.TrainingState) -> dict[str, Any]:
  """Returns what a copy takes from its parent beside its traits, by name."""
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
  """Returns what evolution may change of `members`."""
  return Traits(members.hyperparameters, members.internal_rewards)


def inherit(tree: Any, parent: types.Array | types.NumpyArray) -> Any:
  """Returns the rows of their parents [N] for leaves [N, ...]."""
  return jax.tree.map(lambda leaf: leaf[parent], tree)


def clip(explored: Traits, priors: Traits) -> Traits:
  """Moves each value inside the bounds of its prior."""
  return Traits(
    hyperparameters_lib.clip(explored.hyperparameters, priors.hyperparameters),
    jax.vmap(
      lambda weights: internal_rewards_lib.clip(
        weights, priors.internal_rewards
      )
    )(explored.internal_rewards),
  )


def copy_rows(
  population: state_lib.PopulationState, parent: types.Array | types.NumpyArray
) -> state_lib.PopulationState:
  """Gives each member the rows of its parent [N], before it explores."""
  has_copied = parent != jnp.arange(parent.shape[0])
  members = population.members
  copied = inherit({**heritage(members), **traits(members)._asdict()}, parent)
  return population._replace(
    members=members._replace(**copied),
    ratings=population.ratings[parent],
    payoff=payoff_lib.forget(population.payoff, has_copied),
    returns=population.returns[parent],
    num_returns=population.num_returns[parent],
    games_since_exploitation=jnp.where(
      has_copied, 0, population.games_since_exploitation
    ),
  )
