"""Controllers: the part of a memory network between its inputs and the memory.

A controller is a recurrent core with two kinds of inputs: those known for all
steps before the loop, and those fed back from the last step, the words read.
Products with the first kind are computed for all steps at once.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import haiku as hk
import jax.numpy as jnp

from ftwax import types
from ftwax.networks import deferred, noise, recurrence, recurrent_cores

# `(prepared, fed_back, state, hyperparameters) -> (output, state)` does one
# step, leaves [B, ...]: `prepared` is this step's entry of the result of
# `Controller.prepare`, and `fed_back` has arrays of [B, num_fed_back] in all.
ControllerStep = Callable[
  [Any, list[types.Array], Any, types.Hyperparameters | None],
  tuple[types.Array, Any],
]


class Controller(Protocol):
  """A Haiku module with inputs known in advance and inputs fed back."""

  def initial_state(self, batch_size: int) -> Any:
    """Returns the zero state, leaves [batch_size, ...]."""

  def prepare(
    self, inputs: types.Array, num_fed_back: int
  ) -> tuple[ControllerStep, Any]:
    """Does the computation that needs no state.

    Args:
      inputs: [B, num_inputs], or [T, B, num_inputs] for all steps of a loop.
      num_fed_back: number of inputs that are fed back to a step.

    Returns:
      The step, and its prepared inputs, leaves [B, ...] or [T, B, ...].
    """


class PreparedGates(NamedTuple):
  """The part of an LSTM's step that needs no state.

  Attributes:
    gates: [..., 4 * hidden_size], contribution of the inputs to the gates.
    tap: tap of the recurrent weights; see `deferred`.
  """

  gates: types.Array
  tap: deferred.Tap


class LSTMController(hk.Module):
  """An LSTM whose gates are ordered as in `recurrent_cores.LSTM`."""

  def __init__(
    self,
    hidden_size: int,
    forget_bias: float = 1.0,
    name: str | None = None,
  ):
    super().__init__(name)
    self._hidden_size = hidden_size
    self._forget_bias = forget_bias

  def initial_state(self, batch_size: int) -> recurrent_cores.LSTMState:
    """Returns the zero state."""
    return recurrent_cores.zero_lstm_state(batch_size, self._hidden_size)

  def prepare(
    self, inputs: types.Array, num_fed_back: int
  ) -> tuple[ControllerStep, PreparedGates]:
    """Computes the inputs' contribution to the gates; inputs may be empty."""
    *leading_shape, num_inputs = inputs.shape
    num_recurrent = num_fed_back + self._hidden_size
    w_init = hk.initializers.TruncatedNormal(
      1.0 / math.sqrt(num_inputs + num_recurrent)
    )
    num_gates = 4 * self._hidden_size
    w_h = hk.get_parameter('w_h', (num_recurrent, num_gates), init=w_init)
    b = hk.get_parameter('b', (num_gates,), init=jnp.zeros)
    gates = jnp.broadcast_to(b, (*leading_shape, num_gates))
    # The slow cores of a hierarchy have no inputs besides those fed back.
    if num_inputs:
      w_i = hk.get_parameter('w_i', (num_inputs, num_gates), init=w_init)
      gates = gates + jnp.dot(inputs, w_i)
    weights, taps = deferred.prepare(w_h, tuple(leading_shape))

    def step(
      prepared: PreparedGates,
      fed_back: list[types.Array],
      state: recurrent_cores.LSTMState,
      hyperparameters: types.Hyperparameters | None,
    ) -> tuple[types.Array, recurrent_cores.LSTMState]:
      del hyperparameters
      # [B, num_fed_back + hidden_size]
      recurrent = jnp.concatenate([*fed_back, state.hidden], axis=-1)
      gates = prepared.gates + deferred.dot(recurrent, weights, prepared.tap)
      state = recurrent_cores.lstm_cell(gates, state.cell, self._forget_bias)
      return state.hidden, state

    return step, PreparedGates(gates, taps)


class CoreController:
  """Adapts any recurrent core as a controller."""

  def __init__(self, core: recurrence.RecurrentCore):
    self._core = core

  def initial_state(self, batch_size: int) -> types.RecurrentState:
    """Returns the core's zero state."""
    return self._core.initial_state(batch_size)

  def prepare(
    self, inputs: types.Array, num_fed_back: int
  ) -> tuple[ControllerStep, tuple[types.Array, types.Array | None]]:
    """Returns the inputs, which a core takes all at once, and their seeds."""
    del num_fed_back

    def step(
      prepared: tuple[types.Array, types.Array | None],
      fed_back: list[types.Array],
      state: types.RecurrentState,
      hyperparameters: types.Hyperparameters | None,
    ) -> tuple[types.Array, types.RecurrentState]:
      known, seeds = prepared
      inputs = jnp.concatenate([known, *fed_back], axis=-1)
      with noise.seeded(seeds):
        output, state = self._core(inputs, state, hyperparameters)
      return output.features, state

    return step, (inputs, noise.seeds())
