"""Copying in JAX: symbols are shown once, then to be repeated in their order.

The first task of Graves et al., 2014 (arXiv:1410.5401, section 4.1), asked of
an agent instead of a classifier. Nothing says which symbol is asked for but the
order in which they came, so that a state has to keep them and where it stands:
what an LSTM needs units for, and what a memory that follows the order of its
writing (Graves et al., 2016) does by going forward from slot to slot.
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


class CopyingState(NamedTuple):
  """An episode.

  Attributes:
    symbols: int32 [max_length], of which the first `length` count.
    length: int32 [], symbols of this episode.
    step: int32 [], actions taken.
  """

  symbols: types.Array
  length: types.Array
  step: types.Array


def make(
  length: int = 10, num_symbols: int = 4, min_length: int | None = None
) -> functional.FunctionalEnvironment:
  """Makes the task.

  Actions name a symbol. An episode of `n` symbols has `2 n` transitions: in the
  first `n` actions mean nothing; in the others the reward is `1 / n` for the
  right symbol, so that the best return is 1 and that of guessing
  `1 / num_symbols`.

  Args:
    length: symbols of an episode, or the most.
    num_symbols: symbols there are.
    min_length: the least in an episode; how many is drawn uniformly. None for
      `length` in every episode.

  Returns:
    The environment; its observation is float32 [num_symbols + 1], the symbol
    while it is shown, and whether one is asked for.

  Raises:
    ValueError: if there are less than two symbols, or `min_length` is not from
      1 to `length`.
  """
  least = length if min_length is None else min_length
  if num_symbols < 2:
    raise ValueError(
      f'num_symbols ({num_symbols}) must be at least 2; choose 4.'
    )
  if not 1 <= least <= length:
    raise ValueError(
      f'min_length ({least}) must be from 1 to length ({length}); choose'
      ' length=10 and min_length=2, or None for the same length in every'
      ' episode.'
    )
  return functional.FunctionalEnvironment(
    types.EnvironmentSpec(
      observations=specs.Array((num_symbols + 1,), np.float32, 'observation'),
      actions=specs.DiscreteArray(num_symbols, np.int32, 'action'),
      rewards=specs.Array((), np.float32, 'reward'),
      discounts=specs.BoundedArray((), np.float32, 0.0, 1.0, 'discount'),
    ),
    functools.partial(_reset, least, length, num_symbols),
    functools.partial(_step, num_symbols),
  )


def _reset(
  min_length: int, length: int, num_symbols: int, key: types.Key
) -> tuple[CopyingState, dm_env.TimeStep]:
  symbols_key, length_key = jax.random.split(key)
  state = CopyingState(
    symbols=jax.random.randint(
      symbols_key, (length,), 0, num_symbols, jnp.int32
    ),
    length=jax.random.randint(
      length_key, (), min_length, length + 1, jnp.int32
    ),
    step=jnp.zeros((), jnp.int32),
  )
  return state, functional.restart(_observe(num_symbols, state))


def _step(
  num_symbols: int, state: CopyingState, action: types.Array
) -> tuple[CopyingState, dm_env.TimeStep]:
  asked = state.step - state.length
  is_right = (asked >= 0) & (action == state.symbols[jnp.maximum(asked, 0)])
  state = state._replace(step=state.step + 1)
  return state, functional.transition(
    jnp.where(is_right, 1.0 / state.length, 0.0),
    _observe(num_symbols, state),
    is_terminal=state.step == 2 * state.length,
  )


def _observe(num_symbols: int, state: CopyingState) -> types.Array:
  is_asked = state.step >= state.length
  last = state.symbols.shape[0] - 1
  symbol = jax.nn.one_hot(
    state.symbols[jnp.minimum(state.step, last)], num_symbols
  )
  return jnp.append(
    jnp.where(is_asked, 0.0, symbol), is_asked.astype(jnp.float32)
  )
