"""Bandits in JAX, for agents that learn within a trial.

The task of Duan et al., 2016 (arXiv:1611.02779, section 4.1): each arm pays 1
or 0, with a probability that is redrawn for every trial. One pull is one
episode of the trial; see `trials`.
"""

import functools
from typing import NamedTuple

import dm_env
import jax
import jax.numpy as jnp
import numpy as np
from dm_env import specs

from ftwax import registry, types
from ftwax.environments import functional, specified, trials


class BanditState(NamedTuple):
  """State of a trial.

  Attributes:
    probability: float32 [num_arms], the probability that each arm pays.
    num_pulls: int32 [], number of pulls so far.
    key: uint32 [2], random key of the remaining pulls.
  """

  probability: types.Array
  num_pulls: types.Array
  key: types.Key


@registry.register('bandits.game')
def make(
  num_pulls: int = 10, num_arms: int = 2
) -> functional.FunctionalEnvironment:
  """Makes trials of `num_pulls` pulls.

  Args:
    num_pulls: number of pulls in a trial, at least 1.
    num_arms: number of arms, at least 2; their probabilities are independent
      and uniform in [0, 1].

  Returns:
    The environment. Its observation is a dict whose only entry,
    `trials.EPISODE_START`, is always 1. Agents learn from their previous action
    and reward, which every network receives.

  Raises:
    ValueError: if there are no pulls or fewer than two arms.
  """
  specified.check_at_least(1, num_pulls=num_pulls)
  specified.check_at_least(2, num_arms=num_arms)
  observation = {trials.EPISODE_START: jnp.ones((), jnp.float32)}

  def reset(key: types.Key) -> tuple[BanditState, dm_env.TimeStep]:
    key, arms_key = jax.random.split(key)
    state = BanditState(
      probability=jax.random.uniform(arms_key, (num_arms,)),
      num_pulls=jnp.zeros((), jnp.int32),
      key=key,
    )
    return state, functional.restart(observation)

  def step(
    state: BanditState, action: types.Array
  ) -> tuple[BanditState, dm_env.TimeStep]:
    key, pull_key = jax.random.split(state.key)
    pays = jax.random.bernoulli(pull_key, state.probability[action])
    state = BanditState(state.probability, state.num_pulls + 1, key)
    return state, functional.transition(
      pays.astype(jnp.float32),
      observation,
      is_terminal=state.num_pulls == num_pulls,
    )

  start = specs.BoundedArray((), np.float32, 0, 1, trials.EPISODE_START)
  spec = specified.make_spec(
    {trials.EPISODE_START: start}, num_arms, reward_range=(0, 1)
  )
  return functional.FunctionalEnvironment(spec, reset, step)


def best_return(num_pulls: int) -> float:
  """Returns the mean return of an optimal player of two-armed trials.

  The player knows the prior over arms but not the arms of the trial. The value
  is computed by dynamic programming over all counts of wins and losses
  (Bellman, 1956); Gittins indices are its counterpart for infinite trials.
  """

  @functools.cache
  def value(arm: tuple[int, int], other: tuple[int, int]) -> float:
    """Returns the best future return, given (wins, losses) of both arms."""
    if sum(arm) + sum(other) == num_pulls:
      return 0.0
    return max(pull(arm, other), pull(other, arm))

  def pull(arm: tuple[int, int], other: tuple[int, int]) -> float:
    wins, losses = arm
    chance = (wins + 1) / (wins + losses + 2)  # Posterior mean, uniform prior.
    return chance * (1 + value((wins + 1, losses), other)) + (
      1 - chance
    ) * value((wins, losses + 1), other)

  return value((0, 0), (0, 0))


def thompson_return(num_pulls: int, num_trials: int, seed: int) -> float:
  """Returns the mean return of Thompson sampling in two-armed trials.

  Thompson sampling draws a probability for each arm from its posterior and
  pulls the arm with the larger one.

  Args:
    num_pulls: number of pulls in a trial.
    num_trials: number of trials to average over.
    seed: seed of arms, posterior samples and pulls.
  """
  rng = np.random.default_rng(seed)
  rows = np.arange(num_trials)
  probability = rng.uniform(size=(num_trials, 2))
  # Parameters of beta posteriors, wins and losses; the prior is uniform.
  counts = np.ones((2, num_trials, 2))
  for _ in range(num_pulls):
    arm = np.argmax(rng.beta(*counts), axis=-1)
    loses = rng.uniform(size=num_trials) >= probability[rows, arm]
    counts[loses.astype(int), rows, arm] += 1
  return float(np.mean(np.sum(counts[0] - 1, axis=-1)))
