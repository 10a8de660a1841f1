"""Selection of parents: the exploit half of population based training.

A selection rule sees all members at once and returns a parent for each. A
member that copies nobody is its own parent.
"""

from typing import NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from ftwax import types
from ftwax.population import population_config as config_lib
from ftwax.population import ratings as ratings_lib
from ftwax.population import state as state_lib


class Selection(NamedTuple):
  """Parents of all members.

  Attributes:
    parent: int32 [N], the member that each one copies; itself for no copy.
    evidence: float32 [N], the number that the rule decided by.
  """

  parent: types.Array
  evidence: types.Array


class SelectionRule(Protocol):
  """Chooses parents from the records of all members."""

  def __call__(
    self,
    key: types.Key,
    population: state_lib.PopulationState,
    config: config_lib.PopulationConfig,
  ) -> Selection:
    """Returns a parent for each member."""


def win_probability(
  key: types.Key,
  population: state_lib.PopulationState,
  config: config_lib.PopulationConfig,
) -> Selection:
  """Copies a random other member that would win by a margin.

  Jaderberg et al., 2019 (arXiv:1807.01281): a member past its burn-in meets
  one drawn uniformly, a team of copies of each, and copies it when the other
  would win with a probability above the threshold. The evidence is that
  probability.
  """
  candidate = _other_members(key, config.num_members)
  loses = 1.0 - ratings_lib.pairwise_win_probability(
    population.ratings, population.team_size
  )
  evidence = jnp.take_along_axis(loses, candidate[:, None], axis=1)[:, 0]
  copies = evidence > config.win_probability_threshold
  return _select(candidate, evidence, copies, population, config)


def truncation(
  key: types.Key,
  population: state_lib.PopulationState,
  config: config_lib.PopulationConfig,
) -> Selection:
  """Copies a random member of the top, from the bottom.

  Jaderberg et al., 2017 (arXiv:1711.09846), section 4.1.1: members are ranked
  by their mean return. At least one counts as the top and one as the bottom;
  equals do not copy each other. The evidence is the gain in mean return.
  """
  num_members = config.num_members
  num_top = max(int(config.truncation_fraction * num_members), 1)
  fitness = state_lib.mean_returns(population)
  order = jnp.argsort(fitness)
  rank = jnp.argsort(order)
  draws = jax.random.randint(key, (num_members,), 0, num_top)
  candidate = order[num_members - 1 - draws]
  gain = fitness[candidate] - fitness
  copies = (rank < num_top) & (gain > 0.0)
  return _select(candidate, gain, copies, population, config)


def t_test(
  key: types.Key,
  population: state_lib.PopulationState,
  config: config_lib.PopulationConfig,
) -> Selection:
  """Copies a random other member whose returns are higher beyond chance.

  Jaderberg et al., 2017 (arXiv:1711.09846), section 4.1.1: Welch's t-test,
  one-sided, on the last returns. The evidence is the p-value.
  """
  candidate = _other_members(key, config.num_members)
  is_kept = state_lib.kept_returns(population)
  p_value = welch_p_value(
    population.returns[candidate], is_kept[candidate],
    population.returns, is_kept,
  )  # fmt: skip
  copies = p_value < config.t_test_level
  return _select(candidate, p_value, copies, population, config)


def welch_p_value(
  high: types.Array,
  is_high: types.Array,
  low: types.Array,
  is_low: types.Array,
) -> types.Array:
  """Returns how likely such a lead of `high` over `low` is by chance.

  Args:
    high: samples [..., K].
    is_high: bool [..., K], which of them count.
    low: samples [..., L].
    is_low: bool [..., L].

  Returns:
    p-values [...] of Welch's one-sided t-test; 1 where a side has fewer than
    two samples.
  """
  mean_high, square_high, dof_high = _mean_and_square_error(high, is_high)
  mean_low, square_low, dof_low = _mean_and_square_error(low, is_low)
  square = square_high + square_low
  # Of equal samples on each side, any lead is beyond chance.
  tiny = np.finfo(np.float32).tiny
  t = (mean_high - mean_low) / jnp.sqrt(jnp.maximum(square, tiny))
  share = square_high / jnp.maximum(square, tiny)
  dof = 1.0 / jnp.maximum(
    jnp.square(share) / dof_high + jnp.square(1.0 - share) / dof_low, tiny
  )
  # Beyond this the p-value is zero, while the square of t overflows.
  t_square = jnp.square(jnp.clip(t, -1e6, 1e6))
  tail = 0.5 * jax.scipy.special.betainc(0.5 * dof, 0.5, dof / (dof + t_square))
  p_value = jnp.where(t > 0.0, tail, 1.0 - tail)
  has_samples = (jnp.sum(is_high, -1) > 1) & (jnp.sum(is_low, -1) > 1)
  return jnp.where(has_samples, p_value, 1.0)


def _mean_and_square_error(
  values: types.Array, is_kept: types.Array
) -> tuple[types.Array, types.Array, types.Array]:
  """Returns mean, squared standard error and degrees of freedom [...]."""
  count = jnp.maximum(jnp.sum(is_kept, axis=-1).astype(jnp.float32), 1.0)
  mean = jnp.sum(jnp.where(is_kept, values, 0.0), axis=-1) / count
  errors = jnp.where(is_kept, values - jnp.expand_dims(mean, -1), 0.0)
  dof = jnp.maximum(count - 1.0, 1.0)
  return mean, jnp.sum(jnp.square(errors), axis=-1) / dof / count, dof


def _other_members(key: types.Key, num_members: int) -> types.Array:
  """Draws for each member another one, uniformly; int32 [N]."""
  ahead = jax.random.randint(key, (num_members,), 1, num_members)
  return (jnp.arange(num_members) + ahead) % num_members


def _select(
  candidate: types.Array,
  evidence: types.Array,
  copies: types.Array,
  population: state_lib.PopulationState,
  config: config_lib.PopulationConfig,
) -> Selection:
  """Returns the candidates of those that copy and are past their burn-in."""
  is_ready = population.games_since_exploitation >= config.burn_in_games
  itself = jnp.arange(config.num_members)
  parent = jnp.where(copies & is_ready, candidate, itself)
  return Selection(parent.astype(jnp.int32), evidence)
