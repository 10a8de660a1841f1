"""Cores: LSTM, GRU, and a feed-forward one as a baseline.

LSTM: Hochreiter and Schmidhuber, 1997; GRU: Cho et al., 2014 (arXiv:1406.1078).
An unroll multiplies the inputs of all `T * B` steps by their weights at once,
since that does not depend on the state. Only the recurrent product is inside
the loop.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple

import haiku as hk
import jax
import jax.numpy as jnp

from ftwax import parts, registry, shapes, types
from ftwax.networks import (
  core_parts,
  deferred,
  gated_unrolls,
  layers,
  noise,
  recurrence,
)
from ftwax.networks.dnc import controllers


class LSTMState(NamedTuple):
  """State of an LSTM.

  Attributes:
    hidden: float32 [B, hidden_size].
    cell: float32 [B, hidden_size].
  """

  hidden: types.Array
  cell: types.Array


def zero_lstm_state(batch_size: int, hidden_size: int) -> LSTMState:
  """Returns zeros, each [batch_size, hidden_size]."""
  # Two arrays, so that both may be donated.
  return LSTMState(*(jnp.zeros((batch_size, hidden_size)) for _ in range(2)))


@registry.register('core.lstm')
@dataclasses.dataclass(frozen=True)
class LSTM(core_parts.SizedCore):
  """Long short-term memory; gates are ordered input, cell, forget, output.

  Attributes:
    hidden_size: number of units.
    forget_bias: added to the forget gate's bias, so that memories last at first
      (Jozefowicz et al., 2015): after `n` steps, a fraction of
      `sigmoid(forget_bias) ** n` is left of the cell and of its gradient. 1 is
      common, and dependencies over tens of steps are learned much sooner with
      3.
    memory_length: number of steps for which memories first last, in place of
      `forget_bias`: biases are drawn so that these are from one to that many
      ("chrono", Tallec and Ollivier, 2018, arXiv:1804.11188).
    layer_norm: whether to normalize each gate and the new cell over the units
      (Ba et al., 2016, arXiv:1607.06450). The state then holds the normalized
      cell, and gates have no bias but `forget_bias` and the shift of their
      norm.
    dropout: rate at which the candidates that enter the cell are dropped
      (Semeniuta et al., 2016, arXiv:1603.05118). The mask is noise of
      `networks.noise`: each step of each row has its own, the same in acting
      and learning, and without seeds, as in greedy policies, nothing is
      dropped. None for no dropout, nor a hyperparameter for it.
  """

  forget_bias: float = parts.option(3.0, low=-100.0)
  memory_length: int | None = parts.option(None, low=2)
  layer_norm: bool = False
  dropout: parts.Scalar | None = parts.scalar(None, high=0.99)

  def __post_init__(self) -> None:
    """Checks the numbers, and what goes with normalization."""
    super().__post_init__()
    if self.layer_norm and self.memory_length is not None:
      raise ValueError(
        f'memory_length ({self.memory_length}) of LSTM must be None with'
        ' layer_norm, which changes the cell at each step; choose forget_bias'
        ' instead.'
      )
    if self.layer_norm and self.hidden_size < 2:
      raise ValueError(
        f'hidden_size ({self.hidden_size}) of LSTM must be at least 2 with'
        ' layer_norm, which makes a single unit constant; choose 2 or more.'
      )

  @property
  def is_plain(self) -> bool:
    """Whether it is the cell alone, without normalization and dropout."""
    return not self.layer_norm and self.dropout is None

  def make(self, name: str | None = None) -> recurrence.RecurrentCore:
    """Makes the core; call within a Haiku transform."""
    return _LSTM(self, name or 'lstm')

  def make_controller(self) -> controllers.Controller:
    """Makes the core for a level of `RPTH`; call within a Haiku transform."""
    if self.is_plain and self.memory_length is None:
      # The same as the core, but for fewer products inside the loop.
      return LSTMController(self.hidden_size, self.forget_bias)
    return super().make_controller()


class _LSTM(hk.Module):
  """The module of `LSTM`."""

  def __init__(self, config: LSTM, name: str):
    super().__init__(name)
    self._config = config
    self._hidden_size = config.hidden_size

  def initial_state(self, batch_size: int) -> LSTMState:
    """Returns the zero state."""
    return zero_lstm_state(batch_size, self._hidden_size)

  def __call__(
    self,
    inputs: types.Array,
    state: LSTMState,
  ) -> tuple[recurrence.CoreOutput, LSTMState]:
    """Does one step on inputs [B, num_inputs]."""
    gates, w_h = self._project(inputs)
    gates = gates + jnp.dot(state.hidden, w_h)
    weights = self._draw_weights()
    state = self._make_cell()(gates, state.cell, weights)
    return recurrence.CoreOutput(features=state.hidden, auxiliary={}), state

  def unroll(
    self,
    inputs: types.Array,
    start: types.Array,
    state: LSTMState,
  ) -> tuple[recurrence.CoreOutput, LSTMState]:
    """Does `T` steps on inputs [T, B, num_inputs]."""
    gates, w_h = self._project(inputs)
    if self._config.is_plain:
      hidden, last = gated_unrolls.lstm(gates, w_h, start, state)
      return recurrence.CoreOutput(hidden, auxiliary={}), LSTMState(*last)
    # Taps are [B, T], so that the gradient is summed sequence by sequence.
    weights, taps = deferred.prepare(w_h, start.shape[::-1])
    taps = jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1), taps)  # [T, B]
    cell = self._make_cell()

    def step(
      inputs: tuple[types.Array, deferred.Tap, types.Array | None],
      state: LSTMState,
    ) -> tuple[types.Array, LSTMState]:
      gates_t, tap, drawn = inputs
      recurrent = deferred.dot(state.hidden, weights, tap)
      state = cell(gates_t + recurrent, state.cell, drawn)
      return state.hidden, state

    # [T, B, hidden_size], drawn for all steps at once.
    drawn = self._draw_weights()
    hidden, state = recurrence.unroll_step(
      step, (gates, taps, drawn), start, state
    )
    return recurrence.CoreOutput(features=hidden, auxiliary={}), state

  def _draw_weights(self) -> types.Array | None:
    """Draws the weights of the candidates, [..., B, hidden_size].

    They are 0 or 1 / (1 - dropout), so that their mean is one; None for no
    dropout.
    """
    rate: Any = self._config.dropout
    drawn = None if rate is None else noise.uniform(self._hidden_size)
    if drawn is None:
      return None
    return jnp.where(drawn < rate, 0.0, 1.0 / (1.0 - rate))

  def _make_cell(self) -> Callable[..., LSTMState]:
    """Returns the step `(gates, cell, weights) -> state`."""
    if not self._config.layer_norm:
      return lambda gates, cell, w: lstm_cell(gates, cell, weights=w)
    shape = (5, self._hidden_size)
    gain = hk.get_parameter('gain', shape, init=jnp.ones)
    shift = hk.get_parameter('shift', shape, init=jnp.zeros)
    return lambda gates, cell, w: layer_norm_lstm_cell(
      gates, cell, gain, shift, self._config.forget_bias, w
    )

  def _project(self, inputs: types.Array) -> tuple[types.Array, types.Array]:
    """Returns the inputs' part of the gates, with the forget bias, and w_h."""
    config = self._config
    if config.layer_norm:
      return _project(inputs, self._hidden_size, 4, b_init=None)
    b_init: hk.initializers.Initializer = jnp.zeros
    forget_bias = config.forget_bias
    if config.memory_length is not None:
      b_init = functools.partial(_init_chrono, config.memory_length)
      forget_bias = 0.0
    gates, w_h = _project(inputs, self._hidden_size, 4, b_init)
    # [4 * hidden_size], in the order of the gates.
    biases = jnp.repeat(
      jnp.array([0.0, 0.0, forget_bias, 0.0]), self._hidden_size
    )
    return gates + jnp.broadcast_to(biases, gates.shape), w_h


class PreparedGates(NamedTuple):
  """The part of an LSTM's step that needs no state.

  Attributes:
    gates: [..., 4 * hidden_size], contribution of the inputs to the gates.
    tap: tap of the recurrent weights; see `deferred`.
  """

  gates: types.Array
  tap: deferred.Tap


class LSTMController(hk.Module):
  """An LSTM whose gates are ordered as in `LSTM`."""

  def __init__(
    self,
    hidden_size: int,
    forget_bias: float = 1.0,
    name: str | None = None,
  ):
    super().__init__(name)
    self._hidden_size = hidden_size
    self._forget_bias = forget_bias

  def initial_state(self, batch_size: int) -> LSTMState:
    """Returns the zero state."""
    return zero_lstm_state(batch_size, self._hidden_size)

  def prepare(
    self, inputs: types.Array, num_fed_back: int
  ) -> tuple[controllers.ControllerStep, PreparedGates]:
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
      gates = gates + recurrence.dot(inputs, w_i)
    weights, taps = deferred.prepare(w_h, tuple(leading_shape))

    def step(
      prepared: PreparedGates,
      fed_back: list[types.Array],
      state: LSTMState,
    ) -> tuple[types.Array, LSTMState]:
      # [B, num_fed_back + hidden_size]
      recurrent = jnp.concatenate([*fed_back, state.hidden], axis=-1)
      gates = prepared.gates + deferred.dot(recurrent, weights, prepared.tap)
      state = lstm_cell(gates, state.cell, self._forget_bias)
      return state.hidden, state

    return step, PreparedGates(gates, taps)


@registry.register('core.gru')
@dataclasses.dataclass(frozen=True)
class GRU(core_parts.SizedCore):
  """Gated recurrent unit; gates are ordered update, reset, candidate.

  The reset gate acts on the state before the recurrent product. The state is an
  array, float32 [B, hidden_size].
  """

  def make(self, name: str | None = None) -> recurrence.RecurrentCore:
    """Makes the core; call within a Haiku transform."""
    return _GRU(self.hidden_size, name or 'gru')


class _GRU(hk.Module):
  """The module of `GRU`."""

  def __init__(self, hidden_size: int, name: str):
    super().__init__(name)
    self._hidden_size = hidden_size

  def initial_state(self, batch_size: int) -> types.Array:
    """Returns the zero state."""
    return jnp.zeros((batch_size, self._hidden_size))

  def __call__(
    self,
    inputs: types.Array,
    state: types.Array,
  ) -> tuple[recurrence.CoreOutput, types.Array]:
    """Does one step on inputs [B, num_inputs]."""
    gates, w_h = _project(inputs, self._hidden_size, num_gates=3)
    state = _gru_step(w_h, gates, state)
    return recurrence.CoreOutput(features=state, auxiliary={}), state

  def unroll(
    self,
    inputs: types.Array,
    start: types.Array,
    state: types.Array,
  ) -> tuple[recurrence.CoreOutput, types.Array]:
    """Does `T` steps on inputs [T, B, num_inputs]."""
    gates, w_h = _project(inputs, self._hidden_size, num_gates=3)
    hidden, state = gated_unrolls.gru(gates, w_h, start, state)
    return recurrence.CoreOutput(features=hidden, auxiliary={}), state


@registry.register('core.feed_forward')
@dataclasses.dataclass(frozen=True)
class FeedForward(core_parts.SizedCore):
  """A layer without memory; its state is the empty tuple.

  Attributes:
    hidden_size: number of units.
    activation: its nonlinearity, one of `layers.ACTIVATIONS`.
    initializer: of its matrix, `truncated_normal` or `orthogonal`.
  """

  has_memory: ClassVar[bool] = False

  activation: str = parts.option('relu', choices=tuple(layers.ACTIVATIONS))
  initializer: str = parts.option(
    'truncated_normal', choices=layers.INITIALIZERS
  )

  def make(self, name: str | None = None) -> recurrence.RecurrentCore:
    """Makes the core; call within a Haiku transform."""
    return _FeedForward(self, name or 'feed_forward')


class _FeedForward(hk.Module):
  """The module of `FeedForward`."""

  def __init__(self, config: FeedForward, name: str):
    super().__init__(name)
    self._layers = hk.nets.MLP(
      (config.hidden_size,),
      layers.make_w_init(config.initializer),
      activation=layers.ACTIVATIONS[config.activation],
      activate_final=True,
    )

  def initial_state(self, batch_size: int) -> tuple[()]:
    """Returns the empty state."""
    del batch_size
    return ()

  def __call__(
    self,
    inputs: types.Array,
    state: tuple[()],
  ) -> tuple[recurrence.CoreOutput, tuple[()]]:
    """Does one step on inputs [B, num_inputs]."""
    features = recurrence.apply_to_rows(self._layers, inputs)
    return recurrence.CoreOutput(features, auxiliary={}), state

  def unroll(
    self,
    inputs: types.Array,
    start: types.Array,
    state: tuple[()],
  ) -> tuple[recurrence.CoreOutput, tuple[()]]:
    """Does `T` steps on inputs [T, B, num_inputs], all at once."""
    del start
    return self(inputs, state)


def _init_chrono(
  memory_length: int, shape: Sequence[int], dtype: Any
) -> types.Array:
  """Draws biases of the gates, [4 * hidden_size]; section 2 of the paper."""
  size = shape[0] // 4
  steps = hk.initializers.RandomUniform(1.0, memory_length - 1.0)
  forget = jnp.log(steps((size,), dtype))
  zeros = jnp.zeros(size, dtype)
  return jnp.concatenate([-forget, zeros, forget, zeros])


def _project(
  inputs: types.Array,
  hidden_size: int,
  num_gates: int,
  b_init: hk.initializers.Initializer | None = jnp.zeros,
) -> tuple[types.Array, types.Array]:
  """Returns the inputs' part of the gates, and the recurrent weights.

  It must be called in a method of the module that owns the parameters. The
  candidate is one of the gates. Without `b_init` there are no biases.

  Returns:
    Gates [..., num_gates * hidden_size] and the weights
    [hidden_size, num_gates * hidden_size].
  """
  num_inputs, num_outputs = inputs.shape[-1], num_gates * hidden_size
  w_init = hk.initializers.TruncatedNormal(
    1.0 / math.sqrt(num_inputs + hidden_size)
  )
  w_i = hk.get_parameter('w_i', (num_inputs, num_outputs), init=w_init)
  w_h = hk.get_parameter('w_h', (hidden_size, num_outputs), init=w_init)
  gates = recurrence.dot(inputs, w_i)  # [..., num_gates * hidden_size]
  if b_init is None:
    return gates, w_h
  b = hk.get_parameter('b', (num_outputs,), init=b_init)
  return gates + jnp.broadcast_to(b, gates.shape), w_h


def lstm_cell(
  gates: types.Array,
  cell: types.Array,
  forget_bias: float = 0.0,
  weights: types.Array | None = None,
) -> LSTMState:
  """Computes the new state of an LSTM from its gates.

  Equations of Jozefowicz et al., 2015, section 2.

  Args:
    gates: float32 [B, 4 * hidden_size], before their nonlinearities.
    cell: float32 [B, hidden_size], before the step.
    forget_bias: added to the forget gate, unless `gates` include it.
    weights: float32 [B, hidden_size], weights of the candidates; None for one.

  Raises:
    ValueError: if an argument does not have this shape.
  """
  _check_cell('lstm_cell', gates, cell, weights)
  i, g, f, o = jnp.split(gates, 4, axis=-1)  # [B, hidden_size] each
  cell = jax.nn.sigmoid(f + forget_bias) * cell
  candidate = jnp.tanh(g) if weights is None else weights * jnp.tanh(g)
  cell = cell + jax.nn.sigmoid(i) * candidate
  return LSTMState(hidden=jax.nn.sigmoid(o) * jnp.tanh(cell), cell=cell)


def layer_norm_lstm_cell(
  gates: types.Array,
  cell: types.Array,
  gain: types.Array,
  shift: types.Array,
  forget_bias: float = 1.0,
  weights: types.Array | None = None,
) -> LSTMState:
  """Computes the new state of an LSTM whose gates and cell are normalized.

  The cell of TensorFlow's `LayerNormBasicLSTMCell`, where LN normalizes over
  the units and w are `weights`:

    i, g, f, o = LN of each gate
    c_t = LN(sigmoid(f + forget_bias) c_{t-1} + sigmoid(i) w tanh(g))
    h_t = sigmoid(o) tanh(c_t)

  Args:
    gates: float32 [B, 4 * hidden_size], before norms and nonlinearities.
    cell: float32 [B, hidden_size], normalized, before the step.
    gain: float32 [5, hidden_size], scales of the four norms of the gates, in
      their order, and of the cell's.
    shift: float32 [5, hidden_size], shifts of the same norms.
    forget_bias: added to the normalized forget gate.
    weights: see `lstm_cell`.

  Raises:
    ValueError: if an argument does not have this shape.
  """
  _check_cell('layer_norm_lstm_cell', gates, cell, weights)
  shapes.check(
    'layer_norm_lstm_cell',
    cell=(cell, '... hidden_size'),
    gain=(gain, '5 hidden_size'),
    shift=(shift, '5 hidden_size'),
  )
  parts = gates.reshape(-1, 4, cell.shape[-1])  # [B, 4, hidden_size]
  parts = _normalize(parts, gain[:4], shift[:4])
  i, g, f, o = jnp.moveaxis(parts, 1, 0)  # [B, hidden_size] each
  candidate = jnp.tanh(g) if weights is None else weights * jnp.tanh(g)
  cell = jax.nn.sigmoid(f + forget_bias) * cell + jax.nn.sigmoid(i) * candidate
  cell = _normalize(cell, gain[4], shift[4])
  return LSTMState(hidden=jax.nn.sigmoid(o) * jnp.tanh(cell), cell=cell)


def _check_cell(
  function: str,
  gates: types.Array,
  cell: types.Array,
  weights: types.Array | None,
) -> None:
  """Raises a ValueError unless gates, cell and weights are of one batch."""
  shapes.check(
    function,
    cell=(cell, '... hidden_size'),
    gates=(gates, f'... {4 * jnp.shape(cell)[-1]}'),
    weights=(cell if weights is None else weights, '... hidden_size'),
  )


def _normalize(
  x: types.Array, gain: types.Array, shift: types.Array
) -> types.Array:
  """Normalizes [B, ..., hidden_size] over the last axis, as TensorFlow does."""
  centered = x - jnp.mean(x, axis=-1, keepdims=True)
  variance = jnp.mean(jnp.square(centered), axis=-1, keepdims=True)
  # Equal numbers, such as the gates of zero inputs, would have gradients of
  # 1e6 from TensorFlow's small epsilon alone; here they have none.
  is_constant = variance == 0.0
  root = jax.lax.rsqrt(jnp.where(is_constant, 1.0, variance) + 1e-12)
  scale = jnp.where(is_constant, 0.0, root) * jnp.broadcast_to(gain, x.shape)
  return centered * scale + jnp.broadcast_to(shift, x.shape)


def _gru_step(
  w_h: types.Array, gates: types.Array, state: types.Array
) -> types.Array:
  """Does one step, given the inputs' part of the gates, [B, 3 H].

  Equations of Cho et al., 2014, section 2.3, where the update gate `z` weights
  the candidate. `H` is the number of units.
  """
  hidden_size = state.shape[-1]
  # Two products, since the candidate's needs the reset gate first.
  w_zr, w_a = jnp.split(w_h, [2 * hidden_size], axis=-1)
  zr, a = jnp.split(gates, [2 * hidden_size], axis=-1)  # [B, 2 H], [B, H]
  z, r = jnp.split(jax.nn.sigmoid(zr + jnp.dot(state, w_zr)), 2, axis=-1)
  a = jnp.tanh(a + jnp.dot(r * state, w_a))
  return (1.0 - z) * state + z * a
