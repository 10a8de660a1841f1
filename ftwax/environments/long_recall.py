"""Recall over a long delay in JAX: noise lies between a cue and the question.

A T-maze without the walk (Bakker, 2002): one of several goals is shown at the
first step, and must be named after `delay` more. Nothing but the question tells
the time, and every step has noise that must not displace the memory.
"""

from typing import NamedTuple

import dm_env
import jax
import jax.numpy as jnp
import numpy as np
from dm_env import specs

from ftwax import registry, types
from ftwax.environments import functional, specified


class LongRecallState(NamedTuple):
  """State of an episode.

  Attributes:
    goal: int32 [], the goal that was shown.
    step: int32 [], number of actions taken so far.
    key: random key of the noise.
  """

  goal: types.Array
  step: types.Array
  key: types.Key


@registry.register('long_recall.game')
def make(
  delay: int = 100, num_goals: int = 4, noise_size: int = 4
) -> functional.FunctionalEnvironment:
  """Makes the task.

  An episode has `delay + 1` transitions. The last action is rewarded with 1 if
  it is the index of the goal; others have no effect. Guessing returns
  `1 / num_goals` on average.

  Args:
    delay: steps between the cue and the question, at least 1.
    num_goals: number of goals, at least 2.
    noise_size: number of standard normal numbers in each observation.

  Returns:
    The environment. Its observation is float32 [num_goals + 1 + noise_size]:
    the one-hot code of the goal at the first step and zeros later, a flag that
    is 1 when the goal is asked for, and the noise.

  Raises:
    ValueError: if an argument is too small.
  """
  specified.check_at_least(1, delay=delay)
  specified.check_at_least(2, num_goals=num_goals)
  specified.check_at_least(0, noise_size=noise_size)

  def observe(state: LongRecallState) -> types.Array:
    cue = jax.nn.one_hot(state.goal, num_goals)
    noise_key = jax.random.fold_in(state.key, state.step)
    return jnp.concatenate(
      [
        jnp.where(state.step == 0, cue, 0.0),
        jnp.float32(state.step >= delay)[None],
        jax.random.normal(noise_key, (noise_size,)),
      ]
    )

  def reset(key: types.Key) -> tuple[LongRecallState, dm_env.TimeStep]:
    goal_key, noise_key = jax.random.split(key)
    goal = jax.random.randint(goal_key, (), 0, num_goals, jnp.int32)
    state = LongRecallState(goal, jnp.zeros((), jnp.int32), noise_key)
    return state, functional.restart(observe(state))

  def step(
    state: LongRecallState, action: types.Array
  ) -> tuple[LongRecallState, dm_env.TimeStep]:
    is_asked = state.step == delay
    state = state._replace(step=state.step + 1)
    return state, functional.transition(
      jnp.float32(is_asked & (action == state.goal)),
      observe(state),
      is_terminal=is_asked,
    )

  size = num_goals + 1 + noise_size
  spec = specified.make_spec(
    specs.Array((size,), np.float32, 'observation'), num_goals
  )
  return functional.FunctionalEnvironment(spec, reset, step)
