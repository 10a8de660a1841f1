"""Internal rewards: an agent's own reward for each event.

See Jaderberg et al., 2019 (arXiv:1807.01281), section "Internal rewards". The
environment's reward is a vector of event counts. An agent maximizes its inner
product with weights of its own, which have no gradient: only a population
evolves them. A scalar reward is one event.
"""

from collections.abc import Callable
from typing import Any

import dm_env
import jax
import jax.numpy as jnp

from ftwax import hyperparameters, shapes, types

# One prior shared by all events, or a tuple with one for each.
Priors = hyperparameters.Prior | tuple[hyperparameters.Prior, ...]


def num_events(reward_spec: dm_env.specs.Array) -> int:
  """Returns the number of events in a reward with this spec.

  Raises:
    ValueError: if the reward is neither a scalar nor a vector.
  """
  if len(reward_spec.shape) > 1 or 0 in reward_spec.shape:
    raise ValueError(
      f'reward_spec ({reward_spec!r}) must be that of a scalar or of a vector'
      ' with an entry for each event; flatten it.'
    )
  return reward_spec.shape[0] if reward_spec.shape else 1


def sample(
  key: types.Key, priors: Priors, num_events: int
) -> types.InternalRewards:
  """Samples the weight of each event, float32 [num_events].

  Args:
    key: random key.
    priors: one prior for all events, or a tuple with one for each.
    num_events: number of events.

  Raises:
    ValueError: if there is a tuple of another length.
  """
  drawn = hyperparameters.sample(key, _one_for_each(priors, num_events))
  return _stack(drawn)


def perturb(
  key: types.Key,
  internal_rewards: types.InternalRewards,
  priors: Priors,
  probability: types.Array | float = 0.05,
  factors: tuple[float, float] = (0.8, 1.2),
) -> types.InternalRewards:
  """Perturbs each weight independently; see `hyperparameters.perturb`."""
  return _change(
    hyperparameters.perturb, key, internal_rewards, priors, probability, factors
  )


def resample(
  key: types.Key,
  internal_rewards: types.InternalRewards,
  priors: Priors,
  probability: types.Array | float,
) -> types.InternalRewards:
  """Resamples each weight with the given probability."""
  return _change(
    hyperparameters.resample, key, internal_rewards, priors, probability
  )


def clip(
  internal_rewards: types.InternalRewards, priors: Priors
) -> types.InternalRewards:
  """Clips each weight to the bounds of its prior."""
  priors = _one_for_each(priors, len(internal_rewards))
  return _stack(hyperparameters.clip(tuple(internal_rewards), priors))


def _change(
  function: Callable[..., tuple[types.Array, ...]],
  key: types.Key,
  internal_rewards: types.InternalRewards,
  priors: Priors,
  *arguments: Any,
) -> types.InternalRewards:
  """Applies `function(key, weights, priors, *arguments)`."""
  each = _one_for_each(priors, len(internal_rewards))
  return _stack(function(key, tuple(internal_rewards), each, *arguments))


def _one_for_each(
  priors: Priors, num_events: int
) -> tuple[hyperparameters.Prior, ...]:
  if not isinstance(priors, tuple):
    return (priors,) * num_events
  if len(priors) != num_events:
    raise ValueError(
      f'internal_rewards_prior ({len(priors)} priors) must be one prior for all'
      f' events or one for each of the {num_events}; give that many.'
    )
  return priors


def _stack(weights: tuple[types.Array, ...]) -> types.InternalRewards:
  return jnp.stack([jnp.asarray(weight, jnp.float32) for weight in weights])


def reward(
  internal_rewards: types.InternalRewards, timestep: dm_env.TimeStep
) -> types.Array:
  """Computes the agent's own reward at each step, with gradients stopped.

  Args:
    internal_rewards: float32 [num_events].
    timestep: leaves [...]; its reward is [...] or [..., num_events].

  Returns:
    float32 [...].

  Raises:
    ValueError: if there is not a reward for each step, or not a weight for each
      event.
  """
  steps = jnp.shape(timestep.step_type)
  shapes.check_leaves('reward', 'timestep.reward', timestep.reward, steps)
  events = jnp.asarray(timestep.reward, jnp.float32)
  # A scalar reward has no axis of events.
  if events.ndim == jnp.ndim(timestep.step_type):
    events = events[..., None]
  return weigh(internal_rewards, events)


def weigh(
  internal_rewards: types.InternalRewards, events: types.Array
) -> types.Array:
  """Computes the inner products [...] of weights [E] and events [..., E]."""
  if events.shape[-1] != internal_rewards.shape[-1]:
    raise ValueError(
      f'internal_rewards (shape {internal_rewards.shape}) must have a weight'
      f' for each of the {events.shape[-1]} events of a step; make the learner'
      ' with the spec of this environment.'
    )
  own = jnp.einsum(
    '...e,e->...', events, internal_rewards, precision=jax.lax.Precision.HIGHEST
  )
  return jax.lax.stop_gradient(own)
