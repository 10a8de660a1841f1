"""Stacked LSTM with skip connections, as in the NAV A3C agent.

Mirowski et al., "Learning to navigate in complex environments", 2017
(arXiv:1611.03673), figure 2: the first LSTM sees the visual features and the
previous reward; the second sees the first one's output, the visual features
again (the skip), the velocity and the previous action. Policy and value use the
output of the second one, unless `heads.Heads` chooses others. Layers may be any
core.

A core's inputs are one vector, whose parts have the order of
`embeddings.InputEmbedding`: observation, previous action, previous reward.
`wiring` determines which of them each layer sees.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence

import haiku as hk
import jax.numpy as jnp

from ftwax import parts, registry, types
from ftwax.networks import core_parts, recurrence, recurrent_cores


@registry.register('core.stacked_lstm')
@dataclasses.dataclass(frozen=True)
class StackedLSTM(core_parts.Core):
  """Cores on top of each other, LSTMs by default.

  Attributes:
    hidden_sizes: units of each layer, the lowest first.
    wiring: for each layer, the parts of the input that it reads in addition to
      the layer below: paths of observation entries, `previous_action` or
      `previous_reward`. If empty, each layer reads all.
    layer: the core of all layers, but for its size: any with one size.
    input_sizes: sizes of the parts of the input by name, which agents set.
  """

  hidden_sizes: tuple[int, ...] = parts.option((64, 256), low=1)
  wiring: tuple[tuple[str, ...], ...] = ()
  layer: core_parts.SizedCore = recurrent_cores.LSTM()  # noqa: RUF009
  input_sizes: Mapping[str, int] = dataclasses.field(default_factory=dict)

  def __post_init__(self) -> None:
    """Checks the sizes and the layer."""
    super().__post_init__()
    core_parts.check_sized('layer', self)
    for size in self.hidden_sizes:
      self.layer.with_size(size)

  def make(self, name: str | None = None) -> recurrence.RecurrentCore:
    """Makes the core; call within a Haiku transform.

    Raises:
      ValueError: if the wiring names parts that the input lacks.
    """
    names = list(self.input_sizes)
    wired = {part for below in self.wiring for part in below}
    if unknown := wired - set(names):
      raise ValueError(
        f'wiring ({self.wiring}) must name parts of the input, and'
        f' {sorted(unknown)} are not among them; choose from {names}.'
      )
    return _StackedLSTM(
      self.hidden_sizes,
      tuple(self.input_sizes.values()),
      [tuple(map(names.index, part)) for part in self.wiring],
      lambda size, name: self.layer.with_size(size).make(name),
      name or 'stacked_lstm',
    )

  def wire(
    self, make_sizes: Callable[[], Mapping[str, int]]
  ) -> core_parts.Core:
    """Returns a copy that knows the parts of the input, if it is wired."""
    return self.replace(input_sizes=make_sizes()) if self.wiring else self

  def with_size(self, size: int) -> 'StackedLSTM':
    """Returns a copy with `size` units in each layer."""
    return self.replace(hidden_sizes=(size,) * len(self.hidden_sizes))


class _StackedLSTM(hk.Module):
  """Cores on top of each other; the state is a tuple of their states.

  Features are the outputs of the last layer. The auxiliary output `layers`
  holds the outputs of all layers; `heads.Heads` chooses which one each reads.
  """

  def __init__(
    self,
    hidden_sizes: Sequence[int],
    input_sizes: Sequence[int],
    wiring: Sequence[Sequence[int]],
    make_layer: Callable[[int, str], recurrence.RecurrentCore],
    name: str,
  ):
    """Makes the layers.

    Args:
      hidden_sizes: units of each layer.
      input_sizes: sizes of the parts of the input vector, which they sum to.
      wiring: for each layer, the indices of the parts that it sees in addition
        to the layer below; by default every layer sees all parts.
      make_layer: `(hidden_size, name) -> core`.
      name: name of the module.

    Raises:
      ValueError: if the wiring does not have an entry for each layer.
    """
    super().__init__(name)
    if wiring and len(wiring) != len(hidden_sizes):
      raise ValueError(
        f'wiring ({wiring}) must have one entry for each of the'
        f' {len(hidden_sizes)} layers; list the parts that each layer sees.'
      )
    self._input_sizes, self._wiring = input_sizes, wiring
    self._layers = [
      make_layer(hidden_size, f'layer_{index}')
      for index, hidden_size in enumerate(hidden_sizes)
    ]

  def initial_state(self, batch_size: int) -> tuple[types.RecurrentState, ...]:
    """Returns the zero state of each layer."""
    return tuple(layer.initial_state(batch_size) for layer in self._layers)

  def __call__(
    self,
    inputs: types.Array,
    state: tuple[types.RecurrentState, ...],
  ) -> tuple[recurrence.CoreOutput, tuple[types.RecurrentState, ...]]:
    """Does one step on inputs [B, num_inputs]."""
    return self._apply_layers(
      lambda layer, x, state: layer(x, state), inputs, state
    )

  def unroll(
    self,
    inputs: types.Array,
    start: types.Array,
    state: tuple[types.RecurrentState, ...],
  ) -> tuple[recurrence.CoreOutput, tuple[types.RecurrentState, ...]]:
    """Does `T` steps on inputs [T, B, num_inputs], layer by layer."""
    return self._apply_layers(
      lambda layer, x, state: layer.unroll(x, start, state),
      inputs,
      state,
    )

  def _apply_layers(
    self,
    apply: Callable[..., tuple[recurrence.CoreOutput, types.RecurrentState]],
    inputs: types.Array,
    state: tuple[types.RecurrentState, ...],
  ) -> tuple[recurrence.CoreOutput, tuple[types.RecurrentState, ...]]:
    """Applies each layer to its inputs, leaves [..., B, ...]."""
    below: list[types.Array] = []
    outputs, new_state = [], []
    for index, layer in enumerate(self._layers):
      # [..., B, num_parts + num_below], of the parts and of the layer below.
      x = jnp.concatenate(self._parts(inputs, index) + below, axis=-1)
      output, layer_state = apply(layer, x, state[index])
      below = [output.features]
      outputs.append(output.features)
      new_state.append(layer_state)
    return (
      recurrence.CoreOutput(outputs[-1], {'layers': tuple(outputs)}),
      tuple(new_state),
    )

  def _parts(self, inputs: types.Array, index: int) -> list[types.Array]:
    """Returns the parts of the inputs that a layer sees."""
    sizes = self._input_sizes
    if not self._wiring:
      return [inputs]
    if sum(sizes) != inputs.shape[-1]:
      raise ValueError(
        f'input_sizes ({sizes}) of stacked LSTMs must add up to'
        f' the number of inputs ({inputs.shape[-1]}); give the sizes of'
        ' observation features, previous action and previous reward.'
      )
    stops = [sum(sizes[: i + 1]) for i in range(len(sizes))]
    parts = jnp.split(inputs, stops[:-1], axis=-1)
    return [parts[part] for part in self._wiring[index]]
