"""How the entries of an observation enter a network, decided by their specs.

Numbers and pixels have an order and a scale. Codes, such as the objects in the
cells of a grid, have neither, and need a feature for each value. This is the
only place that tells one from the other; `entry_encodings` of an agent's config
overrides it.
"""

import dm_env
import numpy as np

# A matrix with shorter sides is treated as a vector, not as an image.
_MIN_IMAGE_SIDE = 16

# Integers whose bounds admit at most this many values are codes.
MAX_ONE_HOT = 32

# Numbers as they are, and images and bytes in [0, 1].
SCALED = 'scaled'
# A feature for each value within the bounds.
ONE_HOT = 'one_hot'
# A learned vector for each value within the bounds.
EMBEDDING = 'embedding'

ENCODINGS = (SCALED, ONE_HOT, EMBEDDING)


def choose(spec: dm_env.specs.Array) -> str:
  """Returns the encoding of an entry.

  `ONE_HOT` is for `dm_env.specs.DiscreteArray` and for integers whose bounds
  admit 3 to 32 values. `EMBEDDING` is for all other uint8 entries that are not
  images by their shape and admit more than two values, such as MiniGrid's
  [7, 7, 3]. All else is `SCALED`.

  Args:
    spec: spec of the entry.
  """
  if isinstance(spec, dm_env.specs.DiscreteArray):
    return ONE_HOT
  num_values = count_values(spec)
  if num_values is None or num_values <= 2:
    return SCALED
  if num_values <= MAX_ONE_HOT:
    return ONE_HOT
  is_code = spec.dtype == np.uint8 and not is_image(spec)
  return EMBEDDING if is_code else SCALED


def is_image(spec: dm_env.specs.Array) -> bool:
  """Returns whether an entry is an image by its shape, [H, W] or [H, W, C]."""
  return len(spec.shape) in (2, 3) and min(spec.shape[:2]) >= _MIN_IMAGE_SIDE


def count_values(spec: dm_env.specs.Array) -> int | None:
  """Returns the number of values that the bounds admit; None for any number.

  uint8 without bounds has 256.
  """
  if spec.dtype.kind not in 'iu':
    return None
  if isinstance(spec, dm_env.specs.BoundedArray):
    return int(np.max(spec.maximum)) - int(np.min(spec.minimum)) + 1
  return 256 if spec.dtype == np.uint8 else None
