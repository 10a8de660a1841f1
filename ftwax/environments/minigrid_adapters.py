"""Grid worlds of navix and XLand-MiniGrid as functional environments.

This module imports neither; install navix or xminigrid separately, on Python
3.11 or newer, and pass an environment:

    environment=minigrid_adapters.from_navix(navix.make('Navix-Empty-8x8-v0'))
    environment=minigrid_adapters.from_xminigrid(
      *xminigrid.make('MiniGrid-Empty-8x8')
    )

Cells of the view hold small numbers, such as the kind and color of an object.
Observations are their one-hot codes, in one vector.
"""

from collections.abc import Callable
from typing import Any

import dm_env
import jax
import jax.numpy as jnp

from ftwax import types
from ftwax.environments import functional, specified

# Both number kinds, colors and states below this.
_NUM_CODES = 16


def from_navix(environment: Any) -> functional.FunctionalEnvironment:
  """Converts an environment returned by `navix.make`."""

  def step(timestep: Any, action: types.Array) -> Any:
    # Not `step`, which restarts an episode on its own.
    return environment._step(timestep, action)

  return _convert(
    environment.reset,
    step,
    int(environment.action_space.n),
    lambda timestep: (timestep.is_termination(), timestep.is_truncation()),
  )


def from_xminigrid(
  environment: Any, params: Any
) -> functional.FunctionalEnvironment:
  """Converts an environment and parameters, returned by `xminigrid.make`."""

  def ends(timestep: Any) -> tuple[types.Array, types.Array]:
    is_terminal = timestep.discount == 0.0
    return is_terminal, timestep.last() & ~is_terminal

  return _convert(
    lambda key: environment.reset(params, key),
    lambda timestep, action: environment.step(params, timestep, action),
    environment.num_actions(params),
    ends,
  )


def _convert(
  reset: Callable[[types.Key], Any],
  step: Callable[[Any, types.Array], Any],
  num_actions: int,
  ends: Callable[[Any], tuple[types.Array, types.Array]],
) -> functional.FunctionalEnvironment:
  """Returns the environment whose state is its own kind of timestep.

  Args:
    reset: returns the first timestep.
    step: returns the next timestep.
    num_actions: number of actions.
    ends: returns whether an episode terminates and whether it is truncated.
  """
  like = jax.eval_shape(reset, jax.random.PRNGKey(0))
  if like.observation.ndim == 0 or like.observation.dtype.kind not in 'iu':
    raise ValueError(
      f'observation ({like.observation}) of a grid world must be symbolic,'
      ' integers [rows, columns, channels]; make it with that observation.'
    )

  def see(timestep: Any) -> types.Array:
    symbols = timestep.observation.astype(jnp.int32)
    return jax.nn.one_hot(symbols, _NUM_CODES).reshape(-1)

  def begin(key: types.Key) -> tuple[Any, dm_env.TimeStep]:
    timestep = functional.cast_like(reset(key), like)
    return timestep, functional.restart(see(timestep))

  def go_on(state: Any, action: types.Array) -> tuple[Any, dm_env.TimeStep]:
    timestep = functional.cast_like(step(state, action), like)
    return timestep, functional.transition(
      timestep.reward, see(timestep), *ends(timestep)
    )

  view = jax.eval_shape(see, like)
  spec = specified.make_spec(functional.array_specs(view), num_actions)
  return functional.FunctionalEnvironment(spec, begin, go_on)
