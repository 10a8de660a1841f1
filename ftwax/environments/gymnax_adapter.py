"""Gymnax's environments (Lange, 2022) as functional ones.

Made for gymnax 1.0, whose time limits are told apart from ends: an episode that
runs into one is `LAST` with discount 1. Older versions (0.0.x) work too, but
count the time limit as an end. Only `make` imports gymnax, which no extra of
ftwax installs, since it bounds JAX from above.
"""

import importlib
from typing import Any, NamedTuple

import jax
import numpy as np
from dm_env import specs

from ftwax import types
from ftwax.environments import functional


class GymnaxState(NamedTuple):
  """State of a gymnax environment.

  Attributes:
    state: the environment's own.
    key: for the steps to come.
  """

  state: Any
  key: types.Key


def make(name: str) -> functional.FunctionalEnvironment:
  """Makes the environment that gymnax has under `name`, e.g. CartPole-v1.

  Raises:
    ImportError: if gymnax is not installed.
    ValueError: if there is no such environment.
  """
  try:
    gymnax = importlib.import_module('gymnax')
  except ImportError as error:
    raise ImportError(
      f'gymnax must be importable for {name} ({error}); run the command with'
      ' `uv run --with gymnax ...`, or `pip install gymnax`.'
    ) from error
  if name not in gymnax.registered_envs:
    raise ValueError(
      f'name ({name!r}) must be that of an environment of gymnax; choose from'
      f' {sorted(gymnax.registered_envs)}.'
    )
  return from_gymnax(*gymnax.make(name))


def from_gymnax(
  environment: Any, params: Any = None
) -> functional.FunctionalEnvironment:
  """Makes a functional environment of a gymnax one.

  Args:
    environment: as `gymnax.make` returns it; its action must be discrete.
    params: as `gymnax.make` returns them; by default the environment's own.

  Raises:
    ValueError: if the action is not discrete.
  """
  params = environment.default_params if params is None else params
  like = jax.eval_shape(
    lambda key: environment.reset_env(key, params), jax.random.PRNGKey(0)
  )

  def reset(key):
    reset_key, key = jax.random.split(key)
    observation, state = functional.cast_like(
      environment.reset_env(reset_key, params), like
    )
    return GymnaxState(state, key), functional.restart(observation)

  def step(state, action):
    step_key, key = jax.random.split(state.key)
    observation, new_state, reward, is_terminal, _ = environment.step_env(
      step_key, state.state, action, params
    )
    observation, new_state = functional.cast_like(
      (observation, new_state), like
    )
    is_truncated = False
    if hasattr(environment, 'is_truncated'):
      is_truncated = environment.is_truncated(new_state, params)
    timestep = functional.transition(
      reward, observation, is_terminal, is_truncated
    )
    return GymnaxState(new_state, key), timestep

  spec = types.EnvironmentSpec(
    observations=functional.array_specs(like[0]),
    actions=_action_spec(environment.action_space(params)),
    rewards=specs.Array((), np.float32, 'reward'),
    discounts=specs.BoundedArray((), np.float32, 0.0, 1.0, 'discount'),
  )
  return functional.FunctionalEnvironment(spec, reset, step)


def _action_spec(space: Any) -> specs.DiscreteArray:
  if not hasattr(space, 'n'):
    raise ValueError(
      f'action_space ({space!r}) of a gymnax environment must be Discrete;'
      ' choose another environment, or wrap it so that its actions are.'
    )
  return specs.DiscreteArray(int(space.n), np.int32, 'action')
