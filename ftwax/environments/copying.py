"""Copying in JAX: symbols are shown once and must be repeated in order.

The first task of Graves et al., 2014 (arXiv:1410.5401, section 4.1), for agents
instead of classifiers. Only the order of the symbols determines which one is
asked for, so an agent must remember all symbols and its position in the
sequence. An LSTM must hold these in its units; a DNC (Graves et al., 2016) can
read its memory slots in the order in which it wrote them.
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


class CopyingState(NamedTuple):
  """State of an episode.

  Attributes:
    symbols: int32 [max_length], the symbols; only the first `length` are used.
    length: int32 [], number of symbols of this episode.
    step: int32 [], number of actions taken so far.
  """

  symbols: types.Array
  length: types.Array
  step: types.Array


@registry.register('copying.game')
def make(
  length: int = 10, num_symbols: int = 4, min_length: int | None = None
) -> functional.FunctionalEnvironment:
  """Makes the copying task.

  An action is the index of a symbol. An episode of `n` symbols has `2 * n`
  transitions. The first `n` actions have no effect. Each of the others is
  rewarded with `1 / n` if it is the right symbol, so a perfect return is 1 and
  random guessing returns `1 / num_symbols` on average.

  Args:
    length: largest number of symbols in an episode.
    num_symbols: number of different symbols, at least 2.
    min_length: smallest number of symbols in an episode, at least 1; the number
      is drawn uniformly from `min_length` to `length`. None for `length` in
      every episode.

  Returns:
    The environment. Its observation is float32 [num_symbols + 1]: first the
    one-hot code of the symbol while symbols are shown, zeros later; last a flag
    that is 1 when a symbol is asked for.

  Raises:
    ValueError: if `num_symbols` is below 2 or `min_length` is not from 1 to
      `length`.
  """
  specified.check_at_least(2, num_symbols=num_symbols)
  least = length if min_length is None else min_length
  if not 1 <= least <= length:
    raise ValueError(
      f'min_length ({least}) must be from 1 to length ({length}); choose'
      ' length=10 and min_length=2, or None for the same length in every'
      ' episode.'
    )
  return functional.FunctionalEnvironment(
    specified.make_spec(
      specs.Array((num_symbols + 1,), np.float32, 'observation'), num_symbols
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
