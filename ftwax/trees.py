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
    old = np.asarray(old)
    return np.where(align(mask, old), new, old)

  return jax.tree.map(select, on_true, on_false)


def where_rows_of(
  mask: types.Array | types.NumpyArray,
) -> Callable[[Any, Any, Any], Any]:
  """Returns `where_rows`, or `where_rows_on_host` for a mask of NumPy."""
  is_host = isinstance(mask, np.ndarray)
  return where_rows_on_host if is_host else where_rows


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


def _widened(dtype: Any) -> Any:
  """Returns a dtype of 32 bits that holds the values of another.

  Raises:
    TypeError: if none does.
  """
  if np.dtype(dtype).itemsize > 4:
    raise TypeError(f'dtype ({dtype}) must have at most 32 bits; convert it.')
  if np.dtype(dtype).itemsize == 4:
    return dtype
  return np.float32 if jnp.issubdtype(dtype, jnp.floating) else np.int32


class Packing:
  """Joins all leaves of a tree in one array, and splits it again.

  Calls of compiled functions take longer with each array. Leaves of fewer than
  32 bits are widened, which keeps their values.

  Attributes:
    size: K, the number of entries of all leaves.
  """

  def __init__(self, template: Any):
    """Takes the structure of a tree.

    Raises:
      TypeError: if a leaf has a dtype of more than 32 bits.
    """
    leaves = jax.tree.leaves(template)
    # Typed Any, since jax's stubs hide the methods of tree structures.
    self._structure: Any = jax.tree.structure(template)
    ends = np.cumsum([leaf.size for leaf in leaves], dtype=int).tolist()
    self._parts = [
      (
        slice(end - leaf.size, end),
        leaf.dtype,
        _widened(leaf.dtype),
        leaf.shape,
      )
      for end, leaf in zip(ends, leaves, strict=True)
    ]
    self.size = ends[-1]

  def pack(self, tree: Any) -> Any:
    """Returns int32 [K] of a tree of NumPy, or in compiled code of JAX."""
    leaves = [
      leaf.astype(wide).ravel()
      for leaf, (_, _, wide, _) in zip(
        self._structure.flatten_up_to(tree), self._parts, strict=True
      )
    ]
    if isinstance(leaves[0], np.ndarray):
      return np.concatenate([leaf.view(np.int32) for leaf in leaves])
    return jnp.concatenate([
      jax.lax.bitcast_convert_type(leaf, jnp.int32) for leaf in leaves
    ])  # fmt: skip

  def unpack(self, packed: Any) -> Any:
    """Returns the tree, leaves [..., *shape], of int32 [..., K].

    Those of an array of NumPy are views of it, unless they were widened.
    """
    prefix = packed.shape[:-1]
    leaves = []
    for part, dtype, wide, shape in self._parts:
      leaf = packed[..., part]
      if isinstance(leaf, np.ndarray):
        leaf = leaf.view(wide).astype(dtype, copy=False)
      else:
        leaf = jax.lax.bitcast_convert_type(leaf, wide).astype(dtype)
      leaves.append(leaf.reshape((*prefix, *shape)))
    return self._structure.unflatten(leaves)


def zeros_like_spec(
  spec: types.SpecTree, prefix: tuple[int, ...]
) -> types.ArrayTree:
  """Returns zeros [*prefix, *shape] for each array of `spec`."""
  return jax.tree.map(
    lambda leaf: np.zeros((*prefix, *leaf.shape), leaf.dtype), spec
  )
