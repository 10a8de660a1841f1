"""Associative recall in JAX: pairs are shown once, then asked for.

An episode shows some keys, each once and in a random order, together with a
value that is drawn anew for every key and episode. Then it asks for the values
of these keys in another order. The pairs change from episode to episode, so
that they must be kept in the state of the agent: the task of Graves et al.,
2014 (arXiv:1410.5401, section 4.3), asked of an agent instead of a classifier.
"""

import functools
from typing import NamedTuple

import dm_env
import jax
import jax.numpy as jnp
import numpy as np
from dm_env import specs

from ftwax import types
from ftwax.environments import functional


class RecallState(NamedTuple):
  """An episode.

  Attributes:
    shown: int32 [num_pairs], keys in the order in which they are shown.
    asked: int32 [num_pairs], in that in which they are asked for.
    codes: float32 [num_pairs, key_size], how each key looks.
    values: int32 [num_pairs], the value of each key.
    num_shown: int32 [], keys of this episode; of `shown` and `asked` the others
      are not used.
    step: int32 [], actions taken.
  """

  shown: types.Array
  asked: types.Array
  codes: types.Array
  values: types.Array
  num_shown: types.Array
  step: types.Array


def make(
  num_pairs: int = 6,
  num_values: int = 4,
  min_pairs: int | None = None,
  key_size: int | None = None,
) -> functional.FunctionalEnvironment:
  """Makes the task.

  Actions name a value. An episode of `n` pairs has `2 n` transitions: in the
  first `n` actions mean nothing; in the others the reward is `1 / n` for the
  value asked for, so that the best return is 1 and that of guessing
  `1 / num_values`.

  Args:
    num_pairs: keys there are, and the most that an episode shows.
    num_values: what each may be paired with.
    min_pairs: the least that an episode shows; how many is drawn uniformly. A
      few pairs are learned sooner and are a lesson for more. None for
      `num_pairs` in every episode.
    key_size: numbers in a key, each a random vector of length one, drawn anew
      in every episode, so that keys cannot be learned. None for one-hot codes
      of `num_pairs`, which are the same in all.

  Returns:
    The environment; its observation is float32 [key_size + num_values + 1],
    the key, the value while it is shown, and whether it is asked for.

  Raises:
    ValueError: if there are less than two keys, values or numbers in a key, or
      `min_pairs` is not from 1 to `num_pairs`.
  """
  options = _Options(
    num_pairs=num_pairs,
    num_values=num_values,
    min_pairs=num_pairs if min_pairs is None else min_pairs,
    key_size=key_size,
  )
  _check(options)
  return functional.FunctionalEnvironment(
    _make_spec(num_pairs if key_size is None else key_size, num_values),
    functools.partial(_reset, options),
    functools.partial(_step, num_values),
  )


class _Options(NamedTuple):
  num_pairs: int
  num_values: int
  min_pairs: int
  key_size: int | None


def _check(options: _Options) -> None:
  for name in ('num_pairs', 'num_values', 'key_size'):
    value = getattr(options, name)
    if value is not None and value < 2:
      raise ValueError(f'{name} ({value}) must be at least 2; choose 4.')
  if not 1 <= options.min_pairs <= options.num_pairs:
    raise ValueError(
      f'min_pairs ({options.min_pairs}) must be from 1 to num_pairs'
      f' ({options.num_pairs}); choose 2, or None for the same number in every'
      ' episode.'
    )


def _make_spec(key_size: int, num_values: int) -> types.EnvironmentSpec:
  return types.EnvironmentSpec(
    observations=specs.Array(
      (key_size + num_values + 1,), np.float32, 'observation'
    ),
    actions=specs.DiscreteArray(num_values, np.int32, 'action'),
    rewards=specs.Array((), np.float32, 'reward'),
    discounts=specs.BoundedArray((), np.float32, 0.0, 1.0, 'discount'),
  )


def _reset(
  options: _Options, key: types.Key
) -> tuple[RecallState, dm_env.TimeStep]:
  shown_key, asked_key, value_key, number_key, code_key = jax.random.split(
    key, 5
  )
  num_pairs = options.num_pairs
  num_shown = jax.random.randint(
    number_key, (), options.min_pairs, num_pairs + 1, jnp.int32
  )
  shown = jax.random.permutation(shown_key, num_pairs).astype(jnp.int32)
  # Those that are shown in a random order, before the others.
  order = jax.random.uniform(asked_key, (num_pairs,))
  order += jnp.arange(num_pairs) >= num_shown
  state = RecallState(
    shown=shown,
    asked=shown[jnp.argsort(order)],
    codes=_draw_codes(options, code_key),
    values=jax.random.randint(
      value_key, (num_pairs,), 0, options.num_values, jnp.int32
    ),
    num_shown=num_shown,
    step=jnp.zeros((), jnp.int32),
  )
  return state, functional.restart(_observe(options.num_values, state))


def _draw_codes(options: _Options, key: types.Key) -> types.Array:
  """Returns how each key looks, [num_pairs, key_size]."""
  if options.key_size is None:
    return jnp.eye(options.num_pairs)
  codes = jax.random.normal(key, (options.num_pairs, options.key_size))
  return codes / jnp.linalg.norm(codes, axis=-1, keepdims=True)


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
  """Returns the key of this step, and whether it is asked for."""
  index = jnp.minimum(state.step, 2 * state.num_shown - 1)
  is_asked = index >= state.num_shown
  index -= jnp.where(is_asked, state.num_shown, 0)
  return jnp.where(is_asked, state.asked[index], state.shown[index]), is_asked
