"""The update of an exact link matrix, with a hand-written gradient.

One pass over the matrix applies one or two writes; `lazy_link` explains why
there may be two. With w and p the weights and precedence of a write, and
a = 1 - w_i - w_j,

  L' = a L + w p^T,  L' x = (1 - w) (L x) - L (w x) + w (p . x) - w p x

off the diagonal, which is zero. Shapes as in `linkage`.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ftwax import types
from ftwax.networks import deferred
from ftwax.networks.dnc import addressing, linkage

# Elements of link matrices that the gradient processes at a time on a CPU. With
# other arrays of this size, they should fit a cache of a few megabytes.
_PART_SIZE = 2**19


class Write(NamedTuple):
  """The part of a write that changes a link; float32.

  Attributes:
    weights: [..., N], w_t.
    precedence: [..., N], p_{t-1}, before the write.
  """

  weights: types.Array
  precedence: types.Array


@jax.custom_vjp
def update_and_read(
  matrix: types.Array,
  keep: types.Array,
  pending: Write | None,
  write: Write,
  read_weights: types.Array,
  tap: deferred.Tap,
) -> tuple[types.Array, deferred.Tap, linkage.DirectionalReads]:
  """Updates a matrix and reads along it.

  Args:
    matrix: [..., N, N], L, with zeros on the diagonal.
    keep: [...], zero if the matrix is to be treated as zero, otherwise one.
    pending: the first write, or None.
    write: the last write.
    read_weights: [..., R, N], v.
    tap: only its shape is used.

  Returns:
    The matrix after the writes, a tap of zeros for it, and reads along it.
  """
  passes = _materialize(_in_order(pending, write), keep)
  matrix = passes.keep[..., :, None] * matrix
  for w, p in passes.writes:
    matrix = _decay(Write(w, p), matrix) + w[..., :, None] * p[..., None, :]
  matrix = _clear_diagonal(matrix, passes)
  reads = linkage.directional_reads(matrix, read_weights)
  return matrix, jax.tree.map(jnp.zeros_like, tap), reads


# The inputs of `update_and_read`, except for the tap.
_Residuals = tuple[types.Array, types.Array, Write | None, Write, types.Array]
_Outputs = tuple[types.Array, deferred.Tap, linkage.DirectionalReads]
# The gradient of each input of `update_and_read`; None where there is none.
_Gradients = tuple[types.Array, None, Write | None, Write, types.Array, None]


def _forward(
  *inputs: Any,
) -> tuple[_Outputs, _Residuals]:
  return update_and_read(*inputs), inputs[:-1]


def _backward(residuals: _Residuals, cotangents: _Outputs) -> _Gradients:
  """Computes the gradients of the inputs.

  With G the cotangent of the new matrix, its total gradient is

    H = G + sum_r (df_r v_r^T + v_r db_r^T) + u^T v of the tap

  off the diagonal, v_r being the read weights. With one write, for example,

    dL = a H,  dw = H p - rows(H L) - columns(H L),  dp = H^T w

  where H L is an elementwise product, whose rows or columns are summed.
  """
  return jax.lax.platform_dependent(
    residuals, cotangents, cpu=_backward_in_parts, default=_backward_at_once
  )


def _backward_in_parts(
  residuals: _Residuals, cotangents: _Outputs
) -> _Gradients:
  """Processes only as many sequences at a time as fit the cache.

  The matrices of a whole batch do not fit, and the gradient makes about ten
  passes over them.
  """
  leading_shape = residuals[0].shape[:-2]
  num_matrices = math.prod(leading_shape)
  (matrix, *vectors), (cotangent, *other_cotangents) = jax.tree.map(
    lambda leaf: leaf.reshape(num_matrices, *leaf.shape[len(leading_shape) :]),
    (residuals, cotangents),
  )
  num_fitting = max(_PART_SIZE // math.prod(matrix.shape[1:]), 1)
  length = max(
    length
    for length in range(1, min(num_fitting, num_matrices) + 1)
    if num_matrices % length == 0
  )

  def take_part(dmatrix: types.Array, inputs: Any) -> tuple[types.Array, Any]:
    row, vectors, other_cotangents = inputs
    matrix_part, cotangent_part = (
      jax.lax.dynamic_slice_in_dim(leaf, row, length)
      for leaf in (matrix, dmatrix)
    )
    new, *gradients = _backward_at_once(
      (matrix_part, *vectors), (cotangent_part, *other_cotangents)
    )
    # Overwrites the cotangent, so that no other array of its size is allocated.
    return jax.lax.dynamic_update_slice_in_dim(dmatrix, new, row, 0), gradients

  rows = jnp.arange(0, num_matrices, length)
  parts = jax.tree.map(
    lambda leaf: leaf.reshape(len(rows), length, *leaf.shape[1:]),
    (vectors, other_cotangents),
  )
  dmatrix, gradients = jax.lax.scan(take_part, cotangent, (rows, *parts))
  gradients = jax.tree.map(
    lambda leaf: leaf.reshape(*leading_shape, *leaf.shape[2:]), gradients
  )
  dmatrix = dmatrix.reshape(*leading_shape, *dmatrix.shape[1:])
  keep, pending, write, read_weights, tap = gradients
  return dmatrix, keep, pending, write, read_weights, tap


def _backward_at_once(
  residuals: _Residuals, cotangents: _Outputs
) -> _Gradients:
  matrix, keep, pending, write, v = residuals
  cotangent, tap, (df, db) = cotangents
  passes = _materialize(_in_order(pending, write), keep)
  keep = passes.keep[..., None, :]
  # Reads are f = L' v and b = L'^T v, hence dv = L'^T df + L' db, where
  # products with the new matrix L' follow from products with the old one.
  dv = through(
    lambda x: keep * linkage.transposed_times(matrix, x),
    passes.writes,
    df,
    True,
  ) + through(
    lambda x: keep * linkage.times(matrix, x), passes.writes, db, False
  )
  # All terms of H but G in one contraction, [..., 2 R + K, N].
  outer = outer_product(
    jnp.concatenate([df, v, tap.u], axis=-2),
    jnp.concatenate([v, db, tap.v], axis=-2),
  )
  h = _clear_diagonal(cotangent + outer, passes)
  hl = passes.keep[..., :, None] * h * matrix  # [..., N, N]
  dmatrix = passes.keep[..., :, None] * h
  for write in passes.writes:
    dmatrix = _decay(write, dmatrix)
  dpending: Write | None
  if pending is None:
    dpending, dwrite = None, _one_write_backward(passes.writes[0], h, hl)
  else:
    dpending, dwrite = _two_writes_backward(passes.writes, h, hl)
  return dmatrix, None, dpending, dwrite, dv, None


def _in_order(pending: Write | None, write: Write) -> list[Write]:
  return [write] if pending is None else [pending, write]


def _products(
  matrix: types.Array, row_vectors: Any, column_vectors: Any
) -> tuple[list[types.Array], list[types.Array]]:
  """Returns M x and M^T x for two lists of vectors x, [..., N]."""
  # [..., 1, N] each, and [..., num_columns, N].
  rows = [linkage.times(matrix, x[..., None, :]) for x in row_vectors]
  columns = linkage.transposed_times(matrix, jnp.stack(column_vectors, axis=-2))
  return [x[..., 0, :] for x in rows], [
    columns[..., k, :] for k in range(len(column_vectors))
  ]


def _one_write_backward(write: Write, h: types.Array, hl: types.Array) -> Write:
  """Returns the gradient of the only write."""
  w, p = write
  ones = jnp.ones_like(w)
  (h_p,), (h_w,) = _products(h, [p], [w])
  (rows,), (columns,) = _products(hl, [ones], [ones])
  return Write(weights=h_p - (rows + columns), precedence=h_w)


def _two_writes_backward(
  writes: Sequence[Write],
  h: types.Array,
  hl: types.Array,
) -> tuple[Write, Write]:
  """Returns the gradients of a pending write and of the write after it.

  The formulas for one write hold, with L' = a L + w p^T of the first write in
  place of L for the second one, and a' H of the second write in place of H for
  the first one. Products with these follow from products with L and H.
  """
  (w1, p1), (w2, p2) = writes
  ones = jnp.ones_like(w1)
  (h_p2, h_p1, h_w2p1), (h_w2, h_w1, h_w2w1) = _products(
    h, [p2, p1, w2 * p1], [w2, w1, w2 * w1]
  )
  rows, columns = _products(hl, [ones, w1, w2], [ones, w1, w2])
  sums, sums_w1, sums_w2 = (
    row + column for row, column in zip(rows, columns, strict=True)
  )
  # Row plus column sums of elementwise products: of H and L' for the second
  # write, of a' H and L for the first one.
  sums_second = (1.0 - w1) * sums - sums_w1 + w1 * h_p1 + p1 * h_w1
  sums_first = (1.0 - w2) * sums - sums_w2
  return (
    Write((1.0 - w2) * h_p1 - h_w2p1 - sums_first, (1.0 - w2) * h_w1 - h_w2w1),
    Write(h_p2 - sums_second, h_w2),
  )


update_and_read.defvjp(_forward, _backward)


class _PassInputs(NamedTuple):
  """Vectors used in passes over the matrix; see `_materialize`.

  Attributes:
    writes: in temporal order, leaves float32 [..., N].
    keep: float32 [..., N], the same number for all slots.
    slots: float32 [..., N], 0 to N - 1.
  """

  writes: list[Write]
  keep: types.Array
  slots: types.Array


def _materialize(writes: Sequence[Write], keep: types.Array) -> _PassInputs:
  """Returns the writes unchanged, but computed before the loops that use them.

  XLA fuses the computation of a vector into the loops over the matrix that use
  it, and repeats it for each of the N^2 elements. It does not fuse the result
  of a matrix product, so the vectors are multiplied by the identity. (On the
  CPU a pass over the matrix was up to four times as slow without this. An
  optimization barrier does not help, since it is dropped before the fusion.)

  Slot indices are returned for another reason: XLA moves a mask that consists
  of constants out of the loop over time, and then reads it from memory at each
  step.
  """
  shape = writes[0].weights.shape
  slots = jnp.arange(shape[-1], dtype=jnp.float32)
  slots = slots.reshape((1,) * (len(shape) - 1) + slots.shape)
  vectors = [
    *(vector for write in writes for vector in write),
    jnp.broadcast_to(keep[..., None], shape),
    jnp.broadcast_to(slots, shape),
  ]
  *vectors, keep, slots = addressing.batch_dot(  # [..., N] each
    'kl,l...->k...', jnp.eye(len(vectors)), jnp.stack(vectors)
  )
  pairs = zip(vectors[::2], vectors[1::2], strict=True)
  return _PassInputs([Write(*pair) for pair in pairs], keep, slots)


def _clear_diagonal(matrix: types.Array, passes: _PassInputs) -> types.Array:
  """Returns `matrix` [..., N, N] with a diagonal of zeros."""
  rows = jax.lax.broadcasted_iota(
    passes.slots.dtype, (*passes.slots.shape, 1), passes.slots.ndim - 1
  )
  is_off_diagonal = rows != passes.slots[..., None, :]
  return is_off_diagonal.astype(matrix.dtype) * matrix


def outer_product(u: types.Array, v: types.Array) -> types.Array:
  """Returns u^T v [..., N, N] for vectors [..., K, N]."""
  return addressing.batch_dot('...ki,...kj->...ij', u, v)


def _decay(write: Write, matrix: types.Array) -> types.Array:
  """Returns (1 - w_i - w_j) times `matrix` [..., N, N]."""
  w = write.weights
  return (1.0 - (w[..., :, None] + w[..., None, :])) * matrix


def through(
  apply: Callable[[types.Array], types.Array],
  writes: Sequence[Write],
  x: types.Array,
  is_transposed: bool,
) -> types.Array:
  """Returns products with a link after some writes.

  Args:
    apply: multiplies by the link before the writes, or by its transpose.
    writes: in temporal order.
    x: [..., K, N].
    is_transposed: whether `apply` multiplies by the transpose.

  Returns:
    The products [..., K, N], all from a single call of `apply`.
  """
  if not writes:
    return apply(x)
  *earlier, write = writes
  w, p = (leaf[..., None, :] for leaf in write)
  # L x and L (w x) in one product: each write doubles the vectors, and the
  # matrix is still read only once.
  products = through(  # [..., 2 K, N]
    apply, earlier, jnp.concatenate([x, w * x], axis=-2), is_transposed
  )
  l_x, l_wx = jnp.split(products, 2, axis=-2)
  row, column = (p, w) if is_transposed else (w, p)
  # The last term takes the diagonal of w p^T out again.
  rest = (1.0 - w) * l_x - l_wx
  return rest + row * jnp.sum(column * x, -1, keepdims=True) - w * p * x
