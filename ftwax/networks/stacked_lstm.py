"""Stacked LSTM with skip connections, as in the NAV A3C agent.

Mirowski et al., "Learning to navigate in complex environments", 2017
(arXiv:1611.03673), figure 2: the first LSTM sees the visual features and the
previous reward; the second sees the first one's output, the visual features
again (the skip), the velocity and the previous action. Policy and value use the
output of the second one.

A core's inputs are one vector, whose parts have the order of
`embeddings.InputEmbedding`: observation, previous action, previous reward.
`StackedLSTMConfig.wiring` determines which of them each layer sees.
"""

import dataclasses
from collections.abc import Callable

import haiku as hk
import jax.numpy as jnp

from ftwax import types
from ftwax.networks import recurrence, recurrent_cores


@dataclasses.dataclass(frozen=True)
class StackedLSTMConfig:
  """Sizes and wiring of stacked LSTMs.

  Attributes:
    hidden_sizes: units of each layer.
    input_sizes: sizes of the parts of the input vector, which they sum to.
    wiring: for each layer, the indices of the parts that it sees in addition to
      the layer below; by default every layer sees all parts.
  """

  hidden_sizes: tuple[int, ...] = (64, 256)
  input_sizes: tuple[int, ...] = ()
  wiring: tuple[tuple[int, ...], ...] = ()

  def __post_init__(self) -> None:
    """Checks that the wiring fits the sizes."""
    if not self.hidden_sizes or min(self.hidden_sizes) < 1:
      raise ValueError(
        f'hidden_sizes ({self.hidden_sizes}) of stacked LSTMs must have at'
        ' least one layer of at least one unit; choose hidden_sizes=(64, 256).'
      )
    if not self.wiring:
      return
    if len(self.wiring) != len(self.hidden_sizes):
      raise ValueError(
        f'wiring ({self.wiring}) must have one entry for each of the'
        f' {len(self.hidden_sizes)} layers; list the parts that each layer'
        ' sees.'
      )
    for parts in self.wiring:
      if not all(0 <= part < len(self.input_sizes) for part in parts):
        raise ValueError(
          f'wiring ({self.wiring}) must name parts from 0 to'
          f' {len(self.input_sizes) - 1}, the parts of input_sizes'
          f' ({self.input_sizes}); leave the others out.'
        )


class StackedLSTM(hk.Module):
  """LSTMs on top of each other; the state is a tuple of their states.

  Features are the outputs of the last layer. The auxiliary output `layers`
  holds the outputs of all layers, for agents whose policy uses another layer.
  """

  def __init__(
    self,
    config: StackedLSTMConfig,
    make_layer: Callable[..., recurrence.RecurrentCore] = recurrent_cores.LSTM,
    name: str | None = None,
  ):
    """Makes the layers.

    Args:
      config: sizes and wiring.
      make_layer: `(hidden_size, name=...) -> core`.
      name: name of the module.
    """
    super().__init__(name)
    self._config = config
    self._layers = [
      make_layer(hidden_size, name=f'layer_{index}')
      for index, hidden_size in enumerate(config.hidden_sizes)
    ]

  def initial_state(self, batch_size: int) -> tuple[types.RecurrentState, ...]:
    """Returns the zero state of each layer."""
    return tuple(layer.initial_state(batch_size) for layer in self._layers)

  def __call__(
    self,
    inputs: types.Array,
    state: tuple[types.RecurrentState, ...],
    hyperparameters: types.Hyperparameters | None = None,
  ) -> tuple[recurrence.CoreOutput, tuple[types.RecurrentState, ...]]:
    """Does one step on inputs [B, num_inputs]."""
    return self._apply_layers(
      lambda layer, x, state: layer(x, state, hyperparameters), inputs, state
    )

  def unroll(
    self,
    inputs: types.Array,
    start: types.Array,
    state: tuple[types.RecurrentState, ...],
    hyperparameters: types.Hyperparameters | None = None,
  ) -> tuple[recurrence.CoreOutput, tuple[types.RecurrentState, ...]]:
    """Does `T` steps on inputs [T, B, num_inputs], layer by layer."""
    return self._apply_layers(
      lambda layer, x, state: layer.unroll(x, start, state, hyperparameters),
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
    config = self._config
    if not config.wiring:
      return [inputs]
    if sum(config.input_sizes) != inputs.shape[-1]:
      raise ValueError(
        f'input_sizes ({config.input_sizes}) of stacked LSTMs must add up to'
        f' the number of inputs ({inputs.shape[-1]}); give the sizes of'
        ' observation features, previous action and previous reward.'
      )
    stops = [
      sum(config.input_sizes[: i + 1]) for i in range(len(config.input_sizes))
    ]
    parts = jnp.split(inputs, stops[:-1], axis=-1)
    return [parts[part] for part in config.wiring[index]]
