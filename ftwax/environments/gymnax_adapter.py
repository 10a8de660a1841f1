"""gymnax environments (Lange, 2022) as functional environments.

gymnax 1.0 distinguishes time limits from terminations: an episode that reaches
its time limit ends in `LAST` with discount 1. Older versions (0.0.x) also work,
but treat the time limit as a termination. Craftax's environments without
`auto_reset` have the same interface; pass them to `from_gymnax`. No extra of
ftwax installs gymnax, since it restricts the version of JAX; only `make`
imports it.
"""

import importlib
from typing import Any, NamedTuple

import dm_env
import jax

from ftwax import extras, registry, types
from ftwax.environments import functional, specified


class GymnaxState(NamedTuple):
  """State of a gymnax environment.

  Attributes:
    state: state of the gymnax environment, a pytree.
    key: uint32 [2], random key of the remaining steps.
  """

  state: Any
  key: types.Key


@registry.register('gymnax.game')
def make(name: str) -> functional.FunctionalEnvironment:
  """Makes the environment registered under `name` in gymnax.

  Args:
    name: e.g. 'CartPole-v1' or 'Breakout-MinAtar'.

  Raises:
    ImportError: if gymnax is not installed.
    ValueError: if there is no such environment.
  """
  with extras.required('gymnax'):
    gymnax = importlib.import_module('gymnax')
  if name not in gymnax.registered_envs:
    raise ValueError(
      f'name ({name!r}) must be the name of a gymnax environment; choose from'
      f' {sorted(gymnax.registered_envs)}.'
    )
  return from_gymnax(*gymnax.make(name))


def from_gymnax(
  environment: Any, params: Any = None
) -> functional.FunctionalEnvironment:
  """Converts a gymnax environment to a functional environment.

  Args:
    environment: an environment returned by `gymnax.make`, with discrete
      actions.
    params: parameters of the environment; its defaults if None.

  Raises:
    ValueError: if the action is not discrete.
  """
  params = environment.default_params if params is None else params
  like = jax.eval_shape(
    lambda key: environment.reset_env(key, params), jax.random.PRNGKey(0)
  )

  def reset(key: types.Key) -> tuple[GymnaxState, dm_env.TimeStep]:
    reset_key, key = jax.random.split(key)
    observation, state = functional.cast_like(
      environment.reset_env(reset_key, params), like
    )
    return GymnaxState(state, key), functional.restart(observation)

  def step(
    state: GymnaxState, action: types.Array
  ) -> tuple[GymnaxState, dm_env.TimeStep]:
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

  spec = specified.make_spec(
    functional.array_specs(like[0]),
    _num_actions(environment.action_space(params)),
  )
  return functional.FunctionalEnvironment(spec, reset, step)


def _num_actions(space: Any) -> int:
  if not hasattr(space, 'n'):
    raise ValueError(
      f'action_space ({space!r}) of a gymnax environment must be Discrete;'
      ' choose another environment, or wrap it to make its actions discrete.'
    )
  return int(space.n)
