"""Gated transformer with a cached window (GTrXL) as a recurrent core.

Parisotto et al., 2019 (arXiv:1910.06764): layer norm before each submodule,
gates like a GRU's instead of sums, and the relative positions of Transformer-XL
(Dai et al., 2019, arXiv:1901.02860). A step attends to itself and to the
`window` steps before it. These are cached, so that the state has a fixed shape,
and an unroll equals steps at any T; gradients stay within an unroll.
"""

import dataclasses
from typing import NamedTuple

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np

from ftwax import parts, registry, types
from ftwax.networks import core_parts, recurrence

# Bias of the gates, with which a layer first passes on most of its inputs.
_GATE_BIAS = 2.0

# Logits of steps that must not be attended to.
_MASKED = -1e9


class GTrXLState(NamedTuple):
  """State of a gated transformer.

  Attributes:
    cache: float32 [B, num_layers, window, hidden_size], inputs of each layer in
      the last steps, the latest last; zero where there was no step.
    num_steps: int32 [B], number of steps in the cache.
  """

  cache: types.Array
  num_steps: types.Array


@registry.register('core.gtrxl')
@dataclasses.dataclass(frozen=True)
class GTrXL(core_parts.SizedCore):
  """A gated transformer; features are the normalized outputs.

  Attributes:
    hidden_size: features of a step, a multiple of twice `num_heads`.
    num_layers: number of layers; a step sees up to `num_layers * window` back.
    num_heads: heads of attention of each layer.
    window: number of steps before the current one that a layer attends to.
  """

  num_layers: int = parts.option(1, low=1, high=parts.MAX_UNROLLED)
  num_heads: int = parts.option(4, low=1, high=parts.MAX_UNROLLED)
  window: int = parts.option(128, low=1, high=2**16)

  def __post_init__(self) -> None:
    """Checks the numbers."""
    super().__post_init__()
    if self.hidden_size % (2 * self.num_heads):
      raise ValueError(
        f'hidden_size ({self.hidden_size}) of a gated transformer must be a'
        f' multiple of twice num_heads ({self.num_heads}), which share it;'
        f' choose {16 * self.num_heads}.'
      )

  @property
  def reach(self) -> int | None:
    """Steps that it sees back: a window in each layer."""
    return self.num_layers * self.window

  def make(self, name: str | None = None) -> recurrence.RecurrentCore:
    """Makes the core; call within a Haiku transform."""
    return _GTrXL(self, name or 'g_tr_xl')


class _GTrXL(hk.Module):
  """The module of `GTrXL`."""

  def __init__(self, config: GTrXL, name: str):
    super().__init__(name)
    self._config = config
    self._encoder = recurrence.FlatLinear(config.hidden_size, name='encoder')
    self._layers = [
      _Layer(config, name=f'layer_{index}')
      for index in range(config.num_layers)
    ]
    self._norm = hk.LayerNorm(-1, True, True, name='norm')

  def initial_state(self, batch_size: int) -> GTrXLState:
    """Returns the zero state."""
    config = self._config
    shape = (batch_size, config.num_layers, config.window, config.hidden_size)
    return GTrXLState(jnp.zeros(shape), jnp.zeros((batch_size,), jnp.int32))

  def __call__(
    self,
    inputs: types.Array,
    state: GTrXLState,
  ) -> tuple[recurrence.CoreOutput, GTrXLState]:
    """Does one step on inputs [B, num_inputs]."""
    start = jnp.zeros((1, inputs.shape[0]), bool)
    output, state = self.unroll(inputs[None], start, state)
    return output._replace(features=output.features[0]), state

  def unroll(
    self,
    inputs: types.Array,
    start: types.Array,
    state: GTrXLState,
  ) -> tuple[recurrence.CoreOutput, GTrXLState]:
    """Does `T` steps on inputs [T, B, num_inputs]."""
    window, num_steps = self._config.window, inputs.shape[0]
    # Episodes by number, [B, window + T]; the cache is part of the first one.
    is_cached = jnp.arange(window)[None] >= window - state.num_steps[:, None]
    episode = jnp.concatenate(
      [jnp.where(is_cached, 0, -1), jnp.cumsum(start.T, axis=1)], axis=1
    )
    # [T, window + T]
    distance = window + jnp.arange(num_steps)[:, None]
    distance = distance - jnp.arange(window + num_steps)[None]
    attends = (distance >= 0) & (distance <= window)
    attends = attends[None] & (episode[:, window:, None] == episode[:, None])
    x = jnp.swapaxes(self._encoder(inputs), 0, 1)  # [B, T, hidden_size]
    remains = episode[:, num_steps:] == episode[:, -1:]  # [B, window]
    caches = []
    for index, layer in enumerate(self._layers):
      context = jnp.concatenate([state.cache[:, index], x], axis=1)
      caches.append(jnp.where(remains[..., None], context[:, num_steps:], 0.0))
      x = layer(x, context, attends)
    state = GTrXLState(
      jnp.stack(caches, axis=1), jnp.sum(remains, axis=1, dtype=jnp.int32)
    )
    features = jnp.swapaxes(self._norm(x), 0, 1)
    return recurrence.CoreOutput(features, auxiliary={}), state


class _Layer(hk.Module):
  """Attention and a perceptron, each normalized before and gated after."""

  def __init__(self, config: GTrXL, name: str):
    super().__init__(name)
    self._config = config
    size = config.hidden_size
    self._norms = [
      hk.LayerNorm(-1, True, True, name=f'norm_{part}')
      for part in ('attention', 'mlp')
    ]
    self._query = recurrence.FlatLinear(size, with_bias=False, name='query')
    self._key_value = recurrence.FlatLinear(
      2 * size, with_bias=False, name='key_value'
    )
    self._position = recurrence.FlatLinear(
      size, with_bias=False, name='position'
    )
    self._output = recurrence.FlatLinear(size, name='output')
    self._mlp = hk.nets.MLP((size, size), activate_final=True, name='mlp')
    self._gates = [
      _Gate(size, name=f'gate_{part}') for part in ('attention', 'mlp')
    ]

  def __call__(
    self, x: types.Array, context: types.Array, attends: types.Array
  ) -> types.Array:
    """Returns the layer's outputs [B, T, hidden_size].

    Args:
      x: [B, T, hidden_size].
      context: [B, window + T, hidden_size], of which `x` are the last.
      attends: bool [B, T, window + T], which steps each one attends to.
    """
    attended = self._attend(self._norms[0](context), attends)
    x = self._gates[0](x, jax.nn.relu(attended))
    return self._gates[1](x, self._mlp(self._norms[1](x)))

  def _attend(self, context: types.Array, attends: types.Array) -> types.Array:
    """Attends by content and distance; sizes are named as in `einsum`.

    These are: `b` rows, `t` steps, `s` steps with the cache, `p` positions in
    the window, `h` heads, `d` features of a head.
    """
    config = self._config
    num_heads, window = config.num_heads, config.window
    head_size = config.hidden_size // num_heads

    def split(x: types.Array) -> types.Array:
      return x.reshape(*x.shape[:-1], num_heads, head_size)

    query = split(self._query(context[:, window:]))
    key, value = map(split, jnp.split(self._key_value(context), 2, axis=-1))
    # From the farthest step of the window to the step itself.
    position = split(
      self._position(_sinusoids(np.arange(window, -1, -1), config.hidden_size))
    )
    of_content, of_position = (
      query
      + jnp.broadcast_to(
        hk.get_parameter(name, query.shape[2:], init=jnp.zeros), query.shape
      )
      for name in ('content_bias', 'position_bias')
    )
    by_content = jnp.einsum('bthd,bshd->bhts', of_content, key)
    by_position = jnp.einsum('bthd,phd->bhtp', of_position, position)
    logits = by_content + _shift_rows(by_position)
    logits = jnp.where(attends[:, None], logits / head_size**0.5, _MASKED)
    weights = jax.nn.softmax(logits)
    attended = jnp.einsum('bhts,bshd->bthd', weights, value)
    return self._output(hk.Flatten(preserve_dims=2)(attended))


class _Gate(hk.Module):
  """The gate of a GRU in the place of a sum; section 3.2 of the paper."""

  def __init__(self, size: int, name: str):
    super().__init__(name)
    self._of_y = recurrence.FlatLinear(3 * size, with_bias=False, name='of_y')
    self._of_x = recurrence.FlatLinear(2 * size, name='of_x')
    self._candidate = recurrence.FlatLinear(size, name='candidate')

  def __call__(self, x: types.Array, y: types.Array) -> types.Array:
    """Returns a mixture of `x` and a candidate made of both."""
    r, z, candidate = jnp.split(self._of_y(y), 3, axis=-1)
    r_x, z_x = jnp.split(self._of_x(x), 2, axis=-1)
    r = jax.nn.sigmoid(r + r_x)
    z = jax.nn.sigmoid(z + z_x - _GATE_BIAS)
    return (1.0 - z) * x + z * jnp.tanh(candidate + self._candidate(r * x))


def _sinusoids(distances: types.NumpyArray, size: int) -> types.Array:
  """Returns sines and cosines of distances [N] at many frequencies, [N, size].

  Vaswani et al., 2017 (arXiv:1706.03762), section 3.5.
  """
  frequencies = 10_000.0 ** -(np.arange(0, size, 2) / size)
  angles = np.float32(distances[:, None] * frequencies)  # [N, size / 2]
  return jnp.concatenate([jnp.sin(angles), jnp.cos(angles)], axis=-1)


def _shift_rows(x: types.Array) -> types.Array:
  """Moves row `t` of [..., T, window + 1] by `t` to the right, [..., T, S].

  Entries moved in from other rows lie outside of the window.
  """
  *leading, num_rows, width = x.shape
  padding = [(0, 0)] * (x.ndim - 1) + [(0, num_rows)]
  flat = jnp.pad(x, padding).reshape(*leading, -1)
  size = width + num_rows - 1
  return flat[..., : num_rows * size].reshape(*leading, num_rows, size)
