"""LSTM with layer normalization and dropout.

Ba, Kiros and Hinton, "Layer normalization", 2016 (arXiv:1607.06450), equations
20 to 22: normalizes the contributions of the inputs and of the recurrence to
the gates separately, and the cell before the output. Dropout acts on the
candidate, so that no memory is lost (Semeniuta, Severyn and Barth, 2016,
arXiv:1603.05118).
"""

import math

import haiku as hk
import jax
import jax.numpy as jnp

from ftwax import types
from ftwax.networks import noise, recurrence, recurrent_cores

_EPSILON = 1e-5


class LayerNormLSTM(hk.Module):
  """An LSTM; gates are ordered input, cell, forget (plus one), output."""

  def __init__(
    self, hidden_size: int, dropout: float = 0.0, name: str | None = None
  ):
    """Makes a core.

    Args:
      hidden_size: number of units.
      dropout: probability of dropping a unit's candidate, in acting and in
        learning alike; greedy policies drop nothing.
      name: name of the module.
    """
    super().__init__(name)
    self._hidden_size = hidden_size
    self._dropout = dropout

  def initial_state(self, batch_size: int) -> recurrent_cores.LSTMState:
    """Returns the zero state."""
    return recurrent_cores.zero_lstm_state(batch_size, self._hidden_size)

  def __call__(
    self,
    inputs: types.Array,
    state: recurrent_cores.LSTMState,
    hyperparameters: types.Hyperparameters | None = None,
  ) -> tuple[recurrence.CoreOutput, recurrent_cores.LSTMState]:
    """Does one step on inputs [B, num_inputs]."""
    del hyperparameters
    gates = self._project(inputs)
    state = self._step(gates, self._draw_mask(state.cell.shape), state)
    return recurrence.CoreOutput(features=state.hidden, auxiliary={}), state

  def unroll(
    self,
    inputs: types.Array,
    start: types.Array,
    state: recurrent_cores.LSTMState,
    hyperparameters: types.Hyperparameters | None = None,
  ) -> tuple[recurrence.CoreOutput, recurrent_cores.LSTMState]:
    """Does `T` steps on inputs [T, B, num_inputs]."""
    del hyperparameters
    shape = (*inputs.shape[:2], self._hidden_size)
    masks = self._draw_mask(shape)

    def step(
      inputs: tuple[types.Array, types.Array], state: recurrent_cores.LSTMState
    ) -> tuple[types.Array, recurrent_cores.LSTMState]:
      gates, mask = inputs
      state = self._step(gates, mask, state)
      return state.hidden, state

    hidden, state = recurrence.unroll_step(
      step, (self._project(inputs), masks), start, state
    )
    return recurrence.CoreOutput(features=hidden, auxiliary={}), state

  def _draw_mask(self, shape: tuple[int, ...]) -> types.Array:
    mask = noise.dropout(self._dropout, shape[-1])
    return jnp.ones(shape) if mask is None else mask

  def _project(self, inputs: types.Array) -> types.Array:
    """Returns the inputs' part of the gates, normalized, for all steps."""
    num_gates = 4 * self._hidden_size
    w_i = hk.get_parameter(
      'w_i', (inputs.shape[-1], num_gates), init=self._w_init(inputs.shape[-1])
    )
    b = hk.get_parameter('b', (num_gates,), init=jnp.zeros)
    gates = self._normalize(jnp.dot(inputs, w_i), 'input_scale')
    # One bias for both norms, whose offsets would only be added.
    return gates + jnp.broadcast_to(b, gates.shape)

  def _step(
    self,
    gates: types.Array,
    mask: types.Array,
    state: recurrent_cores.LSTMState,
  ) -> recurrent_cores.LSTMState:
    """Does one step; `gates` [B, 4 * hidden_size] are the inputs' part."""
    hidden_size = self._hidden_size
    w_h = hk.get_parameter(
      'w_h', (hidden_size, 4 * hidden_size), init=self._w_init(hidden_size)
    )
    recurrent = self._normalize(jnp.dot(state.hidden, w_h), 'recurrent_scale')
    # [B, hidden_size] each.
    i, g, f, o = jnp.split(gates + recurrent, 4, axis=-1)
    cell = jax.nn.sigmoid(f + 1.0) * state.cell
    cell = cell + jax.nn.sigmoid(i) * jnp.tanh(g) * mask
    output = self._normalize(cell, 'cell_scale')
    offset = hk.get_parameter('cell_offset', (hidden_size,), init=jnp.zeros)
    output += jnp.broadcast_to(offset, output.shape)
    hidden = jax.nn.sigmoid(o) * jnp.tanh(output)
    return recurrent_cores.LSTMState(hidden=hidden, cell=cell)

  def _w_init(self, num_inputs: int) -> hk.initializers.Initializer:
    return hk.initializers.TruncatedNormal(1.0 / math.sqrt(num_inputs))

  def _normalize(self, x: types.Array, scale_name: str) -> types.Array:
    """Normalizes the last axis to mean zero and a learned scale."""
    scale = hk.get_parameter(scale_name, (x.shape[-1],), init=jnp.ones)
    x = x - jnp.mean(x, axis=-1, keepdims=True)
    variance = jnp.mean(jnp.square(x), axis=-1, keepdims=True)  # [..., 1]
    return (
      x * jax.lax.rsqrt(variance + _EPSILON) * jnp.broadcast_to(scale, x.shape)
    )
