"""Convolutions whose gradient is fast and uses little memory, also on a CPU.

The gradient of a strided convolution is a convolution of a dilated array, which
is mostly zeros. On the CPU, XLA computes it at a fraction of the speed of a
dense one. However, a convolution of stride s equals one of stride 1 over blocks
of s x s pixels that are laid out as channels ("space to depth"), whose gradient
is dense.

For the gradient of the kernel, XLA copies the input to another layout as soon
as the input exists, in the forward pass, so that every input is stored twice.
Here the input depends artificially on the cotangent, which delays the copy to
the backward pass.

XLA's fast convolution of a CPU takes dimensions in one order. It reorders those
of other convolutions, except inside loops, where it computes them 30 times as
slowly. Gradients are therefore written in that order.

On GPUs, cuDNN is slow where frames have few channels. There, strided
convolutions of such frames are products of matrices. On an H200, values and
gradients of the first convolution of `NatureTorso` took 0.8 ms instead of 5.2
(640 frames), and of the torso of four members 0.5 ms instead of 11.6.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np

from ftwax import types

# Frames of colours, or of four stacked grays.
_FEW_CHANNELS = 4


class Conv2D(hk.Module):
  """A convolution with the parameters and outputs of `hk.Conv2D`."""

  def __init__(
    self,
    num_channels: int,
    kernel_size: int,
    stride: int = 1,
    padding: str = 'SAME',
    name: str | None = None,
  ):
    """Makes a convolution with a square kernel.

    Args:
      num_channels: C', number of output channels.
      kernel_size: side of the kernel, in pixels.
      stride: stride in both directions.
      padding: 'SAME' or 'VALID'.
      name: name of the module.
    """
    super().__init__(name)
    self._num_channels = num_channels
    self._kernel_size = kernel_size
    self._stride = stride
    self._padding = padding

  def __call__(self, x: types.Array) -> types.Array:
    """Maps [B, H, W, C] to [B, H', W', C']."""
    shape = (
      self._kernel_size,
      self._kernel_size,
      x.shape[-1],
      self._num_channels,
    )
    stddev = 1.0 / np.sqrt(np.prod(shape[:-1]))
    w = hk.get_parameter(
      'w', shape, init=hk.initializers.TruncatedNormal(stddev=stddev)
    )
    b = hk.get_parameter('b', shape[-1:], init=jnp.zeros)
    y = conv(x, w, self._stride, self._padding)
    return y + jnp.broadcast_to(b, y.shape)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def conv(
  x: types.Array, w: types.Array, stride: int, padding: str
) -> types.Array:
  """Convolves [B, H, W, C] with a kernel [K, K, C, C'].

  Args:
    x: the input.
    w: the kernel.
    stride: s, the stride in both directions.
    padding: 'SAME' or 'VALID'.

  Returns:
    [B, H', W', C'].
  """
  on_gpu = functools.partial(_multiply_patches, stride=stride, padding=padding)
  return jax.lax.platform_dependent(
    x,
    w,
    default=functools.partial(_conv, stride=stride, padding=padding),
    **_on_gpus(on_gpu, x, stride),
  )


# Input x and kernel w: the residuals, and also the gradients.
_Pair = tuple[types.Array, types.Array]


def _forward(
  x: types.Array, w: types.Array, stride: int, padding: str
) -> tuple[types.Array, _Pair]:
  return conv(x, w, stride, padding), (x, w)


def _backward(
  stride: int, padding: str, residuals: _Pair, cotangent: types.Array
) -> _Pair:
  def gradient(
    function: Callable[..., types.Array],
    x: types.Array,
    w: types.Array,
    cotangent: types.Array,
  ) -> _Pair:
    _, vjp = jax.vjp(lambda x, w: function(x, w, stride, padding), x, w)
    dx, dw = vjp(cotangent)
    return dx, dw

  def gradient_on_cpu(
    x: types.Array, w: types.Array, cotangent: types.Array
  ) -> _Pair:
    blocks, vjp_x = jax.vjp(
      lambda x: _to_blocks(x, w.shape[0], stride, padding),
      # Only the kernel's gradient needs the input, in another layout.
      _after(cotangent, x),
    )
    kernel, vjp_w = jax.vjp(lambda w: _to_block_kernel(w, stride), w)
    far = kernel.shape[0] - 1
    dblocks = _conv(
      cotangent,
      jnp.flip(kernel, (0, 1)).swapaxes(2, 3),
      1,
      [(far, far), (far, far)],
    )
    # [C, K, K, C']: each channel of the input is an example.
    dkernel = _conv(
      blocks.transpose(3, 1, 2, 0), cotangent.transpose(1, 2, 0, 3), 1, 'VALID'
    )
    (dx,), (dw,) = vjp_x(dblocks), vjp_w(dkernel.transpose(1, 2, 0, 3))
    return dx, dw

  on_gpu = functools.partial(gradient, _multiply_patches)
  dx, dw = jax.lax.platform_dependent(
    *residuals,
    cotangent,
    cpu=gradient_on_cpu,
    default=functools.partial(gradient, _conv),
    **_on_gpus(on_gpu, residuals[0], stride),
  )
  return dx, dw


conv.defvjp(_forward, _backward)


def _after(first: types.Array, x: types.Array) -> types.Array:
  """Returns `x`, as an array that XLA cannot compute before `first`.

  An optimization barrier is not enough: XLA drops it before it schedules.
  """
  number = first.ravel()[0]
  # Never true, but XLA does not know that.
  zero = jnp.isnan(number) & jnp.isinf(number)
  return x + zero.astype(x.dtype)


def _conv(
  x: types.Array,
  w: types.Array,
  stride: int,
  padding: str | Sequence[tuple[int, int]],
) -> types.Array:
  return jax.lax.conv_general_dilated(
    x,
    w,
    (stride, stride),
    padding,
    dimension_numbers=('NHWC', 'HWIO', 'NHWC'),
  )


def _on_gpus(
  function: Callable[..., Any], x: types.Array, stride: int
) -> dict[str, Callable[..., Any]]:
  """Returns a function by platform, if products of patches are faster."""
  if stride == 1 or x.shape[-1] > _FEW_CHANNELS:
    return {}
  return {'cuda': function, 'rocm': function}


def _multiply_patches(
  x: types.Array, w: types.Array, stride: int, padding: str
) -> types.Array:
  """Convolves as one product of matrices, of patches and the kernel."""
  blocks = _to_blocks(x, w.shape[0], stride, padding)
  kernel = _to_block_kernel(w, stride)
  size = kernel.shape[0]
  height, width = (side - size + 1 for side in blocks.shape[1:3])
  patches = [
    blocks[:, row : row + height, column : column + width]
    for row in range(size)
    for column in range(size)
  ]
  return jnp.concatenate(patches, -1) @ kernel.reshape(-1, kernel.shape[-1])


def _to_blocks(
  x: types.Array, kernel_size: int, stride: int, padding: str
) -> types.Array:
  """Lays out blocks of s x s pixels as channels, [B, H / s, W / s, s s C].

  The sides are padded, or cut, to the blocks that the kernel covers.
  """
  num_frames, *sides, num_channels = x.shape
  num_blocks = -(-kernel_size // stride)  # In the kernel.
  pads = jax.lax.padtype_to_pads(
    sides, (kernel_size, kernel_size), (stride, stride), padding
  )
  # The kernel's last position, in blocks, plus the blocks that it covers there.
  padded_sides = [
    ((side + sum(pad) - kernel_size) // stride + num_blocks) * stride
    for side, pad in zip(sides, pads, strict=True)
  ]
  # The padding at the end is negative if the last pixels are not used.
  x = jax.lax.pad(
    x,
    jnp.zeros((), x.dtype),
    [
      (0, 0, 0),
      *(
        (low, padded_side - side - low, 0)
        for side, padded_side, (low, _) in zip(
          sides, padded_sides, pads, strict=True
        )
      ),
      (0, 0, 0),
    ],
  )
  height, width = (side // stride for side in padded_sides)
  # [B, H / s, s, W / s, s, C], then [B, H / s, W / s, s s C].
  x = x.reshape(num_frames, height, stride, width, stride, num_channels)
  return x.transpose(0, 1, 3, 2, 4, 5).reshape(num_frames, height, width, -1)


def _to_block_kernel(w: types.Array, stride: int) -> types.Array:
  """Returns the kernel for blocks, [K / s, K / s, s s C, C']."""
  num_blocks = -(-w.shape[0] // stride)
  rest = num_blocks * stride - w.shape[0]
  # Zeros fill the kernel up to whole blocks.
  w = jnp.pad(w, ((0, rest), (0, rest), (0, 0), (0, 0)))
  w = w.reshape(num_blocks, stride, num_blocks, stride, *w.shape[2:])
  return w.transpose(0, 2, 1, 3, 4, 5).reshape(
    num_blocks, num_blocks, -1, w.shape[-1]
  )
