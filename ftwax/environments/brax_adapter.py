"""Environments of Brax and MuJoCo Playground as functional environments.

Both are `reset(key) -> state` and `step(state, action) -> state`, where `state`
has `obs`, `reward`, `done` and `info` (Freeman et al., 2021; Zakka et al.,
2025). Where `done` is set, an episode terminates; where it has lasted for
`episode_length` steps, or `info['truncation']` is set, it is truncated.
`info['time_out']` is not read, since Brax's inverted pendulum sets it where the
pole falls.

Actions are in [-1, 1]. Only the value network sees the entry
`types.PRIVILEGED` of an observation, if it is a separate one.
"""

import importlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from dm_env import specs

from ftwax import extras, types
from ftwax.environments import functional

# As in Brax's own training.
_EPISODE_LENGTH = 1000

# The packages of environments with names such as 'brax:ant'.
LIBRARIES = {'brax': 'brax', 'playground': 'mujoco_playground'}


def make(name: str) -> functional.FunctionalEnvironment:
  """Makes an environment by name; it ends when its library's training ends it.

  Args:
    name: e.g. 'brax:ant' or 'playground:CartpoleBalance'.

  Raises:
    ImportError: if the library is not installed.
    ValueError: if it has no such environment.
  """
  library, _, task = name.partition(':')
  with extras.required(
    library,
    remedy=f'pip install {library}, on Python 3.11 or newer',
  ):
    package: Any = importlib.import_module(LIBRARIES[library])
    source = importlib.import_module('brax.envs')
  is_brax = library == 'brax'
  known = source._envs if is_brax else package.registry.ALL_ENVS
  if task not in known:
    raise ValueError(
      f'environment ({name!r}) must be one of {library}; choose from'
      f' {sorted(known)}.'
    )
  if is_brax:
    return from_brax(source.get_environment(task))
  config = package.registry.get_default_config(task)
  if 'impl' in config and jax.default_backend() == 'cpu':
    config.impl = 'jax'  # Warp, the default, is for GPUs.
  environment = package.registry.load(task, config)
  return from_brax(environment, config.episode_length)


def is_one(environment: Any) -> bool:
  """Returns whether this is an environment for `from_brax`."""
  return all(
    hasattr(type(environment), name)
    for name in ('reset', 'step', 'action_size', 'observation_size')
  )


def from_brax(
  environment: Any, episode_length: int | None = None
) -> functional.FunctionalEnvironment:
  """Converts an environment of Brax or MuJoCo Playground.

  Args:
    environment: an environment without a batch axis that does not restart its
      episodes.
    episode_length: steps after which an episode is truncated; None for 1000, as
      in Brax's training, or as a wrapper of the environment does it.

  Raises:
    ValueError: if it restarts episodes, or its actions have no bounds.
  """
  info = jax.eval_shape(environment.reset, jax.random.PRNGKey(0)).info
  if any(name.endswith('first_obs') for name in info):
    raise ValueError(
      f'environment ({type(environment).__name__}) must not restart its'
      ' episodes, which hides how they end; pass it without the wrapper that'
      ' does, or with auto_reset=False.'
    )
  actuators = getattr(getattr(environment, 'sys', None), 'actuator', None)
  bounds = getattr(actuators, 'ctrl_range', np.zeros(1))
  if not np.isfinite(bounds).all():
    raise ValueError(
      f'action of {type(environment).__name__} (ctrl_range {bounds}) must have'
      ' bounds; give its actuators a ctrlrange.'
    )
  cuts = 'truncation' in info
  if episode_length is None and not cuts:
    episode_length = _EPISODE_LENGTH

  def read(state: Any) -> functional.Reading:
    is_cut = jnp.asarray(state.info['truncation'] if cuts else 0.0) > 0.0
    return state.obs, state.reward, (state.done > 0.0) & ~is_cut, is_cut

  return functional.adapt(
    environment.reset,
    lambda key, state, action: environment.step(state, action),
    read,
    specs.BoundedArray(
      (environment.action_size,), np.float32, -1.0, 1.0, 'action'
    ),
    episode_length,
  )
