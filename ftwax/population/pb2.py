"""Explores hyperparameters by a model of what they bring.

Population based bandits, PB2 (Parker-Holder et al., 2020, arXiv:2002.02518): a
Gaussian process predicts the gain in return over a generation from the values
that a member had, and from time, since what is good changes. A copy takes the
best of random values by an upper confidence bound. Unlike in the paper, copies
of one generation differ by the values and the optimism that each draws.
"""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ftwax import hyperparameters as hyperparameters_lib
from ftwax import types
from ftwax.population import evolution
from ftwax.population import population_config as config_lib
from ftwax.population import selection as selection_lib
from ftwax.population import state as state_lib

# Variance of an observation that is not there yet, beside gains of variance 1.
_UNSEEN = 1e6


class Observations(NamedTuple):
  """The last `W` gains, in any order; the state of the rule.

  Attributes:
    values: float32 [W, D], hyperparameters, scaled to [0, 1].
    time: float32 [W], generations.
    gain: float32 [W], gains in fitness.
    noise: float32 [W], variance of each.
    num_seen: int32 [], observations so far.
    before: float32 [N], fitness of each member after the last generation.
  """

  values: types.Array
  time: types.Array
  gain: types.Array
  noise: types.Array
  num_seen: types.Array
  before: types.Array


@dataclasses.dataclass(frozen=True)
class PB2:
  """An explore rule that models uniform and log-uniform hyperparameters.

  Other values are perturbed. Fitness is the mean return, or else the rating.

  Attributes:
    num_kept: W, number of observations.
    num_candidates: random values among which a copy takes the best.
    length: distance of scaled values over which gains are alike.
    forgetting: share by which gains are less alike two generations apart.
    noise: variance of an observation, of gains with variance 1.
  """

  num_kept: int = 64
  num_candidates: int = 500
  length: float = 0.3
  forgetting: float = 0.02
  noise: float = 0.1

  def init(self, num_members: int, priors: evolution.Traits) -> Observations:
    """Returns the state at the start of a run: no observations."""
    zeros = jnp.zeros((self.num_kept,))
    values = jnp.zeros((self.num_kept, len(_modeled(priors))))
    before = jnp.full((num_members,), jnp.nan)
    return Observations(
      values, zeros, zeros, zeros + _UNSEEN, jnp.int32(0), before
    )

  def __call__(
    self,
    key: types.Key,
    inherited: evolution.Traits,
    selection: selection_lib.Selection,
    population: state_lib.PopulationState,
    priors: evolution.Traits,
    config: config_lib.PopulationConfig,
  ) -> tuple[evolution.Traits, Any]:
    """Observes this generation's gains, and explores; see `ExploreRule`."""
    keys = jax.random.split(key, 1 + config.num_members)
    explored, _ = evolution.perturb(
      keys[0], inherited, selection, population, priors, config
    )
    now = population.generation.astype(jnp.float32)
    fitness = selection_lib.mean_returns_or_ratings(population)
    seen: Observations = population.explore_state
    seen = self._observe(seen, population.members, fitness, now, priors)
    chosen = jax.vmap(lambda key: self._choose(key, seen, now))(keys[1:])
    values = explored.hyperparameters._replace(
      **{
        name: _from_unit(prior, chosen[:, index])
        for index, (name, prior) in enumerate(_modeled(priors).items())
      }
    )
    # A copy goes on from what its parent has reached.
    seen = seen._replace(before=fitness[selection.parent])
    return explored._replace(hyperparameters=values), seen

  def _observe(
    self,
    seen: Observations,
    members: types.TrainingState,
    fitness: types.Array,
    now: types.Array,
    priors: evolution.Traits,
  ) -> Observations:
    gain = fitness - seen.before
    is_new = jnp.isfinite(gain)
    slot = (seen.num_seen + jnp.cumsum(is_new) - 1) % self.num_kept
    # Writes to slot W, which does not exist, are dropped.
    slot = jnp.where(is_new, slot, self.num_kept)
    values = [
      _to_unit(prior, getattr(members.hyperparameters, name))
      for name, prior in _modeled(priors).items()
    ]
    return seen._replace(
      values=seen.values.at[slot].set(jnp.stack(values, axis=1), mode='drop'),
      time=seen.time.at[slot].set(now, mode='drop'),
      gain=seen.gain.at[slot].set(gain, mode='drop'),
      noise=seen.noise.at[slot].set(self.noise, mode='drop'),
      num_seen=seen.num_seen + jnp.sum(is_new, dtype=jnp.int32),
    )

  def _choose(
    self, key: types.Key, seen: Observations, now: types.Array
  ) -> types.Array:
    """Returns the values [D] of a copy, scaled to [0, 1]."""
    is_seen = seen.noise < _UNSEEN
    mean = jnp.mean(seen.gain, where=is_seen)
    scale = jnp.std(seen.gain, where=is_seen) + 1e-6
    gain = jnp.where(is_seen, (seen.gain - mean) / scale, 0.0)
    keys = jax.random.split(key)
    shape = (self.num_candidates, seen.values.shape[1])
    candidates = jax.random.uniform(keys[0], shape)
    own = self._alike(seen.values, seen.time, seen) + jnp.diag(seen.noise)
    across = self._alike(candidates, now[None], seen)  # [C, W]
    solved = jnp.linalg.solve(own, across.T).T
    variance = jnp.maximum(1.0 - jnp.sum(across * solved, axis=1), 0.0)
    optimism = jax.random.exponential(keys[1])
    return candidates[jnp.argmax(solved @ gain + optimism * jnp.sqrt(variance))]

  def _alike(
    self, values: types.Array, time: types.Array, seen: Observations
  ) -> types.Array:
    """Returns the covariances of gains with those that were seen, [C, W]."""
    square = jnp.sum(jnp.square(values[:, None] - seen.values[None]), axis=-1)
    apart = jnp.abs(time[:, None] - seen.time[None])
    age = (1.0 - self.forgetting) ** (0.5 * apart)
    return age * jnp.exp(-0.5 * square / self.length**2)


def _modeled(priors: evolution.Traits) -> dict[str, Any]:
  """Returns the priors that are modeled, by name."""
  kinds = hyperparameters_lib.Uniform, hyperparameters_lib.LogUniform
  return {
    name: prior
    for name, prior in priors.hyperparameters._asdict().items()
    if isinstance(prior, kinds) and prior.limits[0] < prior.limits[1]
  }


def _to_unit(prior: Any, value: Any) -> types.Array:
  low, high = prior.limits
  if isinstance(prior, hyperparameters_lib.LogUniform) and low > 0.0:
    return jnp.log(value / low) / jnp.log(high / low)
  return (value - low) / (high - low)


def _from_unit(prior: Any, unit: types.Array) -> types.Array:
  low, high = prior.limits
  if isinstance(prior, hyperparameters_lib.LogUniform) and low > 0.0:
    return low * (high / low) ** unit
  return low + unit * (high - low)
