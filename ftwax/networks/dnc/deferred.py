"""Linear layers inside a loop over time, whose weights learn outside of it.

Reverse-mode differentiation of a loop adds up the gradient of the weights step
by step: the whole matrix is read and written each time, for a product over no
more than B rows. All steps' rows together make one matrix product instead. So
the weights are kept out of the loop's differentiation, and each step leaves
what their gradient needs, its inputs and the gradient of its outputs, in a
tap: zeros that the loop is given for each step, of which the step's backward
pass returns that pair as if it were their gradient. A tap must be used exactly
once.

The weights are also transposed before the loop, since XLA's product with a
transposed matrix on the CPU was measured to be ten times as slow.
"""

from typing import NamedTuple

import haiku as hk
import jax
import jax.numpy as jnp

from ftwax import types


class Weights(NamedTuple):
  """A matrix for all steps, without gradient.

  Attributes:
    matrix: [num_inputs, num_outputs].
    transposed: [num_outputs, num_inputs].
  """

  matrix: types.Array
  transposed: types.Array


class Tap(NamedTuple):
  """Zeros beside a matrix; their gradient u, v means its gradient u^T v.

  Attributes:
    u: [..., num_rows], of the same vectors as `v`.
    v: [..., num_columns].
  """

  u: types.Array
  v: types.Array


def prepare(
  matrix: types.Array, leading_shape: tuple[int, ...]
) -> tuple[Weights, Tap]:
  """Makes of learned weights what `dot` needs.

  Args:
    matrix: [num_inputs, num_outputs].
    leading_shape: [B], or [T, B] for the steps of a loop.

  Returns:
    The weights, for all steps, and taps [*leading_shape, ...], one for each.
  """

  @jax.custom_vjp
  def open_taps(matrix):
    return Tap(*(jnp.zeros((*leading_shape, size)) for size in matrix.shape))

  def backward(_, tap):
    return (jnp.einsum('...i,...o->io', tap.u, tap.v),)

  open_taps.defvjp(lambda matrix: (open_taps(matrix), ()), backward)
  taps = open_taps(matrix)
  matrix = jax.lax.stop_gradient(matrix)
  return Weights(matrix, jax.lax.optimization_barrier(matrix.T)), taps


@jax.custom_vjp
def dot(inputs: types.Array, weights: Weights, tap: Tap) -> types.Array:
  """Returns `inputs @ weights`, where the weights learn through `tap`.

  Args:
    inputs: [B, num_inputs].
    weights: made by `prepare`.
    tap: made by `prepare`, of this step.
  """
  del tap
  return jnp.dot(inputs, weights.matrix)


def _dot_forward(inputs, weights, tap):
  return dot(inputs, weights, tap), (inputs, weights.transposed)


def _dot_backward(residuals, gradient):
  inputs, transposed = residuals
  return jnp.dot(gradient, transposed), None, Tap(inputs, gradient)


dot.defvjp(_dot_forward, _dot_backward)


class PreparedLinear(NamedTuple):
  """A linear layer for all steps.

  Attributes:
    weights: its weights, which learn through taps.
    bias: [num_outputs].
  """

  weights: Weights
  bias: types.Array

  def __call__(self, inputs: types.Array, tap: Tap) -> types.Array:
    """Maps [B, num_inputs] to [B, num_outputs]."""
    outputs = dot(inputs, self.weights, tap)
    return outputs + jnp.broadcast_to(self.bias, outputs.shape)


class Linear(hk.Module):
  """A linear layer to be used inside a loop, otherwise like `hk.Linear`."""

  def __init__(self, num_outputs: int, name: str | None = None):
    super().__init__(name)
    self._num_outputs = num_outputs

  def __call__(
    self, num_inputs: int, leading_shape: tuple[int, ...]
  ) -> tuple[PreparedLinear, Tap]:
    """Returns the layer for all steps, and taps, one for each call."""
    shape = (num_inputs, self._num_outputs)
    w_init = hk.initializers.VarianceScaling(1.0, 'fan_in', 'truncated_normal')
    w = hk.get_parameter('w', shape, init=w_init)
    b = hk.get_parameter('b', shape[1:], init=jnp.zeros)
    weights, taps = prepare(w, leading_shape)
    return PreparedLinear(weights, b), taps
