"""Torso for signals: several channels over recent samples.

One-dimensional version of the convolutions of Pathak et al., 2017
(arXiv:1705.05363): layers of width 3 and stride 2 with ELU, each normalized
over time and channels.
"""

import dataclasses

import haiku as hk
import jax
import jax.numpy as jnp

from ftwax import types


@dataclasses.dataclass(frozen=True)
class SignalTorsoConfig:
  """Sizes of a torso for signals.

  Attributes:
    num_channels: channels of each convolution.
    width: length of the kernels.
    stride: factor by which each convolution shortens the signal.
    layer_norm: whether to normalize after each convolution.
    output_size: number of features of a final linear layer; None returns the
      flattened output of the last convolution.
  """

  num_channels: tuple[int, ...] = (32, 32, 64, 64)
  width: int = 3
  stride: int = 2
  layer_norm: bool = True
  output_size: int | None = None

  def __post_init__(self) -> None:
    """Checks the sizes."""
    if not self.num_channels or min(self.num_channels) < 1:
      raise ValueError(
        f'num_channels ({self.num_channels}) of a signal torso must have at'
        ' least one layer of at least one channel; choose (32, 32, 64, 64).'
      )
    for name in ('width', 'stride'):
      if getattr(self, name) < 1:
        raise ValueError(
          f'{name} ({getattr(self, name)}) of a signal torso must be at least'
          f' one; choose {name}={getattr(SignalTorsoConfig, name)}.'
        )


class SignalTorso(hk.Module):
  """Maps signals [B, length, channels] to features [B, num_features]."""

  def __init__(
    self,
    config: SignalTorsoConfig | None = None,
    name: str | None = None,
  ):
    super().__init__(name)
    self._config = config or SignalTorsoConfig()

  def __call__(self, signal: types.Array) -> types.Array:
    """Maps [B, length, channels] or [B, length] to [B, num_features].

    Raises:
      ValueError: if the signal has another shape.
    """
    config = self._config
    if signal.ndim not in (2, 3):
      raise ValueError(
        f'A signal of shape {signal.shape[1:]} must be [length, channels] or'
        ' [length]; use an image torso for images.'
      )
    # [B, length, channels]
    x = signal.reshape(*signal.shape[:2], -1).astype(jnp.float32)
    for num_channels in config.num_channels:
      x = hk.Conv1D(num_channels, config.width, config.stride)(x)
      if config.layer_norm:
        x = hk.LayerNorm((-2, -1), True, True, param_axis=-1)(x)
      x = jax.nn.elu(x)
    x = x.reshape(x.shape[0], -1)  # [B, length' * channels]
    if config.output_size is not None:
      x = jax.nn.elu(hk.Linear(config.output_size)(x))
    return x
