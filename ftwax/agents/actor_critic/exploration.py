"""Exploration of agents that learn action values.

Its numbers are hyperparameters, which actors read from their variables, so that
a population may evolve them.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from ftwax import distributions, parts, registry, trees, types


@registry.register('exploration.ladder')
@dataclasses.dataclass(frozen=True)
class EpsilonLadder(parts.Part):
  """Gives each row of an actor an epsilon of its own.

  Row i of N takes a random allowed action with probability
  `epsilon ** (1 + exponent * i / (N - 1))` (Horgan et al., 2018,
  arXiv:1803.00933, section 4.1).

  Attributes:
    epsilon: of the first row, which explores most.
    exponent: how much less the last row explores; 0 for one epsilon.
  """

  epsilon: parts.Scalar = parts.scalar(0.4, high=1.0)
  exponent: parts.Scalar = 7.0

  def epsilons(self, num_rows: int) -> types.Array:
    """Returns the epsilon of each row, float32 [num_rows]."""
    share = jnp.arange(num_rows) / max(1, num_rows - 1)
    epsilon: Any = self.epsilon
    powers: types.Array = epsilon ** (1.0 + self.exponent * share)
    return powers

  def choose(
    self, key: types.Key, action_values: types.ArrayTree
  ) -> types.ArrayTree:
    """Returns actions, int32 [B] for each part.

    All parts of an action are random, or none is.

    Args:
      key: random key.
      action_values: float32 [B, num_actions] for each part, with forbidden
        actions as `distributions.mask_logits` marks them.
    """
    explore_key, action_key = jax.random.split(key)
    num_rows = jax.tree.leaves(action_values)[0].shape[0]
    explores = jax.random.uniform(explore_key, (num_rows,)) < self.epsilons(
      num_rows
    )
    random = distributions.sample(
      action_key, distributions.uniform_over_allowed(action_values)
    )
    chosen: types.ArrayTree = trees.where_rows(
      explores, random, distributions.mode(action_values)
    )
    return chosen
