"""Differentiable neural computer: a controller with an external memory.

Graves et al., "Hybrid computing using a neural network with dynamic external
memory", Nature 538:471, 2016. At every step the controller sees the input and
the last words read. Its output drives the write and the reads of the memory,
and is combined with the words read into the output of the core.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import haiku as hk
import jax.numpy as jnp

from ftwax import parts, registry, types
from ftwax.networks import core_parts, recurrence, recurrent_cores
from ftwax.networks.dnc import (
  controllers,
  interfaces,
  memory_access,
  memory_state,
)


class DNCState(NamedTuple):
  """State of a differentiable neural computer.

  Attributes:
    controller: state of the controller.
    memory: state of the memory.
  """

  controller: Any
  memory: memory_state.MemoryState


class _StepOutput(NamedTuple):
  """Output of a step, from which the features are computed.

  Attributes:
    hidden: float32 [..., B, hidden_size], the controller's output.
    words: float32 [..., B, num_reads * word_size].
    auxiliary: the memory's auxiliary outputs, leaves [..., B, ...].
  """

  hidden: types.Array
  words: types.Array
  auxiliary: Mapping[str, types.Array]


@registry.register('core.dnc')
@dataclasses.dataclass(frozen=True)
class DNC(core_parts.SizedCore):
  """A differentiable neural computer: an LSTM and a memory.

  Attributes:
    hidden_size: units of the LSTM.
    memory: sizes and options of the memory.
    output_size: number of features, a projection of the LSTM's output and the
      words read; None returns both without projection.
    clip_value: magnitude to which the LSTM's output and the features are
      clipped; None for no clipping.
  """

  memory: interfaces.Memory = interfaces.Memory()  # noqa: RUF009
  output_size: int | None = parts.option(64, low=1)
  clip_value: float | None = parts.option(None, above=0)

  def make(self, name: str | None = None) -> recurrence.RecurrentCore:
    """Makes the core; call within a Haiku transform."""
    return ControlledMemory(self, name=name or 'dnc')


class ControlledMemory(hk.Module):
  """A controller with an external memory: the module of `DNC`."""

  def __init__(
    self,
    config: DNC,
    make_controller: Callable[[], controllers.Controller] | None = None,
    name: str | None = None,
  ):
    """Makes the core.

    Args:
      config: sizes and options.
      make_controller: makes the controller; an LSTM by default. For any other
        recurrent core, use `controllers.CoreController`.
      name: name of the module.
    """
    super().__init__(name)
    self._config = config
    if make_controller is None:
      self._controller: controllers.Controller = recurrent_cores.LSTMController(
        config.hidden_size
      )
    else:
      self._controller = make_controller()
    self._memory = memory_access.MemoryAccess(config.memory)
    if config.output_size is not None:
      self._output = hk.Linear(config.output_size, name='output')

  def initial_state(self, batch_size: int) -> DNCState:
    """Returns the zero state."""
    return DNCState(
      controller=self._controller.initial_state(batch_size),
      memory=self._memory.initial_state(batch_size),
    )

  def __call__(
    self,
    inputs: types.Array,
    state: DNCState,
  ) -> tuple[recurrence.CoreOutput, DNCState]:
    """Does one step on inputs [B, num_inputs]."""
    step, prepared = self._prepare(inputs)
    outputs, state = self._memory.step(step, prepared, state)
    return self._make_output(outputs), state

  def unroll(
    self,
    inputs: types.Array,
    start: types.Array,
    state: DNCState,
  ) -> tuple[recurrence.CoreOutput, DNCState]:
    """Does `T` steps on inputs [T, B, num_inputs]."""
    step, prepared = self._prepare(inputs)
    # The features are not fed back, so their projection is outside the loop.
    outputs, state = self._memory.unroll(step, prepared, start, state)
    return self._make_output(outputs), state

  def _prepare(
    self, inputs: types.Array
  ) -> tuple[Callable[[Any, DNCState], tuple[_StepOutput, DNCState]], Any]:
    """Returns one step and its prepared inputs, from [..., num_inputs]."""
    control, prepared = self._controller.prepare(inputs, self._memory.num_words)
    access, taps = self._memory.prepare(
      self._config.hidden_size, inputs.shape[:-1]
    )

    def step(
      prepared: tuple[Any, Any], state: DNCState
    ) -> tuple[_StepOutput, DNCState]:
      prepared, tap = prepared
      words = memory_state.join_words(state.memory)
      hidden, controller = control(prepared, [words], state.controller)
      _check_hidden_size(hidden, self._config.hidden_size)
      hidden = clip(hidden, self._config.clip_value)
      words, memory = access(hidden, tap, state.memory)
      output = _StepOutput(hidden, words, self._memory.auxiliary(memory))
      return output, DNCState(controller, memory)

    return step, (prepared, taps)

  def _make_output(self, outputs: _StepOutput) -> recurrence.CoreOutput:
    """Computes the features of all steps at once, leaves [..., B, ...]."""
    # [..., B, hidden_size + num_words]
    features = jnp.concatenate([outputs.hidden, outputs.words], axis=-1)
    if self._config.output_size is not None:
      features = self._output(features)
    return recurrence.CoreOutput(
      features=clip(features, self._config.clip_value),
      auxiliary=outputs.auxiliary,
    )


def _check_hidden_size(hidden: types.Array, hidden_size: int) -> None:
  if hidden.shape[-1] != hidden_size:
    raise ValueError(
      f'hidden_size ({hidden_size}) of a DNC must be the size of its'
      f" controller's output ({hidden.shape[-1]}); choose"
      f' hidden_size={hidden.shape[-1]}.'
    )


def clip(x: types.Array, bound: float | None) -> types.Array:
  """Clips `x` to [-bound, bound]; returns it unchanged if the bound is None."""
  return x if bound is None else jnp.clip(x, -bound, bound)
