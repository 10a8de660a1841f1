"""Delta encoding of frames in a trajectory.

Reverb compresses data byte by byte. If little changes from frame to frame,
differences are mostly zeros and compress better than frames. Only uint8 arrays
are encoded, whose differences wrap around without loss.
"""

from typing import Any

import jax
import numpy as np

from ftwax import types


def encode(observation: types.ArrayTree) -> types.ArrayTree:
  """Replaces all frames but the first by differences, leaves [T, ...]."""

  def encode_leaf(leaf: Any) -> Any:
    if leaf.dtype != np.uint8:
      return leaf
    return np.concatenate([leaf[:1], leaf[1:] - leaf[:-1]])

  return jax.tree.map(encode_leaf, observation)


def decode(observation: types.ArrayTree) -> types.ArrayTree:
  """Inverts `encode`."""

  def decode_leaf(leaf: Any) -> Any:
    if leaf.dtype != np.uint8:
      return leaf
    # Sums modulo 256 undo differences modulo 256.
    return np.cumsum(leaf, axis=0, dtype=np.uint8)

  return jax.tree.map(decode_leaf, observation)
