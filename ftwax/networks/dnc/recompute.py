"""An unroll whose gradient recomputes links and memories.

Reverse-mode differentiation of a loop stores, for every step, the residuals of
the step. For a memory access the largest are the N x N link matrix, if there is
one, and the memory of N words. This unroll stores both only at the first step
of each segment of about sqrt(T) steps. The backward pass goes through the
segments from last to first and recomputes links and memories of one segment at
a time from the weights, precedences and words written, which are stored. At
most about 2 sqrt(T) of each exist at a time.
"""

import math
from collections.abc import Callable
from typing import Any, TypeVar

import haiku as hk
import jax
import jax.numpy as jnp

from ftwax import types
from ftwax.networks import unrolling
from ftwax.networks.dnc import interfaces, open_links

_Inputs = TypeVar('_Inputs')
_Output = TypeVar('_Output')
_State = TypeVar('_State')


def unroll_step(
  step: Callable[[_Inputs, _State], tuple[_Output, _State]],
  inputs: _Inputs,
  start: types.Array,
  state: _State,
  config: interfaces.Memory,
) -> tuple[_Output, _State]:
  """Does the same as `recurrence.unroll_step`, but stores fewer link matrices.

  Args:
    step: `(inputs, state) -> (output, state)`, leaves [B, ...].
    inputs: leaves [T, B, ...].
    start: bool [T, B].
    state: leaves [B, ...], with open links.
    config: options of the memory.

  Returns:
    The outputs, leaves [T, B, ...], and the state after the last step.
  """

  def scan_step(
    state: _State, inputs: tuple[_Inputs, types.Array]
  ) -> tuple[_State, _Output]:
    step_inputs, step_start = inputs
    outputs, state = step(step_inputs, open_links.reset(step_start, state))
    return state, outputs

  def unroll_segment(
    state: _State, segment: tuple[_Inputs, types.Array]
  ) -> tuple[_State, _Output]:
    return hk.scan(scan_step, state, segment)

  num_steps = start.shape[0]
  length = segment_length(num_steps)
  if config.is_stored:
    state, outputs = unrolling.scan(scan_step, state, (inputs, start))
    return outputs, state
  if config.linkage == 'plain' or hk.running_init() or length < 2:
    state, outputs = unroll_segment(state, (inputs, start))
    return outputs, state
  return _unroll_segments(
    # Around a loop, the recomputation needs no barriers against the elimination
    # of common subexpressions, which would cost time.
    hk.remat(unroll_segment, policy=_make_policy(config), prevent_cse=False),
    (inputs, start),
    state,
    length,
  )


def _unroll_segments(
  unroll_segment: Callable[[_State, _Inputs], tuple[_State, _Output]],
  sequence: _Inputs,
  state: _State,
  length: int,
) -> tuple[_Output, _State]:
  """Unrolls one segment after another, and then the remaining steps."""
  num_steps = jax.tree.leaves(sequence)[0].shape[0]
  num_segments = num_steps // length
  num_even = num_segments * length  # Steps in segments of equal length.
  segments = jax.tree.map(  # [num_segments, length, B, ...]
    lambda leaf: leaf[:num_even].reshape(num_segments, length, *leaf.shape[1:]),
    sequence,
  )
  state, outputs = hk.scan(unroll_segment, state, segments)
  outputs = jax.tree.map(
    lambda leaf: leaf.reshape(num_even, *leaf.shape[2:]), outputs
  )
  if num_even < num_steps:
    rest = jax.tree.map(lambda leaf: leaf[num_even:], sequence)
    state, rest_outputs = unroll_segment(state, rest)
    outputs = jax.tree.map(
      lambda x, y: jnp.concatenate([x, y]), outputs, rest_outputs
    )
  return outputs, state


def segment_length(num_steps: int) -> int:
  """Returns the number of steps in a segment.

  It is near the square root of `num_steps`, and a divisor of it if there is one
  nearby: a shorter segment at the end would be compiled separately.
  """
  root = math.isqrt(num_steps)
  candidates = range(max(1, root // 2), 2 * root + 1)
  divisors = [length for length in candidates if num_steps % length == 0]
  return min(divisors, key=lambda length: abs(length - root), default=root)


def _make_policy(config: interfaces.Memory) -> Callable[..., bool]:
  """Makes a policy that decides which results are stored for the backward pass.

  It stores all except for links and memories, which it recognises by their last
  two axes.
  """
  large_shapes = (
    (config.num_slots, config.num_slots),
    (config.num_slots, config.word_size),
  )

  def policy(primitive: Any, *avals: Any, **params: Any) -> bool:
    try:
      results, _ = primitive.abstract_eval(*avals, **params)
    except NotImplementedError:
      return False  # A call; the policy is asked about its primitives, too.
    if not primitive.multiple_results:
      results = [results]
    return not any(tuple(x.shape[-2:]) in large_shapes for x in results)

  return policy
