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
    symbols: int32 [length], the symbols.
    step: int32 [], number of actions taken so far.
  """

  symbols: types.Array
  step: types.Array


@registry.register('copying.game')
def make(
  length: int = 10, num_symbols: int = 4
) -> functional.FunctionalEnvironment:
  """Makes the copying task.

  An action is the index of a symbol. An episode has `2 * length` transitions.
  The first `length` actions have no effect. Each of the others is rewarded with
  `1 / length` if it is the right symbol, so a perfect return is 1 and random
  guessing returns `1 / num_symbols` on average.

  Args:
    length: number of symbols of an episode, at least 1.
    num_symbols: number of different symbols, at least 2.

  Returns:
    The environment. Its observation is float32 [num_symbols + 1]: first the
    one-hot code of the symbol while symbols are shown, zeros later; last a flag
    that is 1 when a symbol is asked for.

  Raises:
    ValueError: if `length` is below 1 or `num_symbols` below 2.
  """
  specified.check_at_least(1, length=length)
  specified.check_at_least(2, num_symbols=num_symbols)
  return functional.FunctionalEnvironment(
    specified.make_spec(
      specs.Array((num_symbols + 1,), np.float32, 'observation'), num_symbols
    ),
    functools.partial(_reset, length, num_symbols),
    functools.partial(_step, num_symbols),
  )


def _reset(
  length: int, num_symbols: int, key: types.Key
) -> tuple[CopyingState, dm_env.TimeStep]:
  symbols_key, _ = jax.random.split(key)
  state = CopyingState(
    symbols=jax.random.randint(
      symbols_key, (length,), 0, num_symbols, jnp.int32
    ),
    step=jnp.zeros((), jnp.int32),
  )
  return state, functional.restart(_observe(num_symbols, state))


def _step(
  num_symbols: int, state: CopyingState, action: types.Array
) -> tuple[CopyingState, dm_env.TimeStep]:
  length = len(state.symbols)
  asked = state.step - length
  is_right = (asked >= 0) & (action == state.symbols[jnp.maximum(asked, 0)])
  state = state._replace(step=state.step + 1)
  return state, functional.transition(
    jnp.where(is_right, 1.0 / length, 0.0),
    _observe(num_symbols, state),
    is_terminal=state.step == 2 * length,
  )


def _observe(num_symbols: int, state: CopyingState) -> types.Array:
  length = len(state.symbols)
  is_asked = state.step >= length
  symbol = jax.nn.one_hot(
    state.symbols[jnp.minimum(state.step, length - 1)], num_symbols
  )
  return jnp.append(
    jnp.where(is_asked, 0.0, symbol), is_asked.astype(jnp.float32)
  )
