"""Unrolls of an LSTM and of a GRU, with backward passes by hand.

Differentiation of a loop over time stacks each factor of each product of a
step, most of them twice: 14 arrays for an LSTM. Here a step stacks its gates
and its new state. What the backward pass needs of them is computed for all
steps at once, so that its loop only carries the gradient of the state, and
stacks that of the gates. The gradient of the weights follows for all steps.

On a GPU these loops are one kernel each, where `recurrent_kernels` fits.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ftwax import scans, trees, types
from ftwax.networks import deferred, recurrence, recurrent_kernels

_Arrays = tuple[types.Array, ...]


class Cell(NamedTuple):
  """A core; the first leaf of its state is its output.

  Attributes:
    step: `(product, inputs' part of the gates, state)` to the gates after their
      nonlinearities, and the new state; `product(rows, first, last)` multiplies
      [B, H] by the weights of gates `first` to `last`, the last not included.
    factors: `(gates, state before the step)` to what `pull` multiplies.
    pull: `(product, factors, gradient of the state after the step)` to the
      gradients of the gates before their nonlinearities, and of the state
      before the step; `product(rows, first)` multiplies those of gates from
      `first` on by their transposed weights, and sums.
    weights: `(product, gates, output before the step, gradient of the gates)`
      of all steps, [T, B, ...], to the gradient of the weights, where gates are
      [T, B, num_gates * H]; `product(outputs, gradient)` sums outer products
      over T and B.
  """

  step: Callable[[Any, _Arrays, _Arrays], tuple[_Arrays, _Arrays]]
  factors: Callable[[_Arrays, _Arrays], Any]
  pull: Callable[[Any, Any, _Arrays], tuple[_Arrays, _Arrays]]
  weights: Callable[..., types.Array]


def lstm(
  gates: types.Array,
  w_h: types.Array,
  start: types.Array,
  state: _Arrays,
) -> tuple[types.Array, _Arrays]:
  """Unrolls an LSTM, whose step is `recurrent_cores.lstm_cell`.

  Args:
    gates: inputs' part of the gates, float32 [T, B, 4 H].
    w_h: recurrent weights, float32 [H, 4 H].
    start: bool [T, B], true where the state is zeroed before the step.
    state: hidden and cell before the first step, float32 [B, H] each.

  Returns:
    Hidden of all steps, [T, B, H]; and hidden and cell after the last one.

  Raises:
    ValueError: if gates, start and state do not have the same T and B.
  """
  return _unroll_rows(_LSTM, w_h, gates, start, tuple(state))


def gru(
  gates: types.Array,
  w_h: types.Array,
  start: types.Array,
  state: types.Array,
) -> tuple[types.Array, types.Array]:
  """Unrolls a GRU of gates [T, B, 3 H] and one state [B, H]; see `lstm`."""
  states, (last,) = _unroll_rows(_GRU, w_h, gates, start, (state,))
  return states, last


def _lstm_step(product: Any, gates: _Arrays, state: _Arrays) -> Any:
  hidden, cell = state
  i, g, f, o = _add(gates, product(hidden, 0, 4))
  i, f, o = map(jax.nn.sigmoid, (i, f, o))
  g = jnp.tanh(g)
  cell = f * cell + i * g
  return (i, g, f, o), (o * jnp.tanh(cell), cell)


def _lstm_factors(gates: _Arrays, before: _Arrays) -> Any:
  (i, g, f, o), (_, cell) = gates, before
  tanh = jnp.tanh(f * cell + i * g)
  of_gates = (
    g * i * (1.0 - i),
    i * (1.0 - g * g),
    cell * f * (1.0 - f),
    tanh * o * (1.0 - o),
  )
  return of_gates, o * (1.0 - tanh * tanh), f


def _lstm_pull(product: Any, factors: Any, gradient: _Arrays) -> Any:
  ((*of_igf, of_o), of_cell, f), (d_hidden, d_cell) = factors, gradient
  d_cell = d_cell + d_hidden * of_cell
  d_gates = *(d_cell * factor for factor in of_igf), d_hidden * of_o
  return d_gates, (product(d_gates, 0), d_cell * f)


def _lstm_weights(
  product: Any, gates: types.Array, hidden: types.Array, d_gates: types.Array
) -> types.Array:
  del gates
  weights: types.Array = product(hidden, d_gates)
  return weights


def _gru_step(product: Any, gates: _Arrays, state: _Arrays) -> Any:
  (hidden,) = state
  z, r = map(jax.nn.sigmoid, _add(gates[:2], product(hidden, 0, 2)))
  # The candidate's product needs the reset gate first.
  (a,) = map(jnp.tanh, _add(gates[2:], product(r * hidden, 2, 3)))
  return (z, r, a), ((1.0 - z) * hidden + z * a,)


def _gru_factors(gates: _Arrays, before: _Arrays) -> Any:
  (z, r, a), (hidden,) = gates, before
  of_z, of_a = (a - hidden) * z * (1.0 - z), z * (1.0 - a * a)
  return of_z, hidden * r * (1.0 - r), of_a, r, 1.0 - z


def _gru_pull(product: Any, factors: Any, gradient: _Arrays) -> Any:
  (of_z, of_r, of_a, r, keep), (d_hidden,) = factors, gradient
  d_z, d_a = d_hidden * of_z, d_hidden * of_a
  d_reset = product((d_a,), 2)  # Of r * hidden.
  d_r = d_reset * of_r
  d_hidden = d_hidden * keep + d_reset * r
  return (d_z, d_r, d_a), (d_hidden + product((d_z, d_r), 0),)


def _gru_weights(
  product: Any, gates: types.Array, hidden: types.Array, d_gates: types.Array
) -> types.Array:
  z_r, a = 2 * hidden.shape[-1], hidden * _split(gates, hidden.shape[-1])[1]
  of_z_r = product(hidden, d_gates[..., :z_r])
  return jnp.concatenate([of_z_r, product(a, d_gates[..., z_r:])], axis=1)


def _add(gates: _Arrays, products: _Arrays) -> _Arrays:
  return tuple(a + b for a, b in zip(gates, products, strict=True))


_LSTM = Cell(_lstm_step, _lstm_factors, _lstm_pull, _lstm_weights)
_GRU = Cell(_gru_step, _gru_factors, _gru_pull, _gru_weights)


def _unroll_rows(
  cell: Cell, w_h: Any, gates: Any, start: Any, state: _Arrays
) -> Any:
  recurrence.check_unroll('unroll', gates, start, state)
  if recurrent_kernels.fits(gates, w_h):
    return recurrent_kernels.unroll_rows(cell, w_h, gates, start, state)
  return _unroll(cell, recurrence.is_batch_first(), w_h, gates, start, state)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _unroll(cell: Cell, is_split: bool, w_h: Any, *rows: Any) -> Any:
  """Unrolls gates [T, B, num_gates * H], start [T, B], state [B, H].

  `is_split` is whether the batch is split over devices.
  """
  del is_split
  (outputs, *_), _, last = _unroll_and_keep(cell, w_h, rows, keeps=False)
  return outputs, last


def _forward(cell: Cell, is_split: bool, w_h: Any, *rows: Any) -> Any:
  del is_split
  states, gates, last = _unroll_and_keep(cell, w_h, rows, keeps=True)
  return (states[0], last), (w_h, *rows[1:], states, gates)


def _unroll_and_keep(cell: Cell, w_h: Any, rows: Any, keeps: bool) -> Any:
  """Returns states after the steps, gates if `keeps`, and the last state.

  States are only outputs, [T, B, H], unless `keeps`; gates, which are after
  their nonlinearities, are [T, B, num_gates * H].
  """
  size = len(w_h)

  def product(rows: Any, first: int, last: int) -> _Arrays:
    return _split(
      deferred.product(rows, w_h[:, size * first : size * last]), size
    )

  def step(state: Any, inputs: Any) -> Any:
    gates, start = inputs
    state = _reset(start, state)
    after, new = cell.step(product, _split(gates, size), state)
    return new, ((new, _join(after)) if keeps else (new[:1], ()))

  gates, start, state = rows
  last, (states, kept) = scans.scan(step, state, (gates, start), in_blocks=True)
  return states, kept, last


def _backward(cell: Cell, is_split: bool, kept: Any, cotangents: Any) -> Any:
  w_h, start, first, states, gates = kept
  d_outputs, d_state = cotangents
  size = len(w_h)
  before = _reset(
    start,
    tuple(
      jnp.concatenate([leaf[None], after[:-1]])
      for leaf, after in zip(first, states, strict=True)
    ),
  )
  # Without the barrier XLA would move the transposition into the loop.
  transposed = jax.lax.optimization_barrier(w_h.T)

  def product(rows: _Arrays, first: int) -> types.Array:
    matrix = transposed[size * first : size * (first + len(rows))]
    return deferred.product(_join(rows), matrix)

  def step(gradient: Any, inputs: Any) -> Any:
    factors, d_output, start = inputs
    d_output = gradient[0] + d_output
    d_gates, new = cell.pull(product, factors, (d_output, *gradient[1:]))
    return _reset(start, new), _join(d_gates)

  inputs = cell.factors(_split(gates, size), before), d_outputs, start
  d_state, d_gates = scans.scan(
    step, d_state, inputs, reverse=True, in_blocks=True
  )

  outer = functools.partial(_sum_outer, is_split)
  d_w_h = cell.weights(outer, gates, before[0], d_gates)
  return d_w_h, d_gates, None, d_state


_unroll.defvjp(_forward, _backward)


def _sum_outer(
  is_split: bool, rows: types.Array, columns: types.Array
) -> types.Array:
  """Returns the sum of outer products of [T, B, m] and [T, B, n], [m, n]."""
  if is_split:  # Each device first sums its own sequences.
    return jnp.einsum('tbm,tbn->mn', rows, columns)
  m, n = rows.shape[-1], columns.shape[-1]
  return jnp.dot(rows.reshape(-1, m).T, columns.reshape(-1, n))


def _reset(start: types.Array, leaves: _Arrays) -> _Arrays:
  """Zeroes the rows of leaves [..., H] where `start` [...] is true."""
  return tuple(trees.where_rows(start, 0.0, leaf) for leaf in leaves)


def _split(gates: types.Array, size: int) -> _Arrays:
  """Splits gates [..., num_gates * H]."""
  return tuple(jnp.split(gates, gates.shape[-1] // size, axis=-1))


def _join(gates: _Arrays) -> types.Array:
  return jnp.concatenate(gates, axis=-1)
