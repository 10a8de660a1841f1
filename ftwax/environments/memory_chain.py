"""A chain that asks at its end for a bit that it showed at its start, in JAX.

The rules are those of bsuite's memory_len (Osband et al., 2020,
arXiv:1908.03568).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from dm_env import specs

from ftwax import types
from ftwax.environments import functional


class MemoryChainState(NamedTuple):
  """How far an episode is and what it asks.

  Attributes:
    num_steps: int32 [], transitions done.
    context: int32 [num_bits], the bits to remember.
    query: int32 [], index of the bit that is asked for.
  """

  num_steps: types.Array
  context: types.Array
  query: types.Array


def make(
  memory_length: int = 10, num_bits: int = 1
) -> functional.FunctionalEnvironment:
  """Makes a chain of `memory_length + 1` transitions.

  The context is seen before the first action and after it, the query after
  the action number `memory_length`. The next action is the answer, whose
  reward is 1 if it is the bit asked for and -1 if not. All others have none.

  Args:
    memory_length: steps between the context and the answer.
    num_bits: of the context.

  Returns:
    The environment; its observation is float32 [1, 2 + num_bits]: the time
    left, from 1 to 0, the query, and the bits as -1 and 1.

  Raises:
    ValueError: if either is below 1.
  """
  for name, value in (('memory_length', memory_length), ('num_bits', num_bits)):
    if value < 1:
      raise ValueError(f'{name} ({value}) must be at least 1; choose 1.')

  def observe(state):
    # The observation after an action is of the time before it, as in bsuite.
    time = jnp.maximum(state.num_steps - 1, 0)
    query = jnp.where(time == memory_length - 1, state.query, 0)
    bits = jnp.where(time == 0, 2 * state.context - 1, 0)
    numbers = [1.0 - time / memory_length, query]
    observation = jnp.concatenate(
      [jnp.stack([jnp.float32(x) for x in numbers]), bits.astype(jnp.float32)]
    )
    return observation[None]

  def reset(key):
    context_key, query_key = jax.random.split(key)
    state = MemoryChainState(
      num_steps=jnp.zeros((), jnp.int32),
      context=jax.random.randint(context_key, (num_bits,), 0, 2, jnp.int32),
      query=jax.random.randint(query_key, (), 0, num_bits, jnp.int32),
    )
    return state, functional.restart(observe(state))

  def step(state, action):
    state = state._replace(num_steps=state.num_steps + 1)
    last = state.num_steps == memory_length + 1
    right = action.astype(jnp.int32) == state.context[state.query]
    reward = jnp.where(right, 1.0, -1.0)
    return state, functional.transition(
      jnp.where(last, reward, 0.0), observe(state), is_terminal=last
    )

  return functional.FunctionalEnvironment(_make_spec(num_bits), reset, step)


def _make_spec(num_bits: int) -> types.EnvironmentSpec:
  return types.EnvironmentSpec(
    observations=specs.Array((1, 2 + num_bits), np.float32, 'observation'),
    actions=specs.DiscreteArray(2, np.int32, 'action'),
    rewards=specs.BoundedArray((), np.float32, -1, 1, 'reward'),
    discounts=specs.BoundedArray((), np.float32, 0, 1, 'discount'),
  )
