"""A core with a linear recurrence, parallel in time: LRU or minGRU.

LRU: Orvieto et al., 2023 (arXiv:2303.06349), a diagonal complex recurrence with
constant decays. minGRU: Feng et al., 2024 (arXiv:2410.01201), whose gate
depends on the inputs, but not on the state.

Units start with time scales from a hundredth of `memory_length` to all of it,
uniform in their logarithms: after a time scale, 1 / e of a memory is left.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import haiku as hk
import jax
import jax.numpy as jnp

from ftwax import parts, registry, types
from ftwax.networks import associative, core_parts, recurrence

# Largest angle by which a unit of an LRU first rotates in a step; the paper
# lowers it for long sequences (appendix B).
_MAX_PHASE = math.pi / 10


@dataclasses.dataclass(frozen=True)
class _Linear(core_parts.SizedCore):
  """Base of the cores with a linear recurrence, parallel in time.

  Attributes:
    hidden_size: size of the features, and number of units of each block.
    num_layers: number of blocks.
    memory_length: the longest time scale at first, in steps.
  """

  num_layers: int = parts.option(1, low=1, high=parts.MAX_UNROLLED)
  memory_length: int = parts.option(1000, low=1)


@registry.register('core.lru')
@dataclasses.dataclass(frozen=True)
class LRU(_Linear):
  """Linear recurrent unit, a pair of units for a number."""

  def __post_init__(self) -> None:
    """Checks the numbers."""
    super().__post_init__()
    if self.hidden_size % 2:
      raise ValueError(
        f'hidden_size ({self.hidden_size}) of an LRU must be even, since its'
        ' units are the two parts of complex numbers; choose'
        f' {self.hidden_size + 1}.'
      )

  def make(self, name: str | None = None) -> recurrence.RecurrentCore:
    """Makes the core; call within a Haiku transform."""
    return _LinearCore(self, _LRU, 'lru', name)


@registry.register('core.min_gru')
@dataclasses.dataclass(frozen=True)
class MinGRU(_Linear):
  """A GRU whose gate depends on the inputs alone."""

  def make(self, name: str | None = None) -> recurrence.RecurrentCore:
    """Makes the core; call within a Haiku transform."""
    return _LinearCore(self, _MinGRU, 'min_gru', name)


class _LinearCore(hk.Module):
  """Residual blocks around linear recurrences; features are normalized.

  A block normalizes its inputs, does the recurrence, and adds the gated result
  to its inputs (Smith et al., 2023, arXiv:2208.04933, appendix G). The first
  one takes them as they are: a cue among noise stands out by its size. The
  state is a tuple with an entry for each block.
  """

  def __init__(
    self,
    config: _Linear,
    make: Callable[..., Any],
    kind: str,
    name: str | None = None,
  ):
    """Makes the blocks.

    Args:
      config: sizes.
      make: makes the recurrence of a block.
      kind: its name.
      name: name of the module.
    """
    super().__init__(name or 'linear_core')
    size, layers = config.hidden_size, range(config.num_layers)
    self._encoder = recurrence.FlatLinear(size, name='encoder')
    self._norms: list[Callable[[types.Array], types.Array]] = [
      lambda x: x,
      *(hk.LayerNorm(-1, True, True, name='norm') for _ in layers[1:]),
    ]
    self._recurrences = [make(config, name=kind) for _ in layers]
    self._gates = [recurrence.FlatLinear(2 * size, name='gate') for _ in layers]
    self._output_norm = hk.LayerNorm(-1, True, True, name='output_norm')

  def initial_state(self, batch_size: int) -> tuple[Any, ...]:
    """Returns the zero state."""
    return tuple(block.initial_state(batch_size) for block in self._recurrences)

  def __call__(
    self,
    inputs: types.Array,
    state: tuple[Any, ...],
  ) -> tuple[recurrence.CoreOutput, tuple[Any, ...]]:
    """Does one step on inputs [B, num_inputs]."""
    return self._apply(
      inputs, state, lambda step, hidden: step.scale * hidden + step.shift
    )

  def unroll(
    self,
    inputs: types.Array,
    start: types.Array,
    state: tuple[Any, ...],
  ) -> tuple[recurrence.CoreOutput, tuple[Any, ...]]:
    """Does `T` steps on inputs [T, B, num_inputs]."""

    def advance(steps: associative.Affine, hidden: types.Array) -> types.Array:
      before = associative.Affine(jnp.ones_like(hidden), hidden)
      return associative.unroll(
        associative.combine_affine, steps, start, before
      ).shift

    output, states = self._apply(inputs, state, advance)
    return output, jax.tree.map(lambda leaf: leaf[-1], states)

  def _apply(
    self,
    inputs: types.Array,
    state: tuple[Any, ...],
    advance: Callable[[associative.Affine, types.Array], types.Array],
  ) -> tuple[recurrence.CoreOutput, tuple[Any, ...]]:
    """Applies the blocks; returns the states after each step of `inputs`."""
    x, states = self._encoder(inputs), []  # [..., hidden_size]
    for normalize, block, gate, before in zip(
      self._norms, self._recurrences, self._gates, state, strict=True
    ):
      normalized = normalize(x)
      hidden = advance(block.steps(normalized), block.unpack(before))
      states.append(block.pack(hidden))
      outputs = jax.nn.gelu(block.read(hidden, normalized))
      outputs, logits = jnp.split(gate(outputs), 2, axis=-1)
      x = x + outputs * jax.nn.sigmoid(logits)
    return recurrence.CoreOutput(self._output_norm(x), auxiliary={}), tuple(
      states
    )


class ComplexState(NamedTuple):
  """Complex numbers, stored as reals, which every format can hold.

  Attributes:
    real: float32 [B, num_units].
    imaginary: float32 [B, num_units].
  """

  real: types.Array
  imaginary: types.Array


class _LRU(hk.Module):
  """A diagonal complex recurrence; equations 5 to 9 of the paper."""

  def __init__(self, config: _Linear, name: str | None = None):
    super().__init__(name)
    self._config = config
    self._num_units = config.hidden_size // 2

  def initial_state(self, batch_size: int) -> ComplexState:
    """Returns the zero state."""
    shape = (batch_size, self._num_units)
    return ComplexState(jnp.zeros(shape), jnp.zeros(shape))

  def pack(self, hidden: types.Array) -> ComplexState:
    """Returns the state that stores `hidden`, [..., num_units]."""
    return ComplexState(jnp.real(hidden), jnp.imag(hidden))

  def unpack(self, state: Any) -> types.Array:
    """Returns what `pack` stored."""
    return jax.lax.complex(state.real, state.imaginary)

  def steps(self, inputs: types.Array) -> associative.Affine:
    """Returns the step of each of the inputs [..., num_inputs].

    Only the shifts of the complex64 steps depend on the inputs.
    """
    size, num_inputs = self._num_units, inputs.shape[-1]
    # Logarithms of the decay rate and of the angle, so that both stay positive.
    log_rate = hk.get_parameter(
      'log_rate', (size,), init=_log_rates(self._config.memory_length)
    )
    log_phase = hk.get_parameter('log_phase', (size,), init=_init_log_phase)
    w_init = hk.initializers.RandomNormal(1.0 / math.sqrt(2 * num_inputs))
    w = hk.get_parameter('w_i', (num_inputs, 2 * size), init=w_init)
    rate = jnp.exp(log_rate)
    scale = jnp.exp(jax.lax.complex(-rate, jnp.exp(log_phase)))
    # White inputs then give states whose variance is that of the inputs.
    gamma = jnp.tile(jnp.sqrt(-jnp.expm1(-2.0 * rate)), 2)
    # [..., 2 * size], the real and then the imaginary parts.
    parts = recurrence.dot(inputs, w * jnp.broadcast_to(gamma, w.shape))
    shift = jax.lax.complex(*jnp.split(parts, 2, axis=-1))
    return associative.Affine(jnp.broadcast_to(scale, shift.shape), shift)

  def read(self, hidden: types.Array, inputs: types.Array) -> types.Array:
    """Returns outputs [..., hidden_size] of the steps on `inputs`.

    They are the real part of a projection, plus the scaled inputs.
    """
    size = self._config.hidden_size
    w_init = hk.initializers.RandomNormal(1.0 / math.sqrt(self._num_units))
    w = hk.get_parameter('w_o', (2 * self._num_units, size), init=w_init)
    d = hk.get_parameter('d', (size,), init=hk.initializers.RandomNormal())
    parts = jnp.concatenate([jnp.real(hidden), jnp.imag(hidden)], axis=-1)
    return recurrence.dot(parts, w) + jnp.broadcast_to(d, inputs.shape) * inputs


class _MinGRU(hk.Module):
  """A gated recurrence; section 3.1 of the paper."""

  def __init__(self, config: _Linear, name: str | None = None):
    super().__init__(name)
    self._config = config

  def initial_state(self, batch_size: int) -> types.Array:
    return jnp.zeros((batch_size, self._config.hidden_size))

  def pack(self, hidden: types.Array) -> types.Array:
    return hidden

  def unpack(self, state: types.Array) -> types.Array:
    return state

  def steps(self, inputs: types.Array) -> associative.Affine:
    """Returns steps to a mean of state and candidate, weighted by the gate."""
    size, num_inputs = self._config.hidden_size, inputs.shape[-1]
    w_init = hk.initializers.TruncatedNormal(1.0 / math.sqrt(num_inputs))
    w = hk.get_parameter('w_i', (num_inputs, 2 * size), init=w_init)
    # A gate is about its rate as long as that is far below one.
    gate_bias = hk.get_parameter(
      'gate_bias', (size,), init=_log_rates(self._config.memory_length)
    )
    b = hk.get_parameter('b', (size,), init=jnp.zeros)
    gate, candidate = jnp.split(recurrence.dot(inputs, w), 2, axis=-1)
    gate = jax.nn.sigmoid(gate + jnp.broadcast_to(gate_bias, gate.shape))
    candidate += jnp.broadcast_to(b, gate.shape)
    return associative.Affine(1.0 - gate, gate * candidate)

  def read(self, hidden: types.Array, inputs: types.Array) -> types.Array:
    del inputs
    return hidden


def _log_rates(memory_length: int) -> hk.initializers.Initializer:
  """Draws logarithms of rates whose inverses reach to `memory_length`."""
  shortest = max(memory_length / 100, 1.0)
  return hk.initializers.RandomUniform(
    -math.log(memory_length), -math.log(shortest)
  )


def _init_log_phase(shape: Sequence[int], dtype: Any) -> types.Array:
  # Uniform angles, none of which is zero.
  uniform = hk.initializers.RandomUniform(1e-4, _MAX_PHASE)
  return jnp.log(uniform(shape, dtype))
