"""Associative recall in JAX: pairs are shown once, then asked for.

An episode shows `num_pairs` keys, each once and in a random order, together
with a value that is drawn anew for every key and episode. Then it asks for the
values of the keys in another order. The pairs change from episode to episode,
so that they must be kept in the state of the agent: the task of Graves et al.,
2014 (arXiv:1410.5401, section 4.3), asked of an agent instead of a classifier.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from dm_env import specs

from ftwax import types
from ftwax.environments import functional


class RecallState(NamedTuple):
  """An episode.

  Attributes:
    keys: int32 [2 * num_pairs], the key of each step.
    values: int32 [num_pairs], the value of each key.
    step: int32 [], actions taken.
  """

  keys: types.Array
  values: types.Array
  step: types.Array


def make(
  num_pairs: int = 6, num_values: int = 4
) -> functional.FunctionalEnvironment:
  """Makes the task.

  Actions name a value. In the first `num_pairs` steps they mean nothing; in the
  other `num_pairs` the reward is `1 / num_pairs` for the value asked for, so
  that the best return is 1 and that of guessing `1 / num_values`.

  Args:
    num_pairs: keys.
    num_values: what each may be paired with.

  Returns:
    The environment; its observation is float32 [num_pairs + num_values + 1],
    the key, the value while it is shown, and whether it is asked for.

  Raises:
    ValueError: if there are less than two keys or values.
  """
  for name, value in (('num_pairs', num_pairs), ('num_values', num_values)):
    if value < 2:
      raise ValueError(f'{name} ({value}) must be at least 2; choose 4.')

  def observe(state):
    step = jnp.minimum(state.step, 2 * num_pairs - 1)
    key, is_asked = state.keys[step], step >= num_pairs
    value = jax.nn.one_hot(state.values[key], num_values)
    return jnp.concatenate(
      [
        jax.nn.one_hot(key, num_pairs),
        jnp.where(is_asked, 0.0, value),
        is_asked.astype(jnp.float32)[None],
      ]
    )

  def reset(key):
    shown_key, asked_key, value_key = jax.random.split(key, 3)
    state = RecallState(
      keys=jnp.concatenate(
        [
          jax.random.permutation(shown_key, num_pairs),
          jax.random.permutation(asked_key, num_pairs),
        ]
      ).astype(jnp.int32),
      values=jax.random.randint(
        value_key, (num_pairs,), 0, num_values, jnp.int32
      ),
      step=jnp.zeros((), jnp.int32),
    )
    return state, functional.restart(observe(state))

  def step(state, action):
    is_right = action == state.values[state.keys[state.step]]
    is_asked = state.step >= num_pairs
    reward = jnp.where(is_right & is_asked, 1.0 / num_pairs, 0.0)
    state = state._replace(step=state.step + 1)
    last = state.step == 2 * num_pairs
    return state, functional.transition(
      reward, observe(state), is_terminal=last
    )

  return functional.FunctionalEnvironment(
    spec=types.EnvironmentSpec(
      observations=specs.Array(
        (num_pairs + num_values + 1,), np.float32, 'observation'
      ),
      actions=specs.DiscreteArray(num_values, np.int32, 'action'),
      rewards=specs.Array((), np.float32, 'reward'),
      discounts=specs.BoundedArray((), np.float32, 0.0, 1.0, 'discount'),
    ),
    reset=reset,
    step=step,
  )
