"""Addressing of a differentiable neural computer (DNC).

Graves et al., "Hybrid computing using a neural network with dynamic external
memory", Nature 538:471, 2016, Methods. Slots are addressed by content (a key is
compared with every slot), by allocation (the least used slot is written first)
and by the order of writing (see `linkage`).

Every function takes any number of leading batch axes, written `...`. There are
`N` slots of size `W`, `R` read heads and `H` write heads. Weights over slots
are non-negative and sum to at most one. A `ValueError` names an argument whose
axes do not agree with the others'.

`sharpen` and the `masks` of `content_weights` are options from Csordás and
Schmidhuber, "Improving Differentiable Neural Computers Through Memory Masking,
De-allocation, and Link Distribution Sharpness Control", 2019
(arXiv:1904.10278).
"""

import functools
import operator
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import jax
import jax.numpy as jnp

from ftwax import shapes, types

_Arguments = ParamSpec('_Arguments')
_Result = TypeVar('_Result')

# Keeps norms and products of usages away from zero, where their gradients are
# not finite. The value is that of the code released with the paper.
EPSILON = 1e-6

# Slots whose usages are compared in pairs. A sort is as fast from 128 on.
_MAX_COMPARED = 64


def keep_inputs_only(
  function: Callable[_Arguments, _Result],
) -> Callable[_Arguments, _Result]:
  """Makes the gradient of a function recompute all residuals from its inputs.

  Use it for functions that are cheap to compute but have large residuals: in an
  unroll, storing the residuals of each step costs more than recomputing them.
  """
  plain: Callable[..., _Result] = function
  custom: Any = jax.custom_vjp(function)

  def backward(inputs: tuple[Any, ...], cotangents: Any) -> Any:
    return jax.vjp(plain, *inputs)[1](cotangents)

  custom.defvjp(lambda *inputs: (plain(*inputs), inputs), backward)
  return custom


def batch_dot(equation: str, *operands: types.Array) -> types.Array:
  """Contracts operands in full float32 precision on every platform."""
  return jnp.einsum(equation, *operands, precision=jax.lax.Precision.HIGHEST)


def _product_over_heads(factors: types.Array) -> types.Array:
  """Multiplies over the first axis of [heads, ...].

  Its gradient is simpler than that of `jnp.prod`.
  """
  return functools.reduce(operator.mul, list(factors))


@keep_inputs_only
def content_weights(
  memory: types.Array,
  keys: types.Array,
  strengths: types.Array,
  masks: types.Array | None = None,
) -> types.Array:
  """Weights slots by their cosine similarity to a key.

  C(M, k, beta)[i] = softmax_i(beta cos(k, M[i])); with a mask, key and slots
  are multiplied by it before the cosine (Csordás and Schmidhuber, equation 4).

  Args:
    memory: [..., N, W].
    keys: [..., R, W], one for each head.
    strengths: [..., R], beta, non-negative.
    masks: [..., R, W], in (0, 1), or None.

  Returns:
    Weights [..., R, N] that sum to one.
  """
  shapes.check(
    'content_weights',
    memory=(memory, '... N W'),
    keys=(keys, '... R W'),
    strengths=(strengths, '... R'),
    masks=(keys if masks is None else masks, '... R W'),
  )
  if masks is None:
    masked_keys = keys
    # [..., 1, W]: without masks a slot has the same norm for all heads.
    squares = jnp.ones_like(keys[..., :1, :])
  else:
    # The mask multiplies both factors of the dot product, hence its square.
    keys = keys * masks
    masked_keys = keys * masks
    squares = jnp.square(masks)
  dot = batch_dot('...nw,...rw->...rn', memory, masked_keys)  # [..., R, N]
  memory_norm = jnp.sqrt(  # [..., R, N], or [..., 1, N] without masks
    batch_dot('...nw,...rw->...rn', jnp.square(memory), squares) + EPSILON
  )
  # [..., R, 1]
  key_norm = jnp.sqrt(jnp.sum(jnp.square(keys), -1, keepdims=True) + EPSILON)
  similarity = dot / (key_norm * memory_norm + EPSILON)
  return jax.nn.softmax(strengths[..., None] * similarity, axis=-1)


def retention(
  free_gates: types.Array, read_weights_tm1: types.Array
) -> types.Array:
  """Returns psi [..., N], the fraction of each slot that reads do not free.

  psi_t = prod_r (1 - f_r w^r_{t-1}).

  Args:
    free_gates: [..., R], in [0, 1].
    read_weights_tm1: [..., R, N].
  """
  shapes.check(
    'retention',
    free_gates=(free_gates, '... R'),
    read_weights_tm1=(read_weights_tm1, '... R N'),
  )
  factors = 1.0 - free_gates[..., None] * read_weights_tm1  # [..., R, N]
  return _product_over_heads(jnp.moveaxis(factors, -2, 0))


def usage(
  usage_tm1: types.Array,
  write_weights_tm1: types.Array,
  retention_t: types.Array,
) -> types.Array:
  """Returns u_t [..., N], the degree to which each slot is in use, in [0, 1].

  u_t = (u_{t-1} + w_{t-1} - u_{t-1} w_{t-1}) psi_t, where for several write
  heads w = 1 - prod_h (1 - w_h).

  Args:
    usage_tm1: [..., N].
    write_weights_tm1: [..., H, N].
    retention_t: [..., N], psi_t.
  """
  shapes.check(
    'usage',
    usage_tm1=(usage_tm1, '... N'),
    write_weights_tm1=(write_weights_tm1, '... H N'),
    retention_t=(retention_t, '... N'),
  )
  unwritten = _product_over_heads(jnp.moveaxis(1.0 - write_weights_tm1, -2, 0))
  # 1 - (1 - u) (1 - w) = u + w - u w.
  return (1.0 - (1.0 - usage_tm1) * unwritten) * retention_t


def allocation(usage_t: types.Array) -> types.Array:
  """Returns weights a_t [..., N] that point to the least used slots.

  With phi the slots sorted by usage, ties by index:
  a[phi_j] = (1 - u[phi_j]) prod_{k<j} u[phi_k]. The order has no gradient.

  Args:
    usage_t: [..., N], in [0, 1].
  """
  u = EPSILON + (1.0 - EPSILON) * usage_t
  slots = jax.lax.broadcasted_iota(jnp.int32, u.shape, u.ndim - 1)
  if u.shape[-1] <= _MAX_COMPARED:  # Faster than to sort.
    rows, columns = u[..., :, None], u[..., None, :]
    row, column = slots[..., :, None], slots[..., None, :]
    less_used = (columns < rows) | ((columns == rows) & (row > column))
    # XLA may compute rows and columns apart, with different rounding. No slot
    # is less used than itself.
    less_used &= row != column  # [..., N, N]
    logs = jnp.where(less_used, jnp.log(u)[..., None, :], 0.0)
    return (1.0 - u) * jnp.exp(jnp.sum(logs, axis=-1))
  u, order = jax.lax.sort_key_val(u, slots)
  products = jnp.cumprod(u, axis=-1)
  # The product over the slots before each one: 1, u_1, u_1 u_2, ...
  before = jnp.concatenate(
    [jnp.ones_like(u[..., :1]), products[..., :-1]], axis=-1
  )
  # From the order of usage back to that of the slots.
  return _scatter(order, (1.0 - u) * before)


@functools.partial(jnp.vectorize, signature='(n),(n)->(n)')
def _scatter(order: types.Array, values: types.Array) -> types.Array:
  """Returns `values` [..., N] at the slots of `order`, a permutation."""
  # By rows, since the number of rows is a symbol in an exported file.
  return jnp.zeros_like(values).at[order].set(values)


def write_allocation(
  usage_t: types.Array, write_gates: types.Array
) -> types.Array:
  """Returns allocation weights [..., H, N], one for each write head.

  Slots that a head is about to write count as used for later heads.

  Args:
    usage_t: [..., N].
    write_gates: [..., H], the degree to which a head writes to its allocation:
      the product of its write and allocation gates.
  """
  shapes.check(
    'write_allocation',
    usage_t=(usage_t, '... N'),
    write_gates=(write_gates, '... H'),
  )
  weights = []
  for head in range(write_gates.shape[-1]):
    weights.append(allocation(usage_t))
    gate = write_gates[..., head, None]  # [..., 1]
    usage_t = usage_t + (1.0 - usage_t) * gate * weights[-1]
  return jnp.stack(weights, axis=-2)  # [..., H, N]


def write_weights(
  write_gates: types.Array,
  allocation_gates: types.Array,
  allocation_t: types.Array,
  content_t: types.Array,
) -> types.Array:
  """Returns w^w [..., H, N] = g_w (g_a a + (1 - g_a) c).

  Args:
    write_gates: [..., H], in [0, 1].
    allocation_gates: [..., H], in [0, 1].
    allocation_t: [..., H, N].
    content_t: [..., H, N].
  """
  shapes.check(
    'write_weights',
    write_gates=(write_gates, '... H'),
    allocation_gates=(allocation_gates, '... H'),
    allocation_t=(allocation_t, '... H N'),
    content_t=(content_t, '... H N'),
  )
  # [..., H, 2]
  gates = jnp.stack([allocation_gates, 1.0 - allocation_gates], axis=-1)
  sources = jnp.stack([allocation_t, content_t], axis=-2)  # [..., H, 2, N]
  # XLA computes a contraction once. It could fuse a sum of products into loops
  # over N x N matrices and recompute it for each of their elements.
  return batch_dot(
    '...hs,...hsn->...hn', write_gates[..., None] * gates, sources
  )


@keep_inputs_only
def write(
  memory_tm1: types.Array,
  write_weights_t: types.Array,
  erase: types.Array,
  vectors: types.Array,
) -> types.Array:
  """Returns the memory [..., N, W] after erasing and adding.

  M_t = M_{t-1} prod_h (1 - w_h e_h^T) + sum_h w_h v_h^T.

  Args:
    memory_tm1: [..., N, W].
    write_weights_t: [..., H, N].
    erase: [..., H, W], in [0, 1].
    vectors: [..., H, W].
  """
  shapes.check(
    'write',
    memory_tm1=(memory_tm1, '... N W'),
    write_weights_t=(write_weights_t, '... H N'),
    erase=(erase, '... H W'),
    vectors=(vectors, '... H W'),
  )
  # [..., H, N, W], the fraction that each head leaves; then [..., N, W].
  factors = 1.0 - write_weights_t[..., None] * erase[..., None, :]
  factors = _product_over_heads(jnp.moveaxis(factors, -3, 0))
  return memory_tm1 * factors + batch_dot(
    '...hn,...hw->...nw', write_weights_t, vectors
  )


def read(memory_t: types.Array, read_weights_t: types.Array) -> types.Array:
  """Returns the words read, M^T w, [..., R, W].

  Args:
    memory_t: [..., N, W].
    read_weights_t: [..., R, N].
  """
  shapes.check(
    'read',
    memory_t=(memory_t, '... N W'),
    read_weights_t=(read_weights_t, '... R N'),
  )
  return batch_dot('...nw,...rn->...rw', memory_t, read_weights_t)


def sharpen(weights: types.Array, sharpness: types.Array) -> types.Array:
  """Returns weights [..., N] raised to a power and renormalized to sum to one.

  S(d, s)[i] = (d[i] / max d)^s / sum_j (d[j] / max d)^s (Csordás and
  Schmidhuber, equation 10), with an epsilon added to d.

  Args:
    weights: [..., N], non-negative.
    sharpness: [...], s, at least one.
  """
  shapes.check(
    'sharpen', weights=(weights, '... N'), sharpness=(sharpness, '...')
  )
  # The softmax subtracts the largest logarithm, which is the division by max d:
  # the largest power is one and cannot underflow.
  logs = jnp.log(weights + EPSILON)
  return jax.nn.softmax(sharpness[..., None] * logs, axis=-1)
