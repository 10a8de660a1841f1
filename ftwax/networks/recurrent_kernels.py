"""Unrolls of an LSTM and of a GRU, one kernel forward and one backward.

On a GPU a step of `unrolling.scan` is five kernels or more, each of which takes
longer to launch than to run. Rows do not depend on each other. Hence each
program of these kernels unrolls a block of rows over all steps, with their
state, or its gradient, in registers. The gradient of the weights follows
outside, from all steps at once.

They are written in Pallas, for its Triton back end. It cannot slice or join
what is in registers, so gates are loaded, multiplied and stored one by one.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ftwax import scans, types

_Arrays = tuple[types.Array, ...]


class Options(NamedTuple):
  """How a kernel is laid out.

  Attributes:
    rows: rows of a program, a power of two and at least 16, as for products.
    num_warps: warps of a program; None for what suits the number of units.
    registers: how many of a thread's 255 registers hold weights. The weights of
      other gates are loaded at each step.
    interpret: whether to run as plain JAX, on any device.
  """

  rows: int = 16
  num_warps: int | None = None
  registers: int = 128
  interpret: bool = False


_DEFAULTS = Options()


class _Cell(NamedTuple):
  """A core whose state has its output as the first leaf.

  Attributes:
    step: `(product, inputs' part of the gates, state)` to the gates after their
      nonlinearities, and the new state; `product(rows, k)` multiplies [R, H] by
      the weights of gate `k`.
    back: `(product, gates, state before the step, gradient of the state after
      it)` to the gradients of the gates before their nonlinearities, and of the
      state before the step; `product` is that with transposed weights.
    weights: `(gates, output before the step, gradients of the gates)` of all
      steps, [T, B, ...], to the gradient of the weights.
  """

  step: Callable[[Any, _Arrays, _Arrays], tuple[_Arrays, _Arrays]]
  back: Callable[[Any, _Arrays, _Arrays, _Arrays], tuple[_Arrays, _Arrays]]
  weights: Callable[[types.Array, types.Array, types.Array], types.Array]


def fits(hidden_size: int) -> bool:
  """Returns whether the kernels run here, with so many units."""
  if jax.default_backend() != 'gpu' or not scans.counts_launches():
    return False
  # Those of AMD begin with letters.
  version = str(getattr(jax.devices()[0], 'compute_capability', ''))
  is_recent = version[:1].isdigit() and float(version) >= 8.0
  # Triton's sizes are powers of two.
  return is_recent and hidden_size in (16, 32, 64, 128)


def lstm(
  gates: types.Array,
  w_h: types.Array,
  start: types.Array,
  state: _Arrays,
  options: Options = _DEFAULTS,
) -> tuple[types.Array, _Arrays]:
  """Unrolls an LSTM, whose step is `recurrent_cores.lstm_cell`.

  Args:
    gates: inputs' part of the gates, float32 [T, B, 4 H].
    w_h: recurrent weights, float32 [H, 4 H].
    start: bool [T, B], true where the state is zeroed before the step.
    state: hidden and cell before the first step, float32 [B, H] each.
    options: how the kernel is laid out.

  Returns:
    Hidden of all steps, [T, B, H]; and hidden and cell after the last one.
  """
  return _unroll_rows(_LSTM, gates, w_h, start, state, options)


def gru(
  gates: types.Array,
  w_h: types.Array,
  start: types.Array,
  state: types.Array,
  options: Options = _DEFAULTS,
) -> tuple[types.Array, types.Array]:
  """Unrolls a GRU of gates [T, B, 3 H] and one state [B, H]; see `lstm`."""
  states, (last,) = _unroll_rows(_GRU, gates, w_h, start, (state,), options)
  return states, last


def _lstm_step(product: Any, gates: _Arrays, state: _Arrays) -> Any:
  hidden, cell = state
  i, g, f, o = (gate + product(hidden, k) for k, gate in enumerate(gates))
  i, f, o = map(jax.nn.sigmoid, (i, f, o))
  g = jnp.tanh(g)
  cell = f * cell + i * g
  return (i, g, f, o), (o * jnp.tanh(cell), cell)


def _lstm_back(
  product: Any, gates: _Arrays, before: _Arrays, gradient: _Arrays
) -> Any:
  (i, g, f, o), (_, cell), (d_hidden, d_cell) = gates, before, gradient
  tanh = jnp.tanh(f * cell + i * g)
  d_cell = d_cell + d_hidden * o * (1.0 - tanh * tanh)
  d_gates = (
    d_cell * g * i * (1.0 - i),
    d_cell * i * (1.0 - g * g),
    d_cell * cell * f * (1.0 - f),
    d_hidden * tanh * o * (1.0 - o),
  )
  d_hidden = sum(product(gate, k) for k, gate in enumerate(d_gates))
  return d_gates, (d_hidden, d_cell * f)


def _lstm_weights(
  gates: types.Array, hidden: types.Array, d_gates: types.Array
) -> types.Array:
  del gates
  return jnp.einsum('tbi,tbo->io', hidden, d_gates)


def _gru_step(product: Any, gates: _Arrays, state: _Arrays) -> Any:
  (z, r, a), (hidden,) = gates, state
  z = jax.nn.sigmoid(z + product(hidden, 0))
  r = jax.nn.sigmoid(r + product(hidden, 1))
  a = jnp.tanh(a + product(r * hidden, 2))
  return (z, r, a), ((1.0 - z) * hidden + z * a,)


def _gru_back(
  product: Any, gates: _Arrays, before: _Arrays, gradient: _Arrays
) -> Any:
  (z, r, a), (hidden,), (d_hidden,) = gates, before, gradient
  d_a = d_hidden * z * (1.0 - a * a)
  d_z = d_hidden * (a - hidden) * z * (1.0 - z)
  d_reset = product(d_a, 2)  # Of r * hidden.
  d_r = d_reset * hidden * r * (1.0 - r)
  d_hidden = d_hidden * (1.0 - z) + d_reset * r
  return (d_z, d_r, d_a), (d_hidden + product(d_z, 0) + product(d_r, 1),)


def _gru_weights(
  gates: types.Array, hidden: types.Array, d_gates: types.Array
) -> types.Array:
  size = hidden.shape[-1]
  reset = gates[..., size : 2 * size] * hidden
  d_zr, d_a = jnp.split(d_gates, [2 * size], axis=-1)
  products = (
    jnp.einsum('tbi,tbo->io', hidden, d_zr),
    jnp.einsum('tbi,tbo->io', reset, d_a),
  )
  return jnp.concatenate(products, axis=-1)


_LSTM = _Cell(_lstm_step, _lstm_back, _lstm_weights)
_GRU = _Cell(_gru_step, _gru_back, _gru_weights)


def _unroll_rows(
  cell: _Cell,
  gates: types.Array,
  w_h: types.Array,
  start: types.Array,
  state: _Arrays,
  options: Options,
) -> tuple[types.Array, _Arrays]:
  """Unrolls any number of rows, by padding them to whole blocks."""
  num_rows = start.shape[1]
  extra = -num_rows % options.rows

  def pad(array: types.Array) -> types.Array:
    widths = [(0, 0)] * (array.ndim - 2) + [(0, extra), (0, 0)]
    return jnp.pad(array, widths) if extra else array

  inputs = jax.tree.map(pad, (gates, start[..., None], tuple(state)))
  outputs, last = _unroll(cell, options, w_h, *inputs)
  return outputs[:, :num_rows], tuple(leaf[:num_rows] for leaf in last)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _unroll(cell: _Cell, options: Options, w_h: types.Array, *rows: Any) -> Any:
  """Unrolls whole blocks of gates, start [T, B, 1] and state."""
  outputs, _, last = _unroll_and_keep(cell, options, w_h, rows, keeps=False)
  return outputs, last


def _forward(
  cell: _Cell, options: Options, w_h: types.Array, *rows: Any
) -> Any:
  outputs, kept, last = _unroll_and_keep(cell, options, w_h, rows, keeps=True)
  return (outputs, last), (w_h, rows[1], *kept)


def _unroll_and_keep(
  cell: _Cell, options: Options, w_h: types.Array, rows: Any, keeps: bool
) -> Any:
  """Returns outputs, what `_backward` needs if `keeps`, and the last state.

  It needs the gates after their nonlinearities, and the states before the
  steps, after resets.
  """
  gates, _, state = rows
  steps = jax.ShapeDtypeStruct((len(gates), *state[0].shape), jnp.float32)
  kept = (gates, (steps,) * len(state)) if keeps else ()
  step = functools.partial(_forward_step, cell)
  return _call(step, options, w_h, rows, (steps, kept, state))


def _backward(
  cell: _Cell, options: Options, residuals: Any, cotangents: Any
) -> Any:
  w_h, start, gates, before = residuals
  inputs = (gates, start, before, *cotangents)
  step = functools.partial(_backward_step, cell)
  d_gates, d_state = _call(step, options, w_h, inputs, (gates, cotangents[1]))
  return cell.weights(gates, before[0], d_gates), d_gates, None, d_state


_unroll.defvjp(_forward, _backward)


def _call(
  step: Callable[[Any, Any, Any, Any, _Arrays], _Arrays],
  options: Options,
  w_h: types.Array,
  inputs: tuple[Any, ...],
  outputs: tuple[Any, ...],
) -> Any:
  """Runs a loop over time for each block of rows.

  Args:
    step: `(load, inputs, outputs, index of the step, carry)` to the new carry;
      `load(k)` returns the weights of a gate, [H, H], the others are references
      to blocks, [T, R, size].
    options: how the kernel is laid out.
    w_h: weights, [H, num_gates * H].
    inputs: leaves [T, B, size], with gates first; the last is the first carry,
      leaves [B, H].
    outputs: leaves with the shapes of the results; the last is that of the last
      carry.
  """
  # They take as long to import as JAX.
  import jax.experimental.pallas as pl
  from jax.experimental.pallas import triton

  num_steps, num_rows, width = inputs[0].shape
  size = len(w_h)
  num_warps = options.num_warps or (4 if size <= 64 else 8)
  num_held = options.registers * 32 * num_warps // size**2

  def kernel(w_ref: Any, *refs: Any) -> None:
    held = [w_ref[:, _gate(k, size)] for k in range(width // size)[:num_held]]

    def load(k: int) -> types.Array:
      return held[k] if k < len(held) else w_ref[:, _gate(k, size)]

    *given, first = refs[: len(inputs)]
    *written, last = refs[len(inputs) :]
    carry = jax.lax.fori_loop(
      0,
      num_steps,
      functools.partial(step, load, given, written),
      tuple(ref[...] for ref in first),
    )
    for ref, leaf in zip(last, carry, strict=True):
      ref[...] = leaf

  def block(leaf: Any) -> Any:
    steps = leaf.shape[:-2]
    shape = (*steps, options.rows, leaf.shape[-1])
    return pl.BlockSpec(shape, lambda i: (*(0 for _ in steps), i, 0))

  return pl.pallas_call(
    kernel,
    grid=(num_rows // options.rows,),
    in_specs=[
      pl.BlockSpec(w_h.shape, lambda i: (0, 0)), *jax.tree.map(block, inputs)
    ],
    out_specs=jax.tree.map(block, outputs),
    out_shape=jax.tree.map(
      lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), outputs
    ),
    # More would copy the weights of later steps ahead, which are the same.
    compiler_params=triton.CompilerParams(num_warps=num_warps, num_stages=1),
    interpret=options.interpret,
  )(w_h, *inputs)  # fmt: skip


def _forward_step(
  cell: _Cell, load: Any, inputs: Any, outputs: Any, t: Any, state: _Arrays
) -> _Arrays:
  (gates, start), (hidden, kept) = inputs, outputs
  state = _reset(start[t], state)
  after, new = cell.step(
    lambda rows, k: jnp.dot(rows, load(k)), _read(gates, t, hidden), state
  )
  hidden[t] = new[0]
  if kept:
    _write(kept[0], t, after)
    for ref, leaf in zip(kept[1], state, strict=True):
      ref[t] = leaf
  return new


def _backward_step(
  cell: _Cell, load: Any, inputs: Any, outputs: Any, i: Any, gradient: _Arrays
) -> _Arrays:
  (gates, start, before, d_outputs), (d_gates,) = inputs, outputs
  t = start.shape[0] - 1 - i

  def product(rows: types.Array, k: int) -> types.Array:
    return jax.lax.dot_general(rows, load(k), (((1,), (1,)), ((), ())))

  gradient = (gradient[0] + d_outputs[t], *gradient[1:])
  state = tuple(ref[t] for ref in before)
  of_gates, gradient = cell.back(
    product, _read(gates, t, d_outputs), state, gradient
  )
  _write(d_gates, t, of_gates)
  return _reset(start[t], gradient)


def _gate(k: int, size: int) -> slice:
  """Returns the columns of a gate."""
  return slice(k * size, (k + 1) * size)


def _read(gates: Any, t: Any, hidden: Any) -> _Arrays:
  """Returns the gates of one step, [R, H] each; `hidden` tells H."""
  size = hidden.shape[-1]
  return tuple(
    gates[t, :, _gate(k, size)] for k in range(gates.shape[-1] // size)
  )


def _write(ref: Any, t: Any, gates: _Arrays) -> None:
  for k, gate in enumerate(gates):
    ref[t, :, _gate(k, gate.shape[-1])] = gate


def _reset(start: types.Array, state: _Arrays) -> _Arrays:
  """Zeroes leaves [R, H] in the rows where `start` [R, 1] is true."""
  return tuple(jnp.where(start, 0.0, leaf) for leaf in state)
