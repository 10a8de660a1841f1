"""Temporal linkage of a differentiable neural computer, as in the paper.

L[i, j] is the degree to which slot i was written right after slot j; the
precedence p[j] is the degree to which slot j was written last. Reads can follow
the order of writing (Graves et al., 2016, Methods, "Temporal memory linkage"):

  L_t[i, j] = (1 - w_t[i] - w_t[j]) L_{t-1}[i, j] + w_t[i] p_{t-1}[j]
  L_t[i, i] = 0
  p_t = (1 - sum_i w_t[i]) p_{t-1} + w_t
  forward f_t = L_t w^r_{t-1},  backward b_t = L_t^T w^r_{t-1}

This is the plain form, whose gradient stores several N x N matrices for every
step; `lazy_link` computes the same in a fraction of the time and memory.

Shapes: `...` are any leading axes, including one for the write heads if a
memory has several; `N` slots, `R` read heads.
"""

from typing import NamedTuple

import jax.numpy as jnp

from ftwax import shapes, types
from ftwax.networks.dnc import addressing


class DirectionalReads(NamedTuple):
  """Read weights obtained by following the links from the last reads.

  Attributes:
    forward: float32 [..., R, N], slots written after those read last.
    backward: float32 [..., R, N], slots written before those read last.
  """

  forward: types.Array
  backward: types.Array


def update_precedence(
  precedence_tm1: types.Array, write_weights_t: types.Array
) -> types.Array:
  """Returns p_t [..., N] = (1 - sum_i w_t[i]) p_{t-1} + w_t."""
  shapes.check(
    'update_precedence',
    precedence_tm1=(precedence_tm1, '... N'),
    write_weights_t=(write_weights_t, '... N'),
  )
  total = jnp.sum(write_weights_t, axis=-1, keepdims=True)
  return (1.0 - total) * precedence_tm1 + write_weights_t


def update_link(
  link_tm1: types.Array,
  write_weights_t: types.Array,
  precedence_tm1: types.Array,
) -> types.Array:
  """Returns L_t [..., N, N].

  Args:
    link_tm1: [..., N, N], L_{t-1}.
    write_weights_t: [..., N], w_t.
    precedence_tm1: [..., N], p_{t-1}.
  """
  shapes.check(
    'update_link',
    link_tm1=(link_tm1, '... N N'),
    write_weights_t=(write_weights_t, '... N'),
    precedence_tm1=(precedence_tm1, '... N'),
  )
  w_i, w_j = write_weights_t[..., :, None], write_weights_t[..., None, :]
  link_t = (1.0 - w_i - w_j) * link_tm1 + w_i * precedence_tm1[..., None, :]
  diagonal = jnp.eye(link_t.shape[-1], dtype=bool)
  return jnp.where(
    diagonal.reshape((1,) * (link_t.ndim - 2) + diagonal.shape), 0.0, link_t
  )


def directional_reads(
  link_t: types.Array, read_weights_tm1: types.Array
) -> DirectionalReads:
  """Returns f_t and b_t.

  Args:
    link_t: [..., N, N], L_t.
    read_weights_tm1: [..., R, N].
  """
  shapes.check(
    'directional_reads',
    link_t=(link_t, '... N N'),
    read_weights_tm1=(read_weights_tm1, '... R N'),
  )
  return DirectionalReads(
    forward=times(link_t, read_weights_tm1),
    backward=transposed_times(link_t, read_weights_tm1),
  )


def times(matrix: types.Array, vectors: types.Array) -> types.Array:
  """Returns the products M v [..., R, N] of [..., N, N] and [..., R, N]."""
  product = addressing.batch_dot(
    '...ij,...jr->...ir', matrix, jnp.swapaxes(vectors, -1, -2)
  )
  return jnp.swapaxes(product, -1, -2)


def transposed_times(matrix: types.Array, vectors: types.Array) -> types.Array:
  """Returns the products M^T v [..., R, N]."""
  return addressing.batch_dot('...ri,...ij->...rj', vectors, matrix)
