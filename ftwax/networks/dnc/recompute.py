"""An unroll whose gradient recomputes the link matrices.

Reverse-mode differentiation of a loop keeps, for every step, what the gradient
of the step reads. Of a memory access that is little but for the link matrix,
which is N x N. This unroll keeps it only at the first step of each of some
sqrt(T) stretches. The backward pass takes the stretches from the last to the
first, and recomputes the link matrices of one stretch at a time from the write
weights and precedences, which are kept: nothing but the links is computed
twice, and at most some 2 sqrt(T) of them exist at a time.
"""

import math
from collections.abc import Callable
from typing import Any

import haiku as hk
import jax
import jax.numpy as jnp

from ftwax import types
from ftwax.networks.dnc import interfaces, lazy_link, memory_state


def unroll_step(
  step: Callable[[Any, types.RecurrentState], tuple[Any, types.RecurrentState]],
  inputs: Any,
  start: types.Array,
  state: types.RecurrentState,
  config: interfaces.MemoryConfig,
) -> tuple[Any, types.RecurrentState]:
  """Does what `cores.unroll_step` does, and keeps fewer link matrices.

  Args:
    step: `(inputs, state) -> (output, state)`, leaves [B, ...].
    inputs: leaves [T, B, ...].
    start: bool [T, B].
    state: leaves [B, ...], with open links.
    config: of the memory.

  Returns:
    The outputs, leaves [T, B, ...], and the state after the last step.
  """

  def scan_step(state, inputs):
    step_inputs, step_start = inputs
    outputs, state = step(step_inputs, _reset_state(step_start, state))
    return state, outputs

  def unroll_stretch(state, stretch):
    return hk.scan(scan_step, state, stretch)

  num_steps = start.shape[0]
  length = stretch_length(num_steps)
  if config.linkage == 'plain' or hk.running_init() or length < 2:
    state, outputs = unroll_stretch(state, (inputs, start))
    return outputs, state
  return _unroll_stretches(
    hk.remat(unroll_stretch, policy=_make_policy(config), prevent_cse=False),
    (inputs, start),
    state,
    length,
  )


def _unroll_stretches(
  unroll_stretch: Callable[[Any, Any], tuple[Any, Any]],
  sequence: Any,
  state: types.RecurrentState,
  length: int,
) -> tuple[Any, types.RecurrentState]:
  """Unrolls one stretch after another, and what rests."""
  num_steps = jax.tree.leaves(sequence)[0].shape[0]
  num_whole = num_steps // length * length
  stretches = jax.tree.map(
    lambda leaf: leaf[:num_whole].reshape(-1, length, *leaf.shape[1:]), sequence
  )
  state, outputs = hk.scan(unroll_stretch, state, stretches)
  outputs = jax.tree.map(
    lambda leaf: leaf.reshape(num_whole, *leaf.shape[2:]), outputs
  )
  if num_whole < num_steps:
    rest = jax.tree.map(lambda leaf: leaf[num_whole:], sequence)
    state, rest_outputs = unroll_stretch(state, rest)
    outputs = jax.tree.map(
      lambda x, y: jnp.concatenate([x, y]), outputs, rest_outputs
    )
  return outputs, state


def _reset_state(
  start: types.Array, state: types.RecurrentState
) -> types.RecurrentState:
  """Does what `cores.reset_state` does, on open links as well."""

  def reset_links(links):
    if not isinstance(links.link, lazy_link.LazyLink):
      return jax.tree.map(lambda leaf: _reset(start, leaf), links)
    heads = jnp.repeat(start[:, None], links.precedence.shape[1], axis=1)
    return memory_state.LinkState(
      lazy_link.reset(heads, links.link), _reset(start, links.precedence)
    )

  return memory_state.map_links(
    reset_links, state, lambda leaf: _reset(start, leaf)
  )


@jax.custom_vjp
def _reset(start: types.Array, leaf: types.Array) -> types.Array:
  """Sets `leaf` to zero where `start` is true; keeps only `start` for it."""
  mask = start.reshape(start.shape + (1,) * (leaf.ndim - 1))
  # Zeros that depend on the step: constants of the state's size would be taken
  # out of the loop, and read from memory at each step.
  zero = jnp.logical_and(mask, ~mask).astype(leaf.dtype)
  return jnp.where(mask, zero, leaf)


_reset.defvjp(
  lambda start, leaf: (_reset(start, leaf), start),
  lambda start, cotangent: (None, _reset(start, cotangent)),
)


def stretch_length(num_steps: int) -> int:
  """Returns how many steps a stretch has.

  Near the root of `num_steps`, and a divisor of it if one is near enough:
  a rest is compiled once more.
  """
  root = math.isqrt(num_steps)
  candidates = range(max(1, root // 2), 2 * root + 1)
  divisors = [length for length in candidates if num_steps % length == 0]
  return min(divisors, key=lambda length: abs(length - root), default=root)


def _make_policy(config: interfaces.MemoryConfig) -> Callable[..., bool]:
  """Returns which results are kept: all but links and memories."""
  recomputed = (
    (config.num_slots, config.num_slots),
    (config.num_slots, config.word_size),
  )

  def policy(primitive, *avals, **params):
    try:
      results, _ = primitive.abstract_eval(*avals, **params)
    except NotImplementedError:
      return False  # A call, made of primitives that are asked about as well.
    if not primitive.multiple_results:
      results = [results]
    return not any(tuple(x.shape[-2:]) in recomputed for x in results)

  return policy
