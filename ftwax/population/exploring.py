"""Exploring: how a member changes what it has inherited from its parent.

Jaderberg et al., 2017 (arXiv:1711.09846), section 3.2.
"""

import dataclasses
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import optax

from ftwax import hyperparameters as hyperparameters_lib
from ftwax import internal_rewards as internal_rewards_lib
from ftwax import parts, registry, types


class Traits(NamedTuple):
  """Values of a member that evolution may change, or their priors.

  Attributes:
    hyperparameters: scalars [N], or a prior for each.
    internal_rewards: float32 [N, num_events], or their prior or priors; see
      `internal_rewards.sample`.
  """

  hyperparameters: Any
  internal_rewards: Any


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
