"""Small operations on pytrees."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ftwax import types


def align(mask: Any, leaf: Any) -> Any:
  """Reshapes `mask` so that it broadcasts against the first axes of `leaf`.

  Args:
    mask: [...], NumPy or JAX.
    leaf: [..., *rest].

  Returns:
    `mask` with an axis of size one for each axis of `rest`.
  """
  return mask.reshape(mask.shape + (1,) * (leaf.ndim - mask.ndim))


def where_rows(
  mask: types.Array | types.NumpyArray, on_true: Any, on_false: Any
) -> Any:
  """Selects rows of two pytrees by a mask over their leading axes.

  Args:
    mask: bool [...].
    on_true: leaves [..., *rest], or scalars.
    on_false: leaves [..., *rest], of the same structure.

  Returns:
    Leaves [..., *rest]: those of `on_true` where `mask` is true.
  """
  return jax.tree.map(
    lambda new, old: jnp.where(align(mask, old), new, old), on_true, on_false
  )


def zeros_like_spec(
  spec: types.SpecTree, prefix: tuple[int, ...]
) -> types.ArrayTree:
  """Returns zeros [*prefix, *shape] for each array of `spec`."""
  return jax.tree.map(
    lambda leaf: np.zeros((*prefix, *leaf.shape), leaf.dtype), spec
  )
