"""Linear layers inside a loop over time, with weight gradients outside of it.

Reverse-mode differentiation of a loop accumulates the gradient of the weights
step by step: each step reads and writes the whole matrix, for a product over at
most B rows. It is faster to multiply the rows of all steps at once, after the
loop. To this end, the loop is not differentiated with respect to the weights.
Instead each step receives a tap, which is zero and does not affect its output.
The backward pass of the step returns its inputs and the gradient of its
outputs, from which the gradient of the weights follows, as if they were the
gradient of the tap. A tap must be used exactly once.

The weights are also transposed before the loop, since on the CPU XLA's product
with a transposed matrix was measured to be ten times as slow.
"""

from typing import Any, NamedTuple

import haiku as hk
import jax
import jax.numpy as jnp

from ftwax import types


class Weights(NamedTuple):
  """A matrix for all steps, with gradients stopped.

  Attributes:
    matrix: float32 [num_inputs, num_outputs].
    transposed: float32 [num_outputs, num_inputs].
  """

  matrix: types.Array
  transposed: types.Array


class Tap(NamedTuple):
  """Zeros that carry the factors of a matrix's gradient.

  A gradient (u, v) of the tap stands for a gradient u^T v of the matrix.

  Attributes:
    u: float32 [..., num_rows].
    v: float32 [..., num_columns], for the same leading axes as `u`.
  """

  u: types.Array
  v: types.Array


def prepare(
  matrix: types.Array, leading_shape: tuple[int, ...]
) -> tuple[Weights, Tap]:
  """Splits learned weights into weights for `dot` and taps for their gradient.

  Args:
    matrix: float32 [num_inputs, num_outputs].
    leading_shape: [B], or [T, B] for the steps of a loop.

  Returns:
    The weights, for all steps, and taps [*leading_shape, ...], one for each
    step.
  """

  # The forward pass returns zeros. The backward pass receives the factors that
  # the steps stored in their gradients and multiplies them.
  @jax.custom_vjp
  def open_taps(matrix: types.Array) -> Tap:
    return Tap(*(jnp.zeros((*leading_shape, size)) for size in matrix.shape))

  def forward(matrix: types.Array) -> tuple[Tap, tuple[()]]:
    return open_taps(matrix), ()

  def backward(_: tuple[()], tap: Tap) -> tuple[types.Array]:
    return (jnp.einsum('...i,...o->io', tap.u, tap.v),)

  open_taps.defvjp(forward, backward)
  taps = open_taps(matrix)
  matrix = jax.lax.stop_gradient(matrix)
  # Without the barrier XLA would move the transposition into the loop.
  return Weights(matrix, jax.lax.optimization_barrier(matrix.T)), taps


@jax.custom_vjp
def dot(inputs: types.Array, weights: Weights, tap: Tap) -> types.Array:
  """Returns `inputs @ weights`; the gradient of the weights goes into `tap`.

  Args:
    inputs: float32 [B, num_inputs].
    weights: from `prepare`.
    tap: the tap of this step, from `prepare`.

  Returns:
    float32 [B, num_outputs].
  """
  del tap
  return product(inputs, weights.matrix)


def _dot_forward(
  inputs: types.Array, weights: Weights, tap: Tap
) -> tuple[types.Array, tuple[types.Array, types.Array]]:
  return dot(inputs, weights, tap), (inputs, weights.transposed)


def _dot_backward(
  residuals: tuple[types.Array, types.Array], gradient: types.Array
) -> tuple[types.Array, None, Tap]:
  inputs, transposed = residuals
  return product(gradient, transposed), None, Tap(inputs, gradient)


dot.defvjp(_dot_forward, _dot_backward)


def product(rows: types.Array, matrix: types.Array) -> types.Array:
  """Returns `rows @ matrix`, inside a loop."""
  # On a GPU XLA would let the product add what follows it, which then takes a
  # kernel before the product; other kernels add it on the way.
  return jax.lax.optimization_barrier(jnp.dot(rows, matrix))


# Matrix [num_inputs, num_outputs] and bias [num_outputs].
Parameters = tuple[types.Array, types.Array]


class PreparedLinear(NamedTuple):
  """A linear layer for all steps.

  Attributes:
    weights: weights whose gradient goes into taps.
    bias: float32 [num_outputs].
  """

  weights: Weights
  bias: types.Array

  def __call__(self, inputs: types.Array, tap: Tap) -> types.Array:
    """Maps [B, num_inputs] to [B, num_outputs]."""
    outputs = dot(inputs, self.weights, tap)
    return outputs + jnp.broadcast_to(self.bias, outputs.shape)


class Linear(hk.Module):
  """The parameters of an `hk.Linear`, for use in a loop or with others."""

  def __init__(
    self, num_outputs: int, w_init: Any = None, name: str | None = None
  ):
    super().__init__(name)
    self._num_outputs = num_outputs
    self._w_init = w_init or hk.initializers.VarianceScaling(
      1.0, 'fan_in', 'truncated_normal'
    )

  def __call__(self, num_inputs: int) -> Parameters:
    """Returns the matrix and the bias."""
    n = self._num_outputs
    w = hk.get_parameter('w', (num_inputs, n), init=self._w_init)
    return w, hk.get_parameter('b', (n,), init=jnp.zeros)


def prepare_linear(
  parameters: Parameters, leading_shape: tuple[int, ...]
) -> tuple[PreparedLinear, Tap]:
  """Returns a layer for all steps, and one tap per step."""
  matrix, bias = parameters
  weights, taps = prepare(matrix, leading_shape)
  return PreparedLinear(weights, bias), taps


def compose(first: Parameters, second: Parameters) -> Parameters:
  """Returns the one layer that does what two do, one after the other."""
  (w, b), (v, a) = first, second
  return jnp.dot(w, v), jnp.dot(b, v) + a
