"""Torsos: map one observation array to a vector, frame by frame.

A torso has no state and no time axis: it maps [B, ...] to [B, num_features],
so that all `T * B` frames of an unroll pass through it at once.

Image torsos take frames [B, H, W, C], or [B, H, W], to which a channel axis is
added. uint8 frames are divided by 255 here; frames of floats are used
unchanged. Codes are encoded before, by `embeddings`.
"""

from collections.abc import Callable, Sequence

import haiku as hk
import jax
import jax.numpy as jnp

from ftwax import parts, registry, types
from ftwax.networks import convolutions, layers

# Maps observations [B, ...] to features, float32 [B, num_features].
Torso = Callable[[types.Array], types.Array]

# Makes a torso, e.g. a torso's class; called inside a Haiku transform.
MakeTorso = Callable[[], Torso]


@registry.register('torso.ftw')
class FTWTorso(hk.Module):
  """Two strided convolutions and two residual ones, then a linear layer.

  From "Human-level performance in 3D multiplayer games with population-based
  reinforcement learning" (Jaderberg et al., 2019, supplement, architecture of
  the agent). The second residual branch starts before the nonlinearity, and the
  features have no nonlinearity.
  """

  def __init__(
    self,
    num_features: int = 256,
    layers: Sequence[tuple[int, int, int]] = ((32, 8, 4), (64, 4, 2)),
    name: str | None = None,
  ):
    """Makes a torso.

    Args:
      num_features: size of the output.
      layers: channels, side of the kernel and stride of each strided
        convolution; the residual ones have the last one's channels.
      name: name of the module.
    """
    super().__init__(name)
    parts.check_sizes(layers=layers, num_features=num_features)
    self._num_features = num_features
    self._layers = tuple(layers)

  def __call__(self, frames: types.Array) -> types.Array:
    """Embeds frames [B, H, W, C]; 84x84 become 11x11x64, then features."""
    x = _to_images(frames, self, min_side=self._layers[0][1])
    for layer in self._layers:
      # By default [B, 21, 21, 32], then [B, 11, 11, 64].
      x = jax.nn.relu(convolutions.Conv2D(*layer)(x))
    num_channels = x.shape[-1]
    x = x + convolutions.Conv2D(num_channels, 3)(x)
    x = x + convolutions.Conv2D(num_channels, 3)(jax.nn.relu(x))
    return hk.Linear(self._num_features)(hk.Flatten()(jax.nn.relu(x)))


@registry.register('torso.nature')
class NatureTorso(hk.Module):
  """The three convolutions of DQN (Mnih et al., 2015, Nature 518:529)."""

  def __init__(self, num_features: int = 512, name: str | None = None):
    super().__init__(name)
    parts.check_sizes(num_features=num_features)
    self._num_features = num_features

  def __call__(self, frames: types.Array) -> types.Array:
    """Embeds frames [B, H, W, C]; 84x84 become 7x7x64, then features."""
    x = _to_images(frames, self, min_side=36)
    x = jax.nn.relu(convolutions.Conv2D(32, 8, 4, padding='VALID')(x))
    x = jax.nn.relu(convolutions.Conv2D(64, 4, 2, padding='VALID')(x))
    x = jax.nn.relu(convolutions.Conv2D(64, 3, padding='VALID')(x))
    return jax.nn.relu(hk.Linear(self._num_features)(hk.Flatten()(x)))


@registry.register('torso.shallow')
class ShallowTorso(hk.Module):
  """The small torso of A3C, UNREAL and IMPALA (arXiv:1802.01561, figure 3)."""

  def __init__(self, num_features: int = 256, name: str | None = None):
    super().__init__(name)
    parts.check_sizes(num_features=num_features)
    self._num_features = num_features

  def __call__(self, frames: types.Array) -> types.Array:
    """Embeds frames [B, H, W, C]; 84x84 become 9x9x32, then features."""
    x = _to_images(frames, self, min_side=20)
    x = jax.nn.relu(convolutions.Conv2D(16, 8, 4, padding='VALID')(x))
    x = jax.nn.relu(convolutions.Conv2D(32, 4, 2, padding='VALID')(x))
    return jax.nn.relu(hk.Linear(self._num_features)(hk.Flatten()(x)))


@registry.register('torso.a3c')
class A3CTorso(hk.Module):
  """Four equal convolutions with ELU, for frames of 42x42.

  A common network for A3C (Mnih et al., 2016, arXiv:1602.01783) on Atari games
  at a quarter of the pixels. There is no linear layer: the 3x3x32 features of a
  42x42 frame are the input of the core.
  """

  def __call__(self, frames: types.Array) -> types.Array:
    """Embeds frames [B, H, W, C]; 42x42 become 3x3x32 = 288 features."""
    x = _to_images(frames, self, min_side=16)
    for _ in range(4):
      x = jax.nn.elu(convolutions.Conv2D(32, 3, 2)(x))
    return jnp.reshape(x, (x.shape[0], -1))  # [B, num_features]


@registry.register('torso.deep')
class DeepTorso(hk.Module):
  """The residual torso of IMPALA (Espeholt et al., 2018, arXiv:1802.01561).

  Each group is a convolution, a max-pooling that halves the sides, and residual
  blocks of two convolutions.
  """

  def __init__(
    self,
    num_channels: Sequence[int] = (16, 32, 32),
    num_blocks: int = 2,
    num_features: int = 256,
    name: str | None = None,
  ):
    super().__init__(name)
    parts.check_sizes(num_channels=num_channels, num_features=num_features)
    if num_blocks > parts.MAX_UNROLLED:
      raise ValueError(
        f'num_blocks ({num_blocks}) must be at most {parts.MAX_UNROLLED};'
        ' choose 2.'
      )
    self._num_channels = tuple(num_channels)
    self._num_blocks = num_blocks
    self._num_features = num_features

  def __call__(self, frames: types.Array) -> types.Array:
    """Embeds frames [B, H, W, C]; 84x84 become 11x11x32, then features."""
    x = _to_images(frames, self, min_side=2 ** len(self._num_channels))
    for num_channels in self._num_channels:
      x = convolutions.Conv2D(num_channels, 3)(x)
      x = hk.max_pool(x, (1, 3, 3, 1), (1, 2, 2, 1), padding='SAME')
      for _ in range(self._num_blocks):
        branch = convolutions.Conv2D(num_channels, 3)(jax.nn.relu(x))
        x = x + convolutions.Conv2D(num_channels, 3)(jax.nn.relu(branch))
    x = hk.Flatten()(jax.nn.relu(x))
    return jax.nn.relu(hk.Linear(self._num_features)(x))


@registry.register('torso.mlp')
class MLPTorso(hk.Module):
  """Linear layers with a nonlinearity each, on a flattened observation."""

  def __init__(
    self,
    hidden_sizes: Sequence[int] = (256,),
    activation: str = 'relu',
    initializer: str = 'truncated_normal',
    name: str | None = None,
  ):
    """Makes a torso.

    Args:
      hidden_sizes: sizes of the layers; if empty, the torso only flattens.
      activation: the nonlinearity, one of `layers.ACTIVATIONS`.
      initializer: of the matrices, one of `layers.INITIALIZERS`.
      name: name of the module.
    """
    super().__init__(name)
    parts.check_sizes(hidden_sizes=hidden_sizes)
    self._hidden_sizes = tuple(hidden_sizes)
    self._activation = layers.ACTIVATIONS[activation]
    self._w_init = layers.make_w_init(initializer)

  def __call__(self, observation: types.Array) -> types.Array:
    """Embeds an observation [B, ...]."""
    x = _to_float(observation, self)
    x = x.reshape(x.shape[0], -1)  # [B, num_inputs]
    for hidden_size in self._hidden_sizes:
      x = self._activation(hk.Linear(hidden_size, w_init=self._w_init)(x))
    return x


def _to_float(observation: types.Array, torso: hk.Module) -> types.Array:
  """Returns float32; uint8 is scaled to [0, 1]."""
  if not hasattr(observation, 'shape'):
    raise types.InvalidTypeError(
      f'The observation of {type(torso).__name__} ({type(observation)}) must be'
      ' one array; combine several entries with'
      ' embeddings.ObservationEmbedding.'
    )
  x = jnp.asarray(observation, jnp.float32)
  return x / 255.0 if observation.dtype == jnp.uint8 else x


def _to_images(
  frames: types.Array, torso: hk.Module, min_side: int
) -> types.Array:
  """Returns frames as float32 [B, H, W, C].

  Raises:
    ValueError: if they are not images, or smaller than `min_side`.
  """
  x = _to_float(frames, torso)
  name, shape = type(torso).__name__, x.shape[1:]
  if x.ndim not in (3, 4):
    raise ValueError(
      f'Frames of {name} {shape} must be [H, W, C] or [H, W]; reshape the'
      ' observation or use MLPTorso.'
    )
  if min(shape[:2]) < min_side:
    raise ValueError(
      f'Frames of {name} ({shape[0]}x{shape[1]}) must be at least'
      f' {min_side}x{min_side}; enlarge the observation or use MLPTorso.'
    )
  return x[..., None] if x.ndim == 3 else x
