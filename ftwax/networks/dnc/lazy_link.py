"""The exact link matrix with few passes over memory.

The link matrix dominates the cost of a DNC: it has N^2 elements per sequence,
and those of a batch do not fit any cache. The time of a step is proportional to
the number of times that the matrix is read and written. Autodiff of the plain
form does so about twenty times, and stores several matrices per step. Instead:

- the gradient is written by hand. It needs one matrix per step, the link before
  the step, which the unroll recomputes (see `recompute`);
- of several accesses to one memory within a step, only the last one changes the
  matrix. Earlier ones, by the slow cores of a temporal hierarchy, read ahead:
  products with the link after a write follow from products with the link before
  it, and the write stays pending until the last access applies it;
- the gradient of the link from reading ahead is a product of a few vectors,
  which is not computed there. The vectors are passed to the update of the step
  before through a tap: zeros next to the matrix, whose gradient they become;
- resetting the link at the start of an episode is a factor in the next update.

With w and p the write weights and precedence of a write, a = 1 - w_i - w_j,

  L' = a L + w p^T,  L' x = (1 - w) (L x) - L (w x) + w (p . x) - w p x

off the diagonal, which is zero. Shapes as in `linkage`.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from ftwax import trees, types
from ftwax.networks import deferred
from ftwax.networks.dnc import link_update, linkage

# To read ahead, a read head needs two products in each direction.
TAPS_PER_READ = 4


class LazyLink(NamedTuple):
  """A link matrix, and changes that are not applied to it yet; float32.

  Attributes:
    matrix: [..., N, N], with zeros on the diagonal.
    keep: [...], zero if the matrix is to be treated as zero, otherwise one.
    pending: a write that the matrix does not contain yet, or None.
    tap: K vectors; K is 4 R if there are reads ahead, else 0.
  """

  matrix: types.Array
  keep: types.Array
  pending: link_update.Write | None
  tap: deferred.Tap


def make_lazy(matrix: types.Array, num_taps: int) -> LazyLink:
  """Makes a lazy link from a matrix.

  Args:
    matrix: [..., N, N], with zeros on the diagonal.
    num_taps: `TAPS_PER_READ` times R if a read ahead follows, else 0.
  """
  shape = (*matrix.shape[:-2], num_taps, matrix.shape[-1])

  # The identity, whose gradient takes in the tap of the first step. For a later
  # step, the update of the step before does so.
  @jax.custom_vjp
  def open_tap(matrix: types.Array) -> tuple[types.Array, deferred.Tap]:
    return matrix, deferred.Tap(jnp.zeros(shape), jnp.zeros(shape))

  def forward(
    matrix: types.Array,
  ) -> tuple[tuple[types.Array, deferred.Tap], tuple[()]]:
    return open_tap(matrix), ()

  def backward(
    _: tuple[()], cotangents: tuple[types.Array, deferred.Tap]
  ) -> tuple[types.Array]:
    cotangent, tap = cotangents
    return (cotangent + link_update.outer_product(tap.u, tap.v),)

  open_tap.defvjp(forward, backward)
  matrix, tap = open_tap(matrix)
  return LazyLink(matrix, jnp.ones(shape[:-2]), None, tap)


def reset(start: types.Array, link: LazyLink) -> LazyLink:
  """Resets the link where `start`, bool [...], is true."""
  # The step before belongs to another episode: its matrix gets no gradient from
  # the tap either.
  zeros = jax.tree.map(lambda leaf: 0.0, link.tap)
  return link._replace(
    keep=jnp.where(start, 0.0, link.keep),
    tap=trees.where_rows(start, zeros, link.tap),
  )


def read_ahead(
  link: LazyLink, write: link_update.Write, read_weights: types.Array
) -> tuple[LazyLink, linkage.DirectionalReads]:
  """Reads along the link after a write, which stays pending.

  Args:
    link: the link before the write, with nothing pending and a tap.
    write: the write.
    read_weights: [..., R, N], w^r_{t-1}; zero where `link.keep` is zero.

  Returns:
    The link after the write, and the reads along it.
  """
  # [..., 2 R, N] each: the taps of the forward and of the backward reads.
  rows, columns = (
    deferred.Tap(*parts)
    for parts in zip(
      *(jnp.split(leaf, 2, axis=-2) for leaf in link.tap), strict=True
    )
  )
  reads = linkage.DirectionalReads(
    forward=link_update.through(
      lambda x: _tapped_times(link.matrix, x, rows),
      [write],
      read_weights,
      False,
    ),
    backward=link_update.through(
      lambda x: _tapped_transposed_times(link.matrix, x, columns),
      [write],
      read_weights,
      True,
    ),
  )
  return link._replace(pending=write), reads


def update_and_read(
  link: LazyLink, write: link_update.Write, read_weights: types.Array
) -> tuple[LazyLink, linkage.DirectionalReads]:
  """Applies all writes to the matrix and reads along it.

  Args:
    link: the link before the write; another write may be pending.
    write: the write.
    read_weights: [..., R, N], w^r_{t-1}.

  Returns:
    The link after all writes, and the reads along it.
  """
  matrix, tap, reads = link_update.update_and_read(
    link.matrix, link.keep, link.pending, write, read_weights, link.tap
  )
  return LazyLink(matrix, jnp.ones_like(link.keep), None, tap), reads


def flush(link: LazyLink) -> LazyLink:
  """Applies the pending write to the matrix, if there is one."""
  if link.pending is None:
    return link
  # [..., 0, N]
  no_reads = jnp.zeros_like(link.pending.weights[..., None, :])[..., :0, :]
  return update_and_read(link._replace(pending=None), link.pending, no_reads)[0]


@jax.custom_vjp
def _tapped_times(
  matrix: types.Array, x: types.Array, tap: deferred.Tap
) -> types.Array:
  """Returns M x [..., K, N]; the gradient of M goes into the tap."""
  del tap
  return linkage.times(matrix, x)


_tapped_times.defvjp(
  lambda matrix, x, tap: (_tapped_times(matrix, x, tap), (matrix, x)),
  lambda residuals, cotangent: (
    None,
    linkage.transposed_times(residuals[0], cotangent),
    deferred.Tap(u=cotangent, v=residuals[1]),
  ),
)


@jax.custom_vjp
def _tapped_transposed_times(
  matrix: types.Array, x: types.Array, tap: deferred.Tap
) -> types.Array:
  """Returns M^T x [..., K, N]; the gradient of M goes into the tap."""
  del tap
  return linkage.transposed_times(matrix, x)


_tapped_transposed_times.defvjp(
  lambda matrix, x, tap: (
    _tapped_transposed_times(matrix, x, tap),
    (matrix, x),
  ),
  lambda residuals, cotangent: (
    None,
    linkage.times(residuals[0], cotangent),
    deferred.Tap(u=residuals[1], v=cotangent),
  ),
)
