"""Memory chain in JAX: recall a bit shown at the start of the episode.

Follows the rules of bsuite's memory_len (Osband et al., 2020,
arXiv:1908.03568).
"""

from typing import NamedTuple

import dm_env
import jax
import jax.numpy as jnp
import numpy as np
from dm_env import specs

from ftwax import registry, types
from ftwax.environments import functional, specified


class MemoryChainState(NamedTuple):
  """State of an episode.

  Attributes:
    num_steps: int32 [], number of transitions so far.
    context: int32 [num_bits], the bits to remember.
    query: int32 [], index of the bit asked for.
  """

  num_steps: types.Array
  context: types.Array
  query: types.Array


@registry.register('memory_chain.game')
def make(
  memory_length: int = 10, num_bits: int = 1
) -> functional.FunctionalEnvironment:
  """Makes a chain of `memory_length + 1` transitions.

  The context is visible before and after the first action, the query after
  action number `memory_length`. The next action is the answer, rewarded with 1
  if it equals the queried bit and with -1 otherwise. All other rewards are 0.

  Args:
    memory_length: steps between the context and the answer, at least 1.
    num_bits: number of bits in the context, at least 1.

  Returns:
    The environment. Its observation is float32 [1, 2 + num_bits]: the fraction
    of time left, the query, and the bits as -1 or 1 (0 while hidden).

  Raises:
    ValueError: if either argument is below 1.
  """
  specified.check_at_least(1, memory_length=memory_length, num_bits=num_bits)

  def observe(state: MemoryChainState) -> types.Array:
    # As in bsuite, an observation contains the time before its action.
    time = jnp.maximum(state.num_steps - 1, 0)
    query = jnp.where(time == memory_length - 1, state.query, 0)
    bits = jnp.where(time == 0, 2 * state.context - 1, 0)
    numbers = [1.0 - time / memory_length, query]
    observation = jnp.concatenate(
      [jnp.stack([jnp.float32(x) for x in numbers]), bits.astype(jnp.float32)]
    )
    return observation[None]

  def reset(key: types.Key) -> tuple[MemoryChainState, dm_env.TimeStep]:
    context_key, query_key = jax.random.split(key)
    state = MemoryChainState(
      num_steps=jnp.zeros((), jnp.int32),
      context=jax.random.randint(context_key, (num_bits,), 0, 2, jnp.int32),
      query=jax.random.randint(query_key, (), 0, num_bits, jnp.int32),
    )
    return state, functional.restart(observe(state))

  def step(
    state: MemoryChainState, action: types.Array
  ) -> tuple[MemoryChainState, dm_env.TimeStep]:
    state = state._replace(num_steps=state.num_steps + 1)
    last = state.num_steps == memory_length + 1
    right = action.astype(jnp.int32) == state.context[state.query]
    reward = jnp.where(right, 1.0, -1.0)
    return state, functional.transition(
      jnp.where(last, reward, 0.0), observe(state), is_terminal=last
    )

  spec = specified.make_spec(
    specs.Array((1, 2 + num_bits), np.float32, 'observation'),
    2,
    reward_range=(-1, 1),
  )
  return functional.FunctionalEnvironment(spec, reset, step)
