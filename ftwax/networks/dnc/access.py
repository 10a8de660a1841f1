"""Access to the memory of a differentiable neural computer.

A controller outputs an interface, and from it an access frees slots, writes,
updates the temporal links, and reads, in this order (Graves et al., 2016,
Methods). Several controllers may share one access and one memory.
`Memory.linkage` chooses how reads follow the order of writing:

  exact   the N x N link matrix, with a gradient that recomputes it
  sparse  K links per slot, the paper's own cheaper scheme
  none    no links: reads by content only, writes to the least recently used
          slot (Santoro et al., 2016, arXiv:1605.06065, section 3.2), which
          Jaderberg et al., 2019, call a "DNC memory (LRU)"
  plain   the exact matrix with plain autodiff, for comparison

Optional, off by default: key masking, de-allocation and link sharpness (Csordás
and Schmidhuber, 2019, arXiv:1904.10278) and layer norm of the interface (Franke
et al., 2018, arXiv:1807.02658).
"""

from typing import Any

import jax
import jax.numpy as jnp

from ftwax import trees, types
from ftwax.networks.dnc import (
  addressing,
  interfaces,
  lazy_link,
  link_update,
  linkage,
  memory_state,
  open_links,
  sparse_linkage,
)

# Decay of usage per step without linkage (Santoro et al., 2016).
_USAGE_DECAY = 0.99


def access(
  config: interfaces.Memory,
  interface: interfaces.Interface,
  state: memory_state.MemoryState,
  is_ahead: bool = False,
) -> memory_state.MemoryState:
  """Writes, then reads.

  Args:
    config: options of the memory.
    interface: the controller's output, leaves [B, ...].
    state: state before the access, with an open link if the linkage is exact.
    is_ahead: whether another access follows within the step; see `lazy_link`.

  Returns:
    The state after the access, including the words read.
  """
  usage, allocation, memory = _allocate(config, interface, state)
  # The key is compared with the memory before freed slots are erased, since
  # de-allocation is a part of the write.
  content = addressing.content_weights(  # [B, H, N]
    state.memory,
    interface.write_keys,
    interface.write_strengths,
    interface.write_masks,
  )
  write_weights = addressing.write_weights(
    interface.write_gates, interface.allocation_gates, allocation, content
  )
  memory = addressing.write(
    memory, write_weights, interface.erase, interface.write_vectors
  )
  reads, links = _follow_links(
    config,
    interface,
    state.links,
    write_weights,
    state.read_weights,
    is_ahead,
  )
  content = addressing.content_weights(  # [B, R, N]
    memory,
    interface.read_keys,
    interface.read_strengths,
    interface.read_masks,
  )
  # [B, R, N]. A contraction instead of a sum; see `addressing.write_weights`.
  read_weights = addressing.batch_dot(
    'brm,mbrn->brn', interface.read_modes, jnp.stack([*reads, content])
  )
  if not config.has_links:
    # u_t = 0.99 u_{t-1} + w^r_t + w^w_t (Santoro et al., 2016, section 3.2).
    usage = usage + jnp.sum(write_weights, 1) + jnp.sum(read_weights, 1)
  return memory_state.MemoryState(
    memory=memory,
    read_weights=read_weights,
    write_weights=write_weights,
    usage=usage,
    words=addressing.read(memory, read_weights),
    links=links,
  )


def masked_access(
  config: interfaces.Memory,
  interface: interfaces.Interface,
  state: memory_state.MemoryState,
  mask: types.Array,
) -> memory_state.MemoryState:
  """Does an access before the last one of a step, in the rows of a mask.

  Where `mask` is false the gates are closed. This leaves memory and links
  unchanged to the bit, without a pass over them to select between old and new.

  Args:
    config: options of the memory.
    interface: the controller's output, leaves [B, ...].
    state: state before the access.
    mask: bool [B].

  Returns:
    The state after the access.
  """
  gates = {'write_gates': interface.write_gates}
  if interface.free_gates is not None:
    gates['free_gates'] = interface.free_gates
  interface = interface._replace(
    **{k: jnp.where(mask[:, None], gate, 0.0) for k, gate in gates.items()}
  )
  state = open_links.flush(state)
  new_state = access(config, interface, state, is_ahead=True)
  # These change even if the gates are closed: the heads still read, and usage
  # takes up the last write.
  for name in ('read_weights', 'write_weights', 'usage', 'words'):
    new, old = getattr(new_state, name), getattr(state, name)
    new_state = new_state._replace(**{name: trees.where_rows(mask, new, old)})
  return new_state


def _allocate(
  config: interfaces.Memory,
  interface: interfaces.Interface,
  state: memory_state.MemoryState,
) -> tuple[types.Array, types.Array, types.Array]:
  """Computes the allocation of slots for writing.

  Returns:
    Usage [B, N], allocation weights [B, H, N] and the memory [B, N, W], in
    which freed slots are erased if de-allocation is on.
  """
  if not config.has_links:
    # Usage only chooses a slot, which has no gradient.
    usage = jax.lax.stop_gradient(_USAGE_DECAY * state.usage)
    least_used = _least_used(usage, config.num_writes)
    return usage, least_used, state.memory
  retention = addressing.retention(interface.free_gates, state.read_weights)
  write_weights = state.write_weights
  if not config.usage_gradient:
    write_weights = jax.lax.stop_gradient(write_weights)
  usage = addressing.usage(state.usage, write_weights, retention)
  allocation = addressing.write_allocation(
    usage, interface.allocation_gates * interface.write_gates
  )
  memory = state.memory
  if config.deallocation:
    memory = memory * retention[..., None]  # [B, N, W] by [B, N, 1]
  return usage, allocation, memory


def _least_used(usage: types.Array, num_writes: int) -> types.Array:
  """Returns one-hot weights [B, H, N] of the H least used slots."""
  weights = []
  for _ in range(num_writes):
    slot = jnp.argmin(usage, axis=-1)  # [B]
    weights.append(jax.nn.one_hot(slot, usage.shape[-1]))  # [B, N]
    # Each write head gets a slot of its own.
    usage = jnp.where(weights[-1] > 0.0, jnp.inf, usage)
  return jnp.stack(weights, axis=-2)  # [B, H, N]


def _follow_links(
  config: interfaces.Memory,
  interface: interfaces.Interface,
  links: Any,
  write_weights: types.Array,
  read_weights_tm1: types.Array,
  is_ahead: bool,
) -> tuple[list[types.Array], Any]:
  """Updates the links and reads along them.

  Returns:
    Backward and forward read weights of each write head, a list of [B, R, N]
    that is empty without linkage, and the links after the write.
  """
  if not config.has_links:
    return [], ()
  num_writes = config.num_writes
  # [B, H, R, N]: the links of each write head are followed from the same reads.
  read_weights = jnp.repeat(read_weights_tm1[:, None], num_writes, axis=1)
  if config.linkage == 'sparse':
    link: Any = sparse_linkage.update_sparse_link(
      links.link,
      sparse_linkage.keep_largest(write_weights, config.num_links),
      sparse_linkage.keep_largest(links.precedence, config.num_links),
    )
    directional = sparse_linkage.sparse_directional_reads(link, read_weights)
  elif config.linkage == 'exact':
    write = link_update.Write(write_weights, links.precedence)
    read = lazy_link.read_ahead if is_ahead else lazy_link.update_and_read
    link, directional = read(links.link, write, read_weights)
  else:
    link = linkage.update_link(links.link, write_weights, links.precedence)
    directional = linkage.directional_reads(link, read_weights)
  precedence = linkage.update_precedence(links.precedence, write_weights)
  # In the order of the read modes, [B, 2 H, R, N].
  reads = jnp.concatenate([directional.backward, directional.forward], axis=1)
  if config.link_sharpness:
    reads = addressing.sharpen(reads, interface.sharpness)
  return [reads[:, i] for i in range(2 * num_writes)], memory_state.LinkState(
    link, precedence
  )
