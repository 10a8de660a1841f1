"""How the entries of an observation enter a network, decided by their specs.

Numbers and pixels have an order and a scale. Codes, such as the objects in the
cells of a grid, have neither, and need a feature for each value. This is the
only place that tells one from the other; `torsos.Torso.encodings` overrides
it.

Pictures may be stacked, and their channels may come first or last: the two
neighbouring axes whose shorter one is longest are height and width.
"""

import math
from collections.abc import Sequence
from typing import Any

import dm_env
import numpy as np

# Pictures with shorter sides have too few pixels for convolutions.
_MIN_IMAGE_SIDE = 16

# Numbers of channels that make bytes a picture at any size.
_COLORS = (3, 4)

# Integers whose bounds admit at most this many values are codes.
MAX_ONE_HOT = 32

# A single symbol of more values has a learned vector.
_MAX_SYMBOLS = 1024

# Numbers of a learned vector: for each of many codes, and for a single one.
_CODE_SIZE, _SYMBOL_SIZE = 8, 32

# Codes that one entry may hold, unless they are the channels of a picture.
_MAX_CODES = 4096

# Numbers as they are, and images and bytes in [0, 1].
SCALED = 'scaled'
# A feature for each value within the bounds.
ONE_HOT = 'one_hot'
# A learned vector for each value within the bounds.
EMBEDDING = 'embedding'

ENCODINGS = (SCALED, ONE_HOT, EMBEDDING)


def choose(spec: dm_env.specs.Array) -> str:
  """Returns the encoding of an entry.

  `ONE_HOT` is for `dm_env.specs.DiscreteArray` of up to 1,024 values and for
  other integers whose bounds admit 3 to 32. `EMBEDDING` is for larger
  `DiscreteArray`s, and for uint8 entries of more than two values that are no
  pictures. All else is `SCALED`.

  Args:
    spec: spec of the entry.
  """
  num_values = count_values(spec)
  if isinstance(spec, dm_env.specs.DiscreteArray):
    return ONE_HOT if spec.num_values <= _MAX_SYMBOLS else EMBEDDING
  if num_values is None or num_values <= 2:
    return SCALED
  if num_values <= MAX_ONE_HOT:
    return ONE_HOT
  is_code = spec.dtype == np.uint8 and not is_picture(spec)
  return EMBEDDING if is_code else SCALED


def check_size(name: str, spec: dm_env.specs.Array) -> None:
  """Raises a ValueError if too many codes would be chosen for an entry.

  Args:
    name: path of the entry.
    spec: spec of the entry.
  """
  num_codes = math.prod(spec.shape)
  if choose(spec) == SCALED or is_image(spec) or num_codes <= _MAX_CODES:
    return
  raise ValueError(
    f'observation {name!r} ({spec.dtype} {spec.shape}) must hold at most'
    f' {_MAX_CODES:,} codes to have features for each, not {num_codes:,}; set'
    f' torso=torsos.Torso(encodings={{{name!r}: {SCALED!r}}}) if they are'
    f' numbers or pixels, or {choose(spec)!r} if they are codes.'
  )


def is_image(spec: dm_env.specs.Array) -> bool:
  """Returns whether convolutions see an entry: both sides are long enough."""
  if len(spec.shape) not in (2, 3, 4):
    return False
  shortest = min(image_shape(spec.shape)[:2])
  # Of four equal axes, none are channels.
  is_stack = len(spec.shape) < 4 or sorted(spec.shape)[1] < shortest
  return shortest >= _MIN_IMAGE_SIDE and is_stack


def is_signal(shape: Sequence[int]) -> bool:
  """Returns whether an entry of this shape is a signal, [length, channels].

  It is one if its length would do for an image and its channels are too few to
  be a side of one: 30 x 3 and 30 x 1 are signals, 84 x 84 and 10 x 5 are not.
  """
  return len(shape) == 2 and shape[1] < _MIN_IMAGE_SIDE <= shape[0]


def is_picture(spec: dm_env.specs.Array) -> bool:
  """Returns whether an entry is an image, or small but with color channels."""
  if is_image(spec):
    return True
  channels = {*spec.shape[-1:], *spec.shape[-3:-2]}
  return (
    len(spec.shape) in (3, 4)
    and spec.dtype == np.uint8
    and count_values(spec) == 256
    and any(number in channels for number in _COLORS)
  )


def image_shape(shape: Sequence[int]) -> tuple[int, ...]:
  """Returns the shape of `to_image`, [H, W] or [H, W, channels]."""
  if len(shape) < 3:
    return tuple(shape)
  side = _side_axis(shape)
  channels = math.prod(shape[:side]) * math.prod(shape[side + 2 :])
  return (*shape[side : side + 2], channels)


def to_image(shape: Sequence[int], image: Any) -> Any:
  """Moves height and width before all channels, which become one axis.

  Args:
    shape: shape of one image.
    image: [..., *shape], of NumPy or JAX.

  Returns:
    [..., H, W] or [..., H, W, channels].
  """
  num_axes = len(shape)
  side = _side_axis(shape)
  if num_axes < 3 or (num_axes == 3 and side == 0):
    return image
  first = image.ndim - num_axes
  channels = [i for i in range(num_axes) if i not in (side, side + 1)]
  order = [*range(first)]
  order += [first + axis for axis in (side, side + 1, *channels)]
  moved = image.transpose(order)
  return moved.reshape(*moved.shape[: first + 2], -1)


def count_values(spec: dm_env.specs.Array) -> int | None:
  """Returns the number of values that the bounds admit; None for any number.

  uint8 without bounds has 256.
  """
  if spec.dtype.kind not in 'iu':
    return None
  if isinstance(spec, dm_env.specs.BoundedArray):
    return int(np.max(spec.maximum)) - int(np.min(spec.minimum)) + 1
  return 256 if spec.dtype == np.uint8 else None


def code_size(spec: dm_env.specs.Array) -> int:
  """Returns how many numbers a learned vector of an entry has."""
  return _CODE_SIZE if spec.shape else _SYMBOL_SIZE


def describe(spec: dm_env.specs.Array, encoding: str | None = None) -> str:
  """Returns what an entry is taken for, and what the first layer gets.

  Args:
    spec: spec of the entry.
    encoding: its encoding; by default the one of `choose`.
  """
  encoding = encoding or choose(spec)
  size, num_values = math.prod(spec.shape), count_values(spec)
  layer = ''
  if is_image(spec):
    height, width, *rest = image_shape(spec.shape)
    channels = (*rest, 1)[0]
    layer = f' (image, {height}x{width}x{channels})'
  if encoding == ONE_HOT:
    size *= num_values or 1
    what = f'codes, one-hot of {num_values:,} values each'
  elif encoding == EMBEDDING:
    size *= code_size(spec)
    what = f'codes, a learned vector for each of {num_values:,} values'
  elif is_picture(spec):
    what = 'pixels in [0, 1]'
  elif spec.dtype == np.uint8:
    what = 'bytes, divided by 255'
  else:
    what = 'numbers as they are'
  return f'{what}{layer}: {size:,} inputs'


def _side_axis(shape: Sequence[int]) -> int:
  """Returns the axis of the height, which that of the width follows."""
  shorter = [min(pair) for pair in zip(shape, shape[1:], strict=False)]
  return int(np.argmax(shorter)) if shorter else 0
