"""Associative recall in JAX: pairs are shown once, then queried.

An episode shows several keys once each, in random order, each with a value that
is redrawn for every episode. It then shows the keys alone, in another order,
and asks for their values. Since pairs differ between episodes, an agent must
keep them in its recurrent state. The task follows Graves et al., 2014
(arXiv:1410.5401, section 4.3), for agents instead of classifiers.
"""

import functools
from typing import NamedTuple

import dm_env
import jax
import jax.numpy as jnp
import numpy as np
from dm_env import specs

from ftwax import registry, types
from ftwax.environments import functional, specified


class RecallState(NamedTuple):
  """State of an episode.

  Attributes:
    shown: int32 [num_pairs], indices of keys in the order in which they are
      shown.
    asked: int32 [num_pairs], likewise in the order in which they are queried.
    codes: float32 [num_pairs, key_size], the vector that represents each key.
    values: int32 [num_pairs], the value of each key.
    step: int32 [], number of actions taken so far.
  """

  shown: types.Array
  asked: types.Array
  codes: types.Array
  values: types.Array
  step: types.Array


@registry.register('recall.game')
def make(
  num_pairs: int = 6,
  num_values: int = 4,
  key_size: int | None = None,
) -> functional.FunctionalEnvironment:
  """Makes the recall task.

  An action is the index of a value. An episode has `2 * num_pairs` transitions.
  The first `num_pairs` actions have no effect. Each of the others is rewarded
  with `1 / num_pairs` if it is the value of the key, so a perfect return is 1
  and random guessing returns `1 / num_values` on average.

  Args:
    num_pairs: number of pairs in an episode.
    num_values: number of different values.
    key_size: length of the vector that represents a key. Vectors are random
      with norm 1 and redrawn in every episode, so they cannot be memorized.
      None for fixed one-hot codes of length `num_pairs`.

  Returns:
    The environment. Its observation is float32 [key_size + num_values + 1]:
    the key, the one-hot code of its value while pairs are shown, and a flag
    that is 1 when a value is asked for.

  Raises:
    ValueError: if `num_pairs`, `num_values` or `key_size` is below 2.
  """
  specified.check_at_least(2, num_pairs=num_pairs, num_values=num_values)
  if key_size is not None:
    specified.check_at_least(2, key_size=key_size)
  size = (key_size or num_pairs) + num_values + 1
  return functional.FunctionalEnvironment(
    specified.make_spec(
      specs.Array((size,), np.float32, 'observation'), num_values
    ),
    functools.partial(_reset, num_pairs, num_values, key_size),
    functools.partial(_step, num_values),
  )


def _reset(
  num_pairs: int,
  num_values: int,
  key_size: int | None,
  key: types.Key,
) -> tuple[RecallState, dm_env.TimeStep]:
  shown_key, asked_key, value_key, _, code_key = jax.random.split(key, 5)
  shown = jax.random.permutation(shown_key, num_pairs).astype(jnp.int32)
  order = jax.random.uniform(asked_key, (num_pairs,))
  state = RecallState(
    shown=shown,
    asked=shown[jnp.argsort(order)],
    codes=_draw_codes(num_pairs, key_size, code_key),
    values=jax.random.randint(
      value_key, (num_pairs,), 0, num_values, jnp.int32
    ),
    step=jnp.zeros((), jnp.int32),
  )
  return state, functional.restart(_observe(num_values, state))


def _draw_codes(
  num_pairs: int, key_size: int | None, key: types.Key
) -> types.Array:
  """Returns the vectors that represent keys, [num_pairs, key_size]."""
  if key_size is None:
    return jnp.eye(num_pairs)
  codes = jax.random.normal(key, (num_pairs, key_size))
  norms: types.Array = jnp.linalg.norm(codes, axis=-1, keepdims=True)
  return codes / norms


def _step(
  num_values: int, state: RecallState, action: types.Array
) -> tuple[RecallState, dm_env.TimeStep]:
  key, is_asked = _key_now(state)
  is_right = (action == state.values[key]) & is_asked
  state = state._replace(step=state.step + 1)
  return state, functional.transition(
    jnp.where(is_right, 1.0 / len(state.shown), 0.0),
    _observe(num_values, state),
    is_terminal=state.step == 2 * len(state.shown),
  )


def _observe(num_values: int, state: RecallState) -> types.Array:
  key, is_asked = _key_now(state)
  value = jax.nn.one_hot(state.values[key], num_values)
  return jnp.concatenate(
    [
      state.codes[key],
      jnp.where(is_asked, 0.0, value),
      is_asked.astype(jnp.float32)[None],
    ]
  )


def _key_now(state: RecallState) -> tuple[types.Array, types.Array]:
  """Returns the index of the current key and whether its value is queried."""
  # After the last action, the last key stays visible.
  order = jnp.concatenate([state.shown, state.asked])
  index = jnp.minimum(state.step, len(order) - 1)
  return order[index], index >= len(state.shown)
