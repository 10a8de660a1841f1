"""Selection of parents: the exploit step of population based training.

A selection rule sees all members at once and returns a parent for each. A
member that does not copy is its own parent.
"""

import dataclasses
import statistics
from typing import ClassVar, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from ftwax import parts, registry, shapes, types
from ftwax.population import ratings as ratings_lib
from ftwax.population import state as state_lib


class Selection(NamedTuple):
  """Parents of all members.

  Attributes:
    parent: int32 [N], the member that each one copies; itself for no copy.
    evidence: float32 [N], the value on which the rule decided.
  """

  parent: types.Array
  evidence: types.Array


class SelectionRule(Protocol):
  """Selects parents from the records of all members."""

  def __call__(
    self,
    key: types.Key,
    population: state_lib.PopulationState,
    rating_deviation: float,
  ) -> Selection:
    """Returns a parent for each member.

    Args:
      key: random key.
      population: all members. Those that have not played enough since they
        last copied keep their rows, whatever the rule says.
      rating_deviation: of the noise of a rating, in Elo points.
    """


@registry.register('rule.win_probability')
@dataclasses.dataclass(frozen=True)
class WinProbability(parts.Part):
  """Copies a random other member that would clearly win.

  Jaderberg et al., 2019 (arXiv:1807.01281): each member past its burn-in is
  compared with another one, sampled uniformly, and copies it if a team of the
  other's copies would win with a probability above the threshold. The evidence
  is that probability or, with `confidence`, its lower limit.

  Attributes:
    threshold: win probability above which a member copies another.
    confidence: one-sided confidence at which the win probability has to be
      above the threshold even if ratings are off by the noise of online
      updates; 0.5 is to trust the estimate.
  """

  name: ClassVar[str] = 'win_probability'

  threshold: float = parts.option(0.7, above=0.5, below=1)
  confidence: float = parts.option(0.5, low=0.5, below=1)

  def __call__(
    self,
    key: types.Key,
    population: state_lib.PopulationState,
    rating_deviation: float,
  ) -> Selection:
    """Returns a parent for each member."""
    # Another member for each; no offset leads back to the member itself.
    size = population.ratings.shape[0]
    ahead = jax.random.randint(key, (size,), 1, size)
    candidate = (jnp.arange(size) + ahead) % size
    quantile = statistics.NormalDist().inv_cdf(self.confidence)
    loses = 1.0 - ratings_lib.pairwise_win_probability(
      population.ratings,
      population.team_size,
      handicap=quantile * rating_deviation,
    )
    evidence = jnp.take_along_axis(loses, candidate[:, None], axis=1)[:, 0]
    copies = evidence > self.threshold
    return _select(candidate, evidence, copies)


@registry.register('rule.truncation')
@dataclasses.dataclass(frozen=True)
class Truncation(parts.Part):
  """Replaces members of the bottom by random members of the top.

  Jaderberg et al., 2017 (arXiv:1711.09846), section 4.1.1: members are ranked
  by their mean return. Top and bottom have at least one member each; equal
  members do not copy each other. The evidence is the gain in mean return. With
  `confidence` it must be significant, too.

  Attributes:
    fraction: size of the top and of the bottom.
    confidence: above 0.5, the p-value of a t-test has to be below one minus
      this.
  """

  name: ClassVar[str] = 'truncation'

  fraction: float = parts.option(0.2, above=0, high=0.5)
  confidence: float = parts.option(0.5, low=0.5, below=1)

  def __call__(
    self,
    key: types.Key,
    population: state_lib.PopulationState,
    rating_deviation: float,
  ) -> Selection:
    """Returns a parent for each member."""
    del rating_deviation
    num_members = population.ratings.shape[0]
    num_top = max(int(self.fraction * num_members), 1)
    fitness = state_lib.mean_returns(population)
    order = jnp.argsort(fitness)
    # The inverse permutation; rank 0 is the lowest return.
    rank = jnp.argsort(order)
    draws = jax.random.randint(key, (num_members,), 0, num_top)
    candidate = order[num_members - 1 - draws]
    gain = fitness[candidate] - fitness
    # NaN, and hence not positive, between two members without returns.
    copies = (rank < num_top) & (gain > 0.0)
    if self.confidence > 0.5:
      returns, is_set = population.returns, state_lib.has_return(population)
      p_value = welch_p_value(
        returns[candidate], is_set[candidate], returns, is_set
      )
      copies &= p_value < 1.0 - self.confidence
    return _select(candidate, gain, copies)


def welch_p_value(
  high: types.Array,
  is_high: types.Array,
  low: types.Array,
  is_low: types.Array,
) -> types.Array:
  """Returns the p-value of Welch's one-sided t-test for `high` over `low`.

  Args:
    high: samples [..., K].
    is_high: bool [..., K], which samples count.
    low: samples [..., L].
    is_low: bool [..., L], which samples count.

  Returns:
    p-values [...]; 1 where a side has fewer than two samples.

  Raises:
    ValueError: if an argument does not have this shape.
  """
  shapes.check(
    'welch_p_value',
    high=(high, '... K'),
    is_high=(is_high, '... K'),
    low=(low, '... L'),
    is_low=(is_low, '... L'),
  )
  mean_high, square_high, dof_high = _mean_and_square_error(high, is_high)
  mean_low, square_low, dof_low = _mean_and_square_error(low, is_low)
  square = square_high + square_low
  # If all samples of a side are equal, any difference is significant.
  tiny = np.finfo(np.float32).tiny
  t = (mean_high - mean_low) / jnp.sqrt(jnp.maximum(square, tiny))
  # The Welch-Satterthwaite equation in terms of shares of the sum, since the
  # squares of its terms could overflow or underflow.
  share = square_high / jnp.maximum(square, tiny)
  dof = 1.0 / jnp.maximum(
    jnp.square(share) / dof_high + jnp.square(1.0 - share) / dof_low, tiny
  )
  # The p-value is zero beyond this, while the square of t would overflow.
  t_square = jnp.square(jnp.clip(t, -1e6, 1e6))
  # The tail of Student's t beyond |t|, as a regularized incomplete beta
  # function.
  tail = 0.5 * jax.scipy.special.betainc(0.5 * dof, 0.5, dof / (dof + t_square))
  p_value = jnp.where(t > 0.0, tail, 1.0 - tail)
  has_samples = (jnp.sum(is_high, -1) > 1) & (jnp.sum(is_low, -1) > 1)
  return jnp.where(has_samples, p_value, 1.0)


def _mean_and_square_error(
  values: types.Array, is_set: types.Array
) -> tuple[types.Array, types.Array, types.Array]:
  """Returns mean, squared standard error and degrees of freedom [...]."""
  count = jnp.maximum(jnp.sum(is_set, axis=-1).astype(jnp.float32), 1.0)
  mean = jnp.sum(jnp.where(is_set, values, 0.0), axis=-1) / count
  errors = jnp.where(is_set, values - jnp.expand_dims(mean, -1), 0.0)
  dof = jnp.maximum(count - 1.0, 1.0)
  return mean, jnp.sum(jnp.square(errors), axis=-1) / dof / count, dof


def _select(
  candidate: types.Array, evidence: types.Array, copies: types.Array
) -> Selection:
  """Selects the candidates of members that copy."""
  itself = jnp.arange(candidate.shape[0])
  parent = jnp.where(copies, candidate, itself)
  return Selection(parent.astype(jnp.int32), evidence)
