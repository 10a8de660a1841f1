"""Bandits in JAX, for agents that learn within a trial.

The task of Duan et al., 2016 (arXiv:1611.02779, section 4.1): arms that pay one
or nothing, with probabilities drawn anew for each trial. A pull is an episode.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from dm_env import specs

from ftwax import types
from ftwax.environments import functional, trials


class BanditState(NamedTuple):
  """State of a trial.

  Attributes:
    probability: float32 [num_arms], that an arm pays.
    num_pulls: int32 [], pulls done.
    key: for the pulls to come.
  """

  probability: types.Array
  num_pulls: types.Array
  key: types.Key


def make(
  num_pulls: int = 10, num_arms: int = 2
) -> functional.FunctionalEnvironment:
  """Makes trials of `num_pulls` pulls.

  Args:
    num_pulls: of a trial, after which it terminates.
    num_arms: their probabilities are uniform in [0, 1] and independent.

  Returns:
    The environment; all that is seen is the entry `trials.EPISODE_START`,
    which is always 1, besides what agents see of their own.

  Raises:
    ValueError: if there is no pull or no choice.
  """
  for name, value, least in (
    ('num_pulls', num_pulls, 1),
    ('num_arms', num_arms, 2),
  ):
    if value < least:
      raise ValueError(
        f'{name} ({value}) must be at least {least}; choose {least}.'
      )
  observation = {trials.EPISODE_START: jnp.ones((), jnp.float32)}

  def reset(key):
    key, arms_key = jax.random.split(key)
    state = BanditState(
      probability=jax.random.uniform(arms_key, (num_arms,)),
      num_pulls=jnp.zeros((), jnp.int32),
      key=key,
    )
    return state, functional.restart(observation)

  def step(state, action):
    key, pull_key = jax.random.split(state.key)
    pays = jax.random.bernoulli(pull_key, state.probability[action])
    state = BanditState(state.probability, state.num_pulls + 1, key)
    return state, functional.transition(
      pays.astype(jnp.float32),
      observation,
      is_terminal=state.num_pulls == num_pulls,
    )

  return functional.FunctionalEnvironment(_make_spec(num_arms), reset, step)


def best_return(num_pulls: int) -> float:
  """Returns the mean return of the best player of two-armed trials.

  It knows how trials are drawn, and is found by dynamic programming over what
  may have been seen (Bellman, 1956). It is what Gittins indices are for trials
  that never end.
  """

  @functools.cache
  def value(wins, losses, other_wins, other_losses):
    pulls = wins + losses + other_wins + other_losses
    if pulls == num_pulls:
      return 0.0
    # What a uniform prior and Bayes' rule expect of each arm.
    chance = (wins + 1) / (wins + losses + 2)
    other_chance = (other_wins + 1) / (other_wins + other_losses + 2)
    other = other_wins, other_losses
    pull = chance * (1 + value(wins + 1, losses, *other)) + (
      1 - chance
    ) * value(wins, losses + 1, *other)
    pull_other = other_chance * (
      1 + value(wins, losses, other_wins + 1, other_losses)
    ) + (1 - other_chance) * value(wins, losses, other_wins, other_losses + 1)
    return max(pull, pull_other)

  return value(0, 0, 0, 0)


def thompson_return(num_pulls: int, num_trials: int, seed: int) -> float:
  """Returns the mean return of Thompson sampling in two-armed trials.

  It pulls the arm that is best in a draw from what is known of the arms.
  """
  rng = np.random.default_rng(seed)
  rows = np.arange(num_trials)
  probability = rng.uniform(size=(num_trials, 2))
  counts = np.ones((2, num_trials, 2))  # Wins and losses, with the prior's.
  for _ in range(num_pulls):
    arm = np.argmax(rng.beta(*counts), axis=-1)
    loses = rng.uniform(size=num_trials) >= probability[rows, arm]
    counts[loses.astype(int), rows, arm] += 1
  return float(np.mean(np.sum(counts[0] - 1, axis=-1)))


def _make_spec(num_arms: int) -> types.EnvironmentSpec:
  start = specs.BoundedArray((), np.float32, 0, 1, trials.EPISODE_START)
  return types.EnvironmentSpec(
    observations={trials.EPISODE_START: start},
    actions=specs.DiscreteArray(num_arms, np.int32, 'action'),
    rewards=specs.BoundedArray((), np.float32, 0, 1, 'reward'),
    discounts=specs.BoundedArray((), np.float32, 0, 1, 'discount'),
  )
