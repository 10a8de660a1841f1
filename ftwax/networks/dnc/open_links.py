"""Conversion between exact links and their lazy form within a step.

Links are opened before a step or an unroll, and closed after it. Links that are
not exact are returned unchanged.
"""

from collections.abc import Callable
from typing import Any, TypeGuard, TypeVar

import jax
import jax.numpy as jnp

from ftwax import trees, types
from ftwax.networks.dnc import interfaces, lazy_link, link_update, memory_state

# Any state that may contain a `MemoryState`.
_State = TypeVar('_State')


def open_links(
  config: interfaces.Memory, state: _State, has_reads_ahead: bool = False
) -> _State:
  """Makes exact links lazy, so that they can be accessed.

  Args:
    config: options of the memory.
    state: any state that may contain a `MemoryState`.
    has_reads_ahead: whether there is more than one access in a step.

  Returns:
    The state with open links.
  """
  if config.linkage != 'exact':
    return state
  num_taps = lazy_link.TAPS_PER_READ * config.num_reads * has_reads_ahead

  def make_lazy(links: memory_state.LinkState) -> memory_state.LinkState:
    return links._replace(link=lazy_link.make_lazy(links.link, num_taps))

  return _map_links(make_lazy, state)


def close_links(config: interfaces.Memory, state: _State) -> _State:
  """Undoes `open_links`."""
  if config.linkage != 'exact':
    return state
  # Only the matrix is kept: the last access of a step has applied all writes,
  # and resets come before accesses.
  return _map_links(lambda links: links._replace(link=links.link.matrix), state)


def reset(start: types.Array, state: _State) -> _State:
  """Sets `state` [B, ...] to zero in the rows where `start` [B] is true.

  Like `recurrence.reset_state`, but without a pass over open links: their
  matrices are marked to be treated as zero from here on.
  """

  def reset_links(links: memory_state.LinkState) -> memory_state.LinkState:
    precedence = _reset(start, links.precedence)
    if not isinstance(links.link, lazy_link.LazyLink):
      link = jax.tree.map(lambda leaf: _reset(start, leaf), links.link)
      return memory_state.LinkState(link, precedence)
    # `keep` has an axis for the write heads, [B, H].
    heads = jnp.repeat(start[:, None], links.precedence.shape[1], axis=1)
    return memory_state.LinkState(
      lazy_link.reset(heads, links.link), precedence
    )

  return _map_links(reset_links, state, lambda leaf: _reset(start, leaf))


@jax.custom_vjp
def _reset(start: types.Array, leaf: types.Array) -> types.Array:
  """Sets `leaf` to zero where `start` is true; `start` is its only residual."""
  mask = trees.align(start, leaf)
  # Zeros that depend on the step: XLA would move constants of the state's size
  # out of the loop, and then read them from memory at each step.
  zero = jnp.logical_and(mask, ~mask).astype(leaf.dtype)
  return jnp.where(mask, zero, leaf)


def _reset_forward(
  start: types.Array, leaf: types.Array
) -> tuple[types.Array, types.Array]:
  return _reset(start, leaf), start


def _reset_backward(
  start: types.Array, cotangent: types.Array
) -> tuple[None, types.Array]:
  return None, _reset(start, cotangent)


_reset.defvjp(_reset_forward, _reset_backward)


def flush(state: memory_state.MemoryState) -> memory_state.MemoryState:
  """Applies the pending write to an open link."""
  if not _has_open_link(state):
    return state
  return _replace_link(state, lazy_link.flush(state.links.link))


def detach(
  state: memory_state.MemoryState,
) -> tuple[memory_state.MemoryState, types.Array | None]:
  """Takes the matrix out of an open link; the rest is small.

  A read ahead does not change the matrix, so a branch that does one only has to
  return the rest.

  Returns:
    The state without the matrix, and the matrix, or None if there is none.
  """
  if not _has_open_link(state):
    return state, None
  link = state.links.link
  return _replace_link(state, link._replace(matrix=None)), link.matrix


def attach(
  state: memory_state.MemoryState, matrix: types.Array | None
) -> memory_state.MemoryState:
  """Puts the matrix from `detach` back into an open link."""
  if not _has_open_link(state):
    return state
  return _replace_link(state, state.links.link._replace(matrix=matrix))


def write_nothing(
  state: memory_state.MemoryState,
) -> memory_state.MemoryState:
  """Returns the state after a read ahead in which all rows are masked."""
  if not _has_open_link(state):
    return state
  nothing = jnp.zeros_like(state.links.precedence)
  pending = link_update.Write(nothing, nothing)
  return _replace_link(state, state.links.link._replace(pending=pending))


def _map_links(
  function: Callable[[memory_state.LinkState], memory_state.LinkState],
  state: Any,
  change_leaf: Callable[[types.Array], types.Array] = lambda leaf: leaf,
) -> Any:
  """Applies `function` to link states and `change_leaf` to other leaves."""

  def is_links(node: Any) -> TypeGuard[memory_state.LinkState]:
    return isinstance(node, memory_state.LinkState)

  return jax.tree.map(
    lambda node: function(node) if is_links(node) else change_leaf(node),
    state,
    is_leaf=is_links,
  )


def _has_open_link(state: memory_state.MemoryState) -> bool:
  return isinstance(state.links, memory_state.LinkState) and isinstance(
    state.links.link, lazy_link.LazyLink
  )


def _replace_link(
  state: memory_state.MemoryState, link: lazy_link.LazyLink
) -> memory_state.MemoryState:
  return state._replace(links=state.links._replace(link=link))
