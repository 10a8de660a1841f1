"""The state of a memory, and what changes of it within a step.

Between steps the link of an exact linkage is a bare matrix. While steps are
done on it, it is a `lazy_link.LazyLink`, which is opened before and closed
after them.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ftwax import types
from ftwax.networks.dnc import (
  interfaces,
  lazy_link,
  link_update,
  sparse_linkage,
)


class LinkState(NamedTuple):
  """The order of writing.

  Attributes:
    link: float32 [B, H, N, N], or a `SparseLink` with leaves [B, H, K, N];
      while steps are done on it, an exact link is a `LazyLink`.
    precedence: float32 [B, H, N].
  """

  link: Any
  precedence: types.Array


class MemoryState(NamedTuple):
  """State of a memory; zero at the start of an episode.

  Attributes:
    memory: float32 [B, N, W].
    read_weights: float32 [B, R, N].
    write_weights: float32 [B, H, N].
    usage: float32 [B, N].
    words: float32 [B, R, W], what was read last.
    links: a `LinkState`, or `()` without linkage.
  """

  memory: types.Array
  read_weights: types.Array
  write_weights: types.Array
  usage: types.Array
  words: types.Array
  links: Any


def initial_state(
  config: interfaces.MemoryConfig, batch_size: int
) -> MemoryState:
  """Returns an empty memory."""
  b, n, h = batch_size, config.num_slots, config.num_writes
  words = (b, config.num_reads, config.word_size)
  return MemoryState(
    memory=jnp.zeros((b, n, config.word_size)),
    read_weights=jnp.zeros((b, config.num_reads, n)),
    write_weights=jnp.zeros((b, h, n)),
    usage=jnp.zeros((b, n)),
    words=jnp.zeros(words),
    links=_initial_links(config, batch_size),
  )


def _initial_links(config: interfaces.MemoryConfig, batch_size: int) -> Any:
  if not config.has_links:
    return ()
  leading = (batch_size, config.num_writes)
  precedence = jnp.zeros((*leading, config.num_slots))
  if config.linkage != 'sparse':
    return LinkState(
      jnp.zeros((*leading, config.num_slots, config.num_slots)), precedence
    )
  shape = (*leading, config.num_links, config.num_slots)

  def empty_lists():
    return sparse_linkage.LinkLists(
      jnp.zeros(shape), jnp.zeros(shape, jnp.int32)
    )

  link = sparse_linkage.SparseLink(empty_lists(), empty_lists())
  return LinkState(link, precedence)


def open_links(
  config: interfaces.MemoryConfig, state: Any, has_reads_ahead: bool = False
) -> Any:
  """Makes exact links lazy, so that steps can be done on them.

  Args:
    config: the memory's.
    state: any state of which a `MemoryState` may be part.
    has_reads_ahead: whether there is more than one access in a step.
  """
  if config.linkage != 'exact':
    return state
  num_taps = lazy_link.TAPS_PER_READ * config.num_reads * has_reads_ahead

  def make_lazy(links):
    return links._replace(link=lazy_link.make_lazy(links.link, num_taps))

  return map_links(make_lazy, state)


def close_links(config: interfaces.MemoryConfig, state: Any) -> Any:
  """Undoes `open_links`, between two steps."""
  if config.linkage != 'exact':
    return state
  return map_links(lambda links: links._replace(link=links.link.matrix), state)


def map_links(
  function: Callable[[LinkState], Any],
  state: Any,
  other: Callable[[types.Array], Any] = lambda leaf: leaf,
) -> Any:
  """Applies one function to link states and another to all other leaves."""

  def is_links(node):
    return isinstance(node, LinkState)

  return jax.tree.map(
    lambda node: function(node) if is_links(node) else other(node),
    state,
    is_leaf=is_links,
  )


def flush_link(state: MemoryState) -> MemoryState:
  """Brings an open link up to date."""
  if not _has_open_link(state):
    return state
  return _replace_link(state, lazy_link.flush(state.links.link))


def detach_link(state: MemoryState) -> tuple[MemoryState, Any]:
  """Takes the matrix out of an open link; what is left is small.

  An access ahead reads the matrix but does not change it: all that a branch
  which does one has to return is the rest.

  Returns:
    The state without the matrix, and the matrix; if there is none, None.
  """
  if not _has_open_link(state):
    return state, None
  link = state.links.link
  return _replace_link(state, link._replace(matrix=None)), link.matrix


def attach_link(state: MemoryState, matrix: Any) -> MemoryState:
  """Puts back what `detach_link` took out."""
  if not _has_open_link(state):
    return state
  return _replace_link(state, state.links.link._replace(matrix=matrix))


def write_nothing(state: MemoryState) -> MemoryState:
  """Returns what an access ahead of which no row is part would return."""
  if not _has_open_link(state):
    return state
  nothing = jnp.zeros_like(state.links.precedence)
  pending = link_update.Write(nothing, nothing)
  return _replace_link(state, state.links.link._replace(pending=pending))


def _has_open_link(state: Any) -> bool:
  return (
    isinstance(state, MemoryState)
    and isinstance(state.links, LinkState)
    and isinstance(state.links.link, lazy_link.LazyLink)
  )


def _replace_link(state: MemoryState, link: lazy_link.LazyLink) -> MemoryState:
  return state._replace(links=state.links._replace(link=link))
