"""Small operations on pytrees."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ftwax import shapes, types


def align(mask: Any, leaf: Any) -> Any:
  """Reshapes `mask` so that it broadcasts against the first axes of `leaf`.

  Args:
    mask: [...], NumPy or JAX.
    leaf: [..., *rest].

  Returns:
    `mask` with an axis of size one for each axis of `rest`.
  """
  return mask.reshape(mask.shape + (1,) * (leaf.ndim - mask.ndim))


def map_axes(function: Callable[..., Any], axes: Any, *trees: Any) -> Any:
  """Maps `function(axis, *leaves)`, where `axes` is a prefix of the trees."""
  return jax.tree.map(
    lambda axis, *branches: jax.tree.map(
      functools.partial(function, axis), *branches
    ),
    axes,
    *trees,
  )


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

  Raises:
    ValueError: if a leaf does not begin with the axes of the mask.
  """
  shapes.check_leaves('where_rows', 'on_false', on_false, jnp.shape(mask))
  return jax.tree.map(
    lambda new, old: jnp.where(align(mask, old), new, old), on_true, on_false
  )


def where_rows_on_host(
  mask: types.NumpyArray, on_true: Any, on_false: Any
) -> Any:
  """Returns what `where_rows` does, as new arrays of NumPy."""

  def select(new: Any, old: Any) -> types.NumpyArray:
    new, old = np.asarray(new), np.asarray(old)
    return np.where(align(mask, old), new, old)

  return jax.tree.map(select, on_true, on_false)


def take(tree: Any, index: Any) -> Any:
  """Returns `leaf[index]` of all leaves, for a number, slice or array."""
  return jax.tree.map(lambda leaf: leaf[index], tree)


def raw_key(key: Any) -> types.Key:
  """Returns a key, typed or not, as numbers, uint32 [..., n].

  Args:
    key: from `jax.random.key` or `jax.random.PRNGKey`, or several of them.
  """
  dtype = getattr(key, 'dtype', np.uint32)
  if not jnp.issubdtype(dtype, jax.dtypes.prng_key):
    return key
  if dtype == jax.random.key(0).dtype:
    return jax.random.key_data(key)

  def convert(one: Any) -> types.Key:
    # Of another implementation, whose numbers do not fit.
    return jax.random.PRNGKey(jax.random.bits(one, (), jnp.uint32) >> 1)

  for _ in key.shape:
    convert = jax.vmap(convert)
  return convert(key)


def zeros_like_spec(
  spec: types.SpecTree, prefix: tuple[int, ...]
) -> types.ArrayTree:
  """Returns zeros [*prefix, *shape] for each array of `spec`."""
  return jax.tree.map(
    lambda leaf: np.zeros((*prefix, *leaf.shape), leaf.dtype), spec
  )
