"""The state of a memory.

Between steps the link of an exact linkage is a bare matrix. Within a step it is
a `lazy_link.LazyLink`; see `open_links`.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp

from ftwax import types
from ftwax.networks.dnc import interfaces, sparse_linkage


class LinkState(NamedTuple):
  """Temporal links between slots.

  Attributes:
    link: float32 [B, H, N, N], or a `SparseLink` with leaves [B, H, K, N];
      within a step an exact link is a `LazyLink`.
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
    words: float32 [B, R, W], the words read last.
    links: a `LinkState`, or `()` without linkage.
  """

  memory: types.Array
  read_weights: types.Array
  write_weights: types.Array
  usage: types.Array
  words: types.Array
  links: Any


def initial_state(config: interfaces.Memory, batch_size: int) -> MemoryState:
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


def _initial_links(config: interfaces.Memory, batch_size: int) -> Any:
  if not config.has_links:
    return ()
  leading = (batch_size, config.num_writes)
  precedence = jnp.zeros((*leading, config.num_slots))
  if config.linkage != 'sparse':
    return LinkState(
      jnp.zeros((*leading, config.num_slots, config.num_slots)), precedence
    )
  shape = (*leading, config.num_links, config.num_slots)

  def empty_lists() -> sparse_linkage.LinkLists:
    return sparse_linkage.LinkLists(
      jnp.zeros(shape), jnp.zeros(shape, jnp.int32)
    )

  # Called twice, since an array that occurs twice in a state cannot be donated.
  link = sparse_linkage.SparseLink(empty_lists(), empty_lists())
  return LinkState(link, precedence)


def join_words(state: MemoryState) -> types.Array:
  """Returns the words read last by all heads, [B, R * W]."""
  return state.words.reshape(*state.words.shape[:-2], -1)
