"""Environments in which actions take effect late, as those of people do."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from dm_env import specs

from ftwax import types
from ftwax.environments import functional, specified


class State(NamedTuple):
  """State of an environment with late actions.

  Attributes:
    state: its own state.
    waiting: the last actions, leaves [max_delay, ...], the oldest first.
    delay: int32 [], how many steps actions of this episode wait.
  """

  state: functional.State
  waiting: types.ArrayTree
  delay: types.Array


def delay(
  waiting: types.ArrayTree, action: types.ArrayTree, num_steps: types.Array
) -> tuple[types.ArrayTree, types.ArrayTree]:
  """Returns the action of `num_steps` ago, and what waits after this one."""
  actions = jax.tree.map(
    lambda leaf, new: jnp.concatenate([leaf, new[None]]), waiting, action
  )
  taken = jax.tree.map(lambda leaf: leaf[len(leaf) - 1 - num_steps], actions)
  return taken, jax.tree.map(lambda leaf: leaf[1:], actions)


def make(
  environment: functional.AnyEnvironment, max_delay: int
) -> functional.AnyEnvironment:
  """Returns the environment with actions that take effect late.

  Each episode draws how late, from 0 to `max_delay` steps, the same for all
  seats and unknown to them. Until the first action takes effect, action 0 does,
  or the allowed one that is closest to it.

  Args:
    environment: one environment or game, not a vector.
    max_delay: the most steps that an action waits.

  Raises:
    ValueError: if `max_delay` is not from 0 to 4096.
  """
  specified.check_at_least(0, 4096, max_delay=max_delay)
  seats: tuple[int, ...] = ()
  if isinstance(environment, functional.FunctionalGame):
    seats = (len(environment.teams),)

  def start(spec: specs.Array) -> types.Array:
    low, high = getattr(spec, 'minimum', 0), getattr(spec, 'maximum', 0)
    nothing = np.clip(np.zeros(spec.shape, spec.dtype), low, high)
    return jnp.broadcast_to(nothing, (max_delay, *seats, *spec.shape))

  def reset(key: types.Key) -> Any:
    key, delay_key = jax.random.split(key)
    state, timestep = environment.reset(key)
    waiting = jax.tree.map(start, environment.spec.actions)
    num_steps = jax.random.randint(delay_key, (), 0, max_delay + 1)
    return State(state, waiting, num_steps), timestep

  def step(state: State, action: types.ArrayTree) -> Any:
    action = functional.cast_like(action, state.waiting)
    taken, waiting = delay(state.waiting, action, state.delay)
    inner, timestep = environment.step(state.state, taken)
    return State(inner, waiting, state.delay), timestep

  late = environment._replace(reset=reset, step=step, page=None)
  if not isinstance(late, functional.FunctionalGame):
    return late
  display = late.display and late.display._replace(
    render=_inside(late.display.render), score=_inside(late.display.score)
  )
  return late._replace(
    outcome=_inside(late.outcome),
    scripts={name: _inside(one, 1) for name, one in late.scripts.items()},
    display=display,
  )


def _inside(function: Callable[..., Any], place: int = 0) -> Callable[..., Any]:
  """Makes a function that takes a `State` as its argument at a place."""
  return lambda *args: function(
    *args[:place], args[place].state, *args[place + 1 :]
  )
