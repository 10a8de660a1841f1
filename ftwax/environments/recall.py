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
      shown; only the first `num_shown` are used.
    asked: int32 [num_pairs], likewise in the order in which they are queried.
    codes: float32 [num_pairs, key_size], the vector that represents each key.
    values: int32 [num_pairs], the value of each key.
    num_shown: int32 [], number of keys of this episode.
    step: int32 [], number of actions taken so far.
  """

  shown: types.Array
  asked: types.Array
  codes: types.Array
  values: types.Array
  num_shown: types.Array
  step: types.Array


@registry.register('recall.game')
def make(
  num_pairs: int = 6,
  num_values: int = 4,
  min_pairs: int | None = None,
  key_size: int | None = None,
) -> functional.FunctionalEnvironment:
  """Makes the recall task.

  An action is the index of a value. An episode of `n` pairs has `2 * n`
  transitions. The first `n` actions have no effect. Each of the others is
  rewarded with `1 / n` if it is the value of the key, so a perfect return is 1
  and random guessing returns `1 / num_values` on average.

  Args:
    num_pairs: number of keys, and the largest number of pairs in an episode.
    num_values: number of different values.
    min_pairs: smallest number of pairs in an episode; the number is drawn
      uniformly. Short episodes are learned first and prepare for longer ones.
      None for `num_pairs` in every episode.
    key_size: length of the vector that represents a key. Vectors are random
      with norm 1 and redrawn in every episode, so they cannot be memorized.
      None for fixed one-hot codes of length `num_pairs`.

  Returns:
    The environment. Its observation is float32 [key_size + num_values + 1]:
    the key, the one-hot code of its value while pairs are shown, and a flag
    that is 1 when a value is asked for.

  Raises:
    ValueError: if `num_pairs`, `num_values` or `key_size` is below 2, or
      `min_pairs` is not from 1 to `num_pairs`.
  """
  specified.check_at_least(2, num_pairs=num_pairs, num_values=num_values)
  if key_size is not None:
    specified.check_at_least(2, key_size=key_size)
  least = num_pairs if min_pairs is None else min_pairs
  if not 1 <= least <= num_pairs:
    raise ValueError(
      f'min_pairs ({least}) must be from 1 to num_pairs ({num_pairs}); choose'
      ' 2, or None for the same number in every episode.'
    )
  size = (key_size or num_pairs) + num_values + 1
  return functional.FunctionalEnvironment(
    specified.make_spec(
      specs.Array((size,), np.float32, 'observation'), num_values
    ),
    functools.partial(_reset, num_pairs, num_values, least, key_size),
    functools.partial(_step, num_values),
  )


def _reset(
  num_pairs: int,
  num_values: int,
  min_pairs: int,
  key_size: int | None,
  key: types.Key,
) -> tuple[RecallState, dm_env.TimeStep]:
  shown_key, asked_key, value_key, number_key, code_key = jax.random.split(
    key, 5
  )
  num_shown = jax.random.randint(
    number_key, (), min_pairs, num_pairs + 1, jnp.int32
  )
  shown = jax.random.permutation(shown_key, num_pairs).astype(jnp.int32)
  # Adding one to the keys that are not shown sorts them last.
  order = jax.random.uniform(asked_key, (num_pairs,))
  order += jnp.arange(num_pairs) >= num_shown
  state = RecallState(
    shown=shown,
    asked=shown[jnp.argsort(order)],
    codes=_draw_codes(num_pairs, key_size, code_key),
    values=jax.random.randint(
      value_key, (num_pairs,), 0, num_values, jnp.int32
    ),
    num_shown=num_shown,
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
    jnp.where(is_right, 1.0 / state.num_shown, 0.0),
    _observe(num_values, state),
    is_terminal=state.step == 2 * state.num_shown,
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
  index = jnp.minimum(state.step, 2 * state.num_shown - 1)
  is_asked = index >= state.num_shown
  index -= jnp.where(is_asked, state.num_shown, 0)
  return jnp.where(is_asked, state.asked[index], state.shown[index]), is_asked
