"""Sparse temporal linkage of a differentiable neural computer.

Graves et al., 2016, Methods, "Sparse link matrix": only the K largest write
weights and the K largest precedences enter the link, rescaled to the sum of all
N. (The paper rescales to one, which is the same if the write gate is open; if
it is not, weights must not grow.) Links below 1 / K are dropped. Since rows and
columns of a link matrix sum to at most one, none has more than K links. They
are stored as lists of K, one for each row and, with the same links again, one
for each column. With both, every product with the matrix and every gradient is
a gather from a list; nothing is ever scattered over the slots.

Shapes: `...` are any leading axes; `N` slots, `K` links, `R` read heads.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ftwax import types
from ftwax.networks.dnc import addressing, linkage


class LinkLists(NamedTuple):
  """The links of each slot; a list is not sorted and has no duplicate slots.

  Attributes:
    values: float32 [..., K, N], zero where there is no link.
    slots: int32 [..., K, N], the slot at the other end.
  """

  values: types.Array
  slots: Any


class SparseLink(NamedTuple):
  """A link matrix, stored both by rows and by columns.

  Attributes:
    rows: for each i, the j with L[i, j] > 0.
    columns: for each j, the i with L[i, j] > 0.
  """

  rows: LinkLists
  columns: LinkLists


class SparseWeights(NamedTuple):
  """The K largest of some weights over slots.

  Attributes:
    values: float32 [..., K].
    slots: int32 [..., K], all different.
  """

  values: types.Array
  slots: types.Array


def keep_largest(weights: types.Array, num_links: int) -> SparseWeights:
  """Keeps the `num_links` largest of weights [..., N], with the same sum."""
  # [..., K]. The choice has no gradient.
  _, slots = jax.lax.top_k(jax.lax.stop_gradient(weights), num_links)
  values = jnp.take_along_axis(weights, slots, axis=-1)
  part = jnp.sum(values, axis=-1, keepdims=True)  # [..., 1]
  total = jnp.sum(weights, axis=-1, keepdims=True)  # [..., 1]
  # Avoids 0 / 0 if all weights are zero.
  scale = jnp.where(part > 0.0, total / jnp.where(part > 0.0, part, 1.0), 0.0)
  return SparseWeights(values * scale, slots)


def update_sparse_link(
  link_tm1: SparseLink, write: SparseWeights, precedence_tm1: SparseWeights
) -> SparseLink:
  """Returns L_t, the link after a write.

  Args:
    link_tm1: L_{t-1}.
    write: the largest weights of w_t.
    precedence_tm1: the largest precedences of p_{t-1}.
  """
  return SparseLink(
    rows=_update_lists(link_tm1.rows, write, write, precedence_tm1),
    columns=_update_lists(link_tm1.columns, write, precedence_tm1, write),
  )


@addressing.keep_inputs_only
def _update_lists(
  lists: LinkLists,
  write: SparseWeights,
  owners: SparseWeights,
  ends: SparseWeights,
) -> LinkLists:
  """Decays all links by the write, and adds new ones to the owners' lists.

  Args:
    lists: links of N slots.
    write: the write weights by which links decay.
    owners: the slots whose lists get new links.
    ends: the slots at the other end of the new links, and their weights.
  """
  num_slots = lists.values.shape[-1]
  decay = 1.0 - (_at_all_slots(write, num_slots) + _at(write, lists.slots))
  values = decay * lists.values
  # The lists of the owners, [..., K links, K owners].
  owner_values, owner_slots = (
    jnp.take_along_axis(leaf, owners.slots[..., None, :], axis=-1)
    for leaf in (values, lists.slots)
  )
  new_values, new_slots = _merge(owner_values, owner_slots, owners, ends)
  values = _put(values, owners.slots, new_values)
  threshold = 1.0 / values.shape[-2]
  return LinkLists(
    values=jnp.where(values < threshold, 0.0, values),
    slots=_put(lists.slots, owners.slots, new_slots),
  )


def _at_all_slots(weights: SparseWeights, num_slots: int) -> types.Array:
  """Returns the weights of all slots, [..., 1, N]."""
  shape = (*weights.slots.shape[:-1], 1, num_slots)
  iota = jax.lax.broadcasted_iota(jnp.int32, shape, len(shape) - 1)
  return _at(weights, iota)


def _at(weights: SparseWeights, slots: types.Array) -> types.Array:
  """Returns the weights of `slots` [..., M, N], zero for those not kept."""
  # [..., K, M, N]
  is_same = slots[..., None, :, :] == weights.slots[..., :, None, None]
  values = jnp.where(is_same, weights.values[..., :, None, None], 0.0)
  return jnp.sum(values, axis=-3)  # [..., M, N]


def _merge(
  values: types.Array,
  slots: types.Array,
  owners: SparseWeights,
  ends: SparseWeights,
) -> tuple[types.Array, types.Array]:
  """Adds links from each of `owners` to each of `ends` to the owners' lists.

  Args:
    values: [..., K, M], the links of M owners.
    slots: [..., K, M].
    owners: [..., M].
    ends: [..., O].

  Returns:
    Values and slots [..., K, M] of the K largest links.
  """
  num_links = values.shape[-2]
  # [..., O, M]
  new = ends.values[..., :, None] * owners.values[..., None, :]
  is_self = ends.slots[..., :, None] == owners.slots[..., None, :]
  new = jnp.where(is_self, 0.0, new)
  end_slots = jnp.broadcast_to(ends.slots[..., :, None], new.shape)
  # [..., K, O, M]: where a link to the slot at the end exists already. The
  # slots of empty entries are arbitrary and must not match.
  matches = (slots[..., :, None, :] == end_slots[..., None, :, :]) & (
    values[..., :, None, :] > 0.0
  )
  values = values + jnp.sum(
    jnp.where(matches, new[..., None, :, :], 0.0), axis=-2
  )
  new = jnp.where(jnp.any(matches, axis=-3), 0.0, new)
  values = jnp.concatenate([values, new], axis=-2)  # [..., K + O, M]
  slots = jnp.concatenate([slots, end_slots], axis=-2)
  # `top_k` works on the last axis. The gradient flows through the gathers.
  keys = jax.lax.stop_gradient(jnp.swapaxes(values, -1, -2))
  _, order = jax.lax.top_k(keys, num_links)  # [..., M, K]
  order = jnp.swapaxes(order, -1, -2)  # [..., K, M]
  return (
    jnp.take_along_axis(values, order, axis=-2),
    jnp.take_along_axis(slots, order, axis=-2),
  )


def _put(
  lists: types.Array, owners: types.Array, new: types.Array
) -> types.Array:
  """Replaces the columns `owners` [..., M] of [..., K, N] by [..., K, M]."""
  owners = jnp.broadcast_to(owners[..., None, :], new.shape)
  return jnp.put_along_axis(lists, owners, new, axis=-1, inplace=False)


def _gather(vectors: types.Array, slots: types.Array) -> types.Array:
  """Returns [..., K, R, N], `vectors` [..., R, N] at `slots` [..., K, N]."""
  return jnp.take_along_axis(
    vectors[..., None, :, :],
    slots[..., :, None, :],
    axis=-1,
    # All slots come from `top_k`, or are zero.
    mode='promise_in_bounds',
  )


@jax.custom_vjp
def _times(
  lists: LinkLists, transposed: LinkLists, vectors: types.Array
) -> types.Array:
  """Returns the products [..., R, N] of a matrix with vectors [..., R, N].

  Args:
    lists: the matrix by rows.
    transposed: the matrix by columns, for the gradient of `vectors`.
    vectors: [..., R, N].
  """
  del transposed
  return _plain_times(lists, vectors)


def _plain_times(lists: LinkLists, vectors: types.Array) -> types.Array:
  entries = _gather(vectors, lists.slots)  # [..., K, R, N]
  return jnp.sum(lists.values[..., :, None, :] * entries, axis=-3)


_Residuals = tuple[LinkLists, LinkLists, types.Array]


def _times_forward(
  lists: LinkLists, transposed: LinkLists, vectors: types.Array
) -> tuple[types.Array, _Residuals]:
  return _times(lists, transposed, vectors), (lists, transposed, vectors)


def _times_backward(
  residuals: _Residuals, cotangent: types.Array
) -> _Residuals:
  lists, transposed, vectors = residuals
  entries = _gather(vectors, lists.slots)  # [..., K, R, N]
  values = jnp.sum(entries * cotangent[..., None, :, :], axis=-2)
  # `transposed` holds the same links, whose gradient must not count twice.
  return (
    LinkLists(values, None),
    LinkLists(jnp.zeros_like(transposed.values), None),
    _plain_times(transposed, cotangent),
  )


_times.defvjp(_times_forward, _times_backward)


def sparse_directional_reads(
  link_t: SparseLink, read_weights_tm1: types.Array
) -> linkage.DirectionalReads:
  """Returns f_t = L_t w^r_{t-1} and b_t = L_t^T w^r_{t-1}, each [..., R, N]."""
  return linkage.DirectionalReads(
    forward=_times(link_t.rows, link_t.columns, read_weights_tm1),
    backward=_times(link_t.columns, link_t.rows, read_weights_tm1),
  )
