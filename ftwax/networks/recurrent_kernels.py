"""Kernels that unroll an LSTM or a GRU, one forward and one backward.

On a GPU a step of a loop is five kernels or more, each of which takes longer to
launch than to run. Rows do not depend on each other. Hence each program of
these kernels unrolls a block of rows over all steps, with their state, or its
gradient, in registers. The gradient of the weights follows outside, from all
steps at once.

They are written in Pallas, for its Triton back end. It cannot slice or join
what is in registers, so gates are loaded, multiplied and stored one by one.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp

from ftwax import import_guard, scans, types

_Arrays = tuple[types.Array, ...]


# Rows of a program; products take at least 16. More of them were slower.
_ROWS = 16

# How many of a thread's 255 registers hold weights. Those of gates for which
# they do not suffice are loaded at each step.
_NUM_REGISTERS = 128


def fits(gates: types.Array, w_h: types.Array) -> bool:
  """Returns whether the kernels run here, and for these arguments."""
  return (
    scans.has_kernels()
    and len(w_h) in (16, 32, 64, 128)  # Triton's sizes are powers of two.
    and gates.dtype == w_h.dtype == jnp.float32
  )


def unroll_rows(
  cell: Any,
  w_h: types.Array,
  gates: types.Array,
  start: types.Array,
  state: _Arrays,
) -> tuple[types.Array, _Arrays]:
  """Unrolls any number of rows, by padding them to whole blocks.

  Args:
    cell: a `gated_unrolls.Cell`.
    w_h: float32 [H, num_gates * H].
    gates: inputs' part of the gates, float32 [T, B, num_gates * H].
    start: bool [T, B], true where the state is zeroed before the step.
    state: leaves [B, H].

  Returns:
    Outputs of all steps, [T, B, H]; and the state after the last one.
  """
  (num_steps, num_rows), size = start.shape, len(w_h)
  gates = gates.reshape(num_steps, num_rows, -1, size)
  rows = gates, start[..., None], tuple(leaf[None] for leaf in state)
  if extra := -num_rows % _ROWS:
    rows = jax.tree.map(
      lambda leaf: jnp.pad(
        leaf, [(0, extra * (i == 1)) for i in range(leaf.ndim)]
      ),
      rows,
    )
  outputs, last = _unroll(cell, w_h.reshape(size, -1, size), *rows)
  return outputs[:, :num_rows], tuple(leaf[0, :num_rows] for leaf in last)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _unroll(cell: Any, w_h: Any, *rows: Any) -> Any:
  """Unrolls gates [T, B, num_gates, H], start [T, B, 1], state [1, B, H]."""
  outputs, _, last = _unroll_and_keep(cell, w_h, rows, keeps=False)
  return outputs, last


def _forward(cell: Any, w_h: Any, *rows: Any) -> Any:
  outputs, kept, last = _unroll_and_keep(cell, w_h, rows, keeps=True)
  return (outputs, last), (w_h, rows[1], *kept)


def _unroll_and_keep(cell: Any, w_h: Any, rows: Any, keeps: bool) -> Any:
  """Returns outputs, what `_backward` needs if `keeps`, and the last state.

  It needs the gates after their nonlinearities, and the states before the
  steps, after resets.
  """
  gates, _, state = rows
  steps = jax.ShapeDtypeStruct((len(gates), *state[0].shape[1:]), jnp.float32)
  kept = (gates, (steps,) * len(state)) if keeps else ()
  step = functools.partial(_forward_step, cell)
  return _run(step, w_h, rows, (steps, kept, state))


def _backward(cell: Any, kept: Any, cotangents: Any) -> Any:
  w_h, start, gates, before = kept
  inputs = (gates, start, before, *cotangents)
  step = functools.partial(_backward_step, cell)
  d_gates, d_state = _run(step, w_h, inputs, (gates, cotangents[1]))
  d_w_h = cell.weights(
    lambda rows, columns: jnp.einsum('tbi,tbo->io', rows, columns),
    *(x.reshape(*x.shape[:2], -1) for x in (gates, before[0], d_gates)),
  )
  return d_w_h.reshape(w_h.shape), d_gates, None, d_state


_unroll.defvjp(_forward, _backward)


def _run(step: Any, w_h: types.Array, inputs: Any, outputs: Any) -> Any:
  """Runs the loop over time, for each block of rows.

  Args:
    step: `(load, inputs, outputs, t, carry)` to the new carry, leaves [R, H];
      `load(k)` returns the weights of a gate, [H, H]; inputs and outputs are
      references to blocks, [T, R, ...].
    w_h: [H, num_gates, H].
    inputs: gates and others, leaves [T, B, ...]; and the first carry, leaves
      [1, B, H].
    outputs: what has the shapes of the results, of which the last carry is one.
  """
  # They take as long to import as JAX.
  with import_guard.guarded():
    import jax.experimental.pallas as pl
    from jax.experimental.pallas import triton

  size, num_gates, _ = w_h.shape
  num_steps, num_rows = inputs[0].shape[:2]
  num_warps = 4 if size <= 64 else 8
  num_held = min(num_gates, _NUM_REGISTERS * 32 * num_warps // size**2)

  def kernel(w_ref: Any, *refs: Any) -> None:
    held = [w_ref[:, k] for k in range(num_held)]
    *given, first = refs[: len(inputs)]
    *written, last = refs[len(inputs) :]
    body = functools.partial(
      step, lambda k: held[k] if k < num_held else w_ref[:, k], given, written
    )
    carry = tuple(ref[0] for ref in first)
    _store(last, 0, jax.lax.fori_loop(0, num_steps, body, carry))

  def block(leaf: Any) -> Any:
    steps, _, *sizes = leaf.shape
    zeros = (0,) * len(sizes)
    return pl.BlockSpec((steps, _ROWS, *sizes), lambda i: (0, i, *zeros))

  whole = pl.BlockSpec(w_h.shape, lambda i: (0, 0, 0))
  return pl.pallas_call(
    kernel,
    jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), outputs),
    grid=(num_rows // _ROWS,),
    in_specs=(whole, *jax.tree.map(block, inputs)),
    out_specs=jax.tree.map(block, outputs),
    # More would copy the weights of later steps ahead, which are the same.
    compiler_params=triton.CompilerParams(num_warps=num_warps, num_stages=1),
    interpret=jax.default_backend() == 'cpu',
  )(w_h, *inputs)


def _forward_step(
  cell: Any, load: Any, inputs: Any, outputs: Any, t: Any, state: _Arrays
) -> _Arrays:
  (gates, start), (hidden, kept) = inputs, outputs
  state = _reset(start[t], state)

  def product(rows: types.Array, first: int, last: int) -> _Arrays:
    return tuple(jnp.dot(rows, load(k)) for k in range(first, last))

  after, new = cell.step(product, _load_gates(gates, t), state)
  hidden[t] = new[0]
  if kept:
    _store_gates(kept[0], t, after)
    _store(kept[1], t, state)
  return new


def _backward_step(
  cell: Any, load: Any, inputs: Any, outputs: Any, i: Any, gradient: _Arrays
) -> _Arrays:
  (gates, start, before, d_outputs), (d_gates,) = inputs, outputs
  t = start.shape[0] - 1 - i

  def product(rows: _Arrays, first: int) -> types.Array:
    # With transposed weights.
    axes = ((1,), (1,)), ((), ())
    products = [
      jax.lax.dot_general(row, load(first + k), axes)
      for k, row in enumerate(rows)
    ]
    return sum(products[1:], products[0])

  before_t = tuple(ref[t] for ref in before)
  of_gates, gradient = cell.pull(
    product,
    cell.factors(_load_gates(gates, t), before_t),
    (gradient[0] + d_outputs[t], *gradient[1:]),
  )
  _store_gates(d_gates, t, of_gates)
  return _reset(start[t], gradient)


def _load_gates(ref: Any, t: Any) -> _Arrays:
  return tuple(ref[t, :, k] for k in range(ref.shape[2]))


def _store_gates(ref: Any, t: Any, gates: _Arrays) -> None:
  for k, gate in enumerate(gates):
    ref[t, :, k] = gate


def _store(refs: Any, index: Any, leaves: _Arrays) -> None:
  for ref, leaf in zip(refs, leaves, strict=True):
    ref[index] = leaf


def _reset(start: types.Array, state: _Arrays) -> _Arrays:
  """Zeroes leaves [R, H] in the rows where `start` [R, 1] is true."""
  return tuple(jnp.where(start, 0.0, leaf) for leaf in state)
