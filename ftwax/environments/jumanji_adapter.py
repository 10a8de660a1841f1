"""jumanji 1.x environments (Bonnet et al., 2024) as functional environments.

This module does not import jumanji; install it separately and pass an
environment:

    environment_factory = lambda seed: jumanji_adapter.from_jumanji(
      jumanji.make('Snake-v1')
    )

Observations that are NamedTuples become dicts, so that a field `action_mask`
masks actions (see `types.ACTION_MASK`). An action with several entries becomes
a tuple of discrete parts.
"""

from typing import Any, TypeAlias

import dm_env
import jax
import jax.numpy as jnp
import numpy as np
from dm_env import specs

from ftwax import types
from ftwax.environments import functional, specified

_Transition: TypeAlias = tuple[functional.State, dm_env.TimeStep]


def from_jumanji(environment: Any) -> functional.FunctionalEnvironment:
  """Converts a jumanji environment to a functional environment.

  Args:
    environment: an environment returned by `jumanji.make`.

  Raises:
    ValueError: if an action is not discrete or the reward is not a scalar.
  """
  key = jax.random.PRNGKey(0)
  reward = jax.eval_shape(lambda key: environment.reset(key)[1].reward, key)
  if reward.shape:
    raise ValueError(
      f'the reward of {environment} (shape {reward.shape}) must be a scalar;'
      ' wrap it to sum the rewards of its agents.'
    )
  action_spec = _action_spec(environment.action_spec)

  def reset(key: types.Key) -> _Transition:
    state, timestep = environment.reset(key)
    timestep = functional.restart(_convert(timestep).observation)
    return jax.tree.map(jnp.asarray, (state, timestep))

  like = jax.eval_shape(reset, key)

  def step(state: functional.State, action: types.ArrayTree) -> _Transition:
    if isinstance(action, tuple):
      parts = [jnp.ravel(part) for part in action]
      shape = environment.action_spec.shape
      action = jnp.concatenate(parts).reshape(shape)
    state, timestep = environment.step(state, action)
    return functional.cast_like((state, _convert(timestep)), like)

  spec = specified.make_spec(
    functional.array_specs(like[1].observation), action_spec
  )
  return functional.FunctionalEnvironment(spec, reset, step)


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
      f'action_spec ({spec!r}) of a jumanji environment must be discrete;'
      ' choose another environment, or wrap it to make its actions discrete.'
    )
  num_values = np.asarray(spec.num_values)
  if not num_values.shape:
    return specs.DiscreteArray(int(num_values), np.int32, 'action')
  return tuple(
    specs.DiscreteArray(int(num), np.int32, f'action_{i}')
    for i, num in enumerate(num_values.flat)
  )
