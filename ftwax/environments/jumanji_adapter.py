"""Jumanji's environments (Bonnet et al., 2024) as functional ones.

Observations that are NamedTuples become dicts, so that an `action_mask` among
their fields is taken for one. An action of several numbers becomes a tuple of
discrete parts. Made for jumanji 1.x, of which nothing is imported here.
"""

from typing import Any

import dm_env
import jax
import jax.numpy as jnp
import numpy as np
from dm_env import specs

from ftwax import types
from ftwax.environments import functional


def from_jumanji(environment: Any) -> functional.FunctionalEnvironment:
  """Makes a functional environment of a jumanji one.

  Args:
    environment: as `jumanji.make` returns it.

  Raises:
    ValueError: if the action is not made of numbers of choices, or if the
      reward is not a scalar.
  """
  key = jax.random.PRNGKey(0)
  reward = jax.eval_shape(lambda key: environment.reset(key)[1].reward, key)
  if reward.shape:
    raise ValueError(
      f'the reward of {environment} (shape {reward.shape}) must be a scalar;'
      ' wrap it so that the rewards of its agents are summed.'
    )
  like = jax.eval_shape(_reset(environment), key)
  action_spec = _action_spec(environment.action_spec)

  def step(state, action):
    if isinstance(action, tuple):
      parts = [jnp.ravel(part) for part in action]
      shape = environment.action_spec.shape
      action = jnp.concatenate(parts).reshape(shape)
    state, timestep = environment.step(state, action)
    return functional.cast_like((state, _convert(timestep)), like)

  spec = types.EnvironmentSpec(
    observations=functional.array_specs(like[1].observation),
    actions=action_spec,
    rewards=specs.Array((), np.float32, 'reward'),
    discounts=specs.BoundedArray((), np.float32, 0.0, 1.0, 'discount'),
  )
  return functional.FunctionalEnvironment(spec, _reset(environment), step)


def _reset(environment):
  def reset(key):
    state, timestep = environment.reset(key)
    timestep = functional.restart(_convert(timestep).observation)
    return jax.tree.map(jnp.asarray, (state, timestep))

  return reset


def _convert(timestep: Any) -> dm_env.TimeStep:
  return dm_env.TimeStep(
    jnp.asarray(timestep.step_type, jnp.int32),
    jnp.asarray(timestep.reward, jnp.float32),
    jnp.asarray(timestep.discount, jnp.float32),
    _as_dict(timestep.observation),
  )


def _as_dict(observation: Any) -> types.ArrayTree:
  """Turns NamedTuples into dicts, at any depth."""
  if hasattr(observation, '_asdict'):
    observation = observation._asdict()
  if isinstance(observation, dict):
    return {name: _as_dict(value) for name, value in observation.items()}
  return jnp.asarray(observation)


def _action_spec(spec: Any) -> types.SpecTree:
  if not hasattr(spec, 'num_values'):
    raise ValueError(
      f'action_spec ({spec!r}) of a jumanji environment must be of discrete'
      ' numbers; choose another environment, or wrap it so that it is.'
    )
  num_values = np.asarray(spec.num_values)
  if not num_values.shape:
    return specs.DiscreteArray(int(num_values), np.int32, 'action')
  return tuple(
    specs.DiscreteArray(int(num), np.int32, f'action_{i}')
    for i, num in enumerate(num_values.flat)
  )
