"""Small operations on pytrees."""

import itertools
import math
from collections.abc import Callable
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


def where_rows_on_host(
  mask: types.NumpyArray, on_true: Any, on_false: Any
) -> Any:
  """Returns what `where_rows` does, as new arrays of NumPy."""

  def select(new: Any, old: Any) -> types.NumpyArray:
    new, old = np.asarray(new), np.asarray(old)
    return np.where(align(mask, old), new, old)

  return jax.tree.map(select, on_true, on_false)


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


def scan(
  step: Callable[[Any, Any], tuple[Any, Any]],
  carry: Any,
  xs: Any = None,
  **options: Any,
) -> tuple[Any, Any]:
  """Does what `jax.lax.scan` does, but stacks as few arrays as possible.

  On an accelerator each array that a step stacks is a launch of a kernel, which
  takes longer than what it copies; see `pack`.
  """
  unpack: Any = None

  def packed_step(carry: Any, x: Any) -> tuple[Any, Any]:
    nonlocal unpack  # The same at each step, and only known when traced.
    carry, outputs = step(carry, x)
    packed, unpack = pack(outputs)
    return carry, packed

  carry, packed = jax.lax.scan(packed_step, carry, xs, **options)
  return carry, jax.vmap(unpack)(packed)


def pack(tree: Any) -> tuple[dict[str, types.Array], Callable[[Any], Any]]:
  """Joins leaves to one vector of all 4-byte numbers and one a dtype of others.

  Returns:
    The vectors, and the function from them to the tree, equal to the bit.
  """
  leaves, structure = jax.tree.flatten(tree)
  groups: dict[str, list[int]] = {}
  for index, leaf in enumerate(leaves):
    is_word = leaf.dtype.itemsize == 4 or leaf.dtype == bool
    groups.setdefault('uint32' if is_word else str(leaf.dtype), []).append(index)
  kinds = [jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in leaves]
  packed = {
    dtype: jnp.concatenate([_to(dtype, leaves[i]).ravel() for i in members])
    for dtype, members in groups.items()
  }

  def unpack(packed: dict[str, types.Array]) -> Any:
    parts: dict[int, Any] = {}
    for dtype, members in groups.items():
      sizes = [math.prod(kinds[i].shape) for i in members]
      rows = jnp.split(packed[dtype], list(itertools.accumulate(sizes))[:-1])
      for i, row in zip(members, rows, strict=True):
        parts[i] = _to(kinds[i].dtype, row.reshape(kinds[i].shape))
    return jax.tree.unflatten(structure, [parts[i] for i in range(len(kinds))])

  return packed, unpack


def _to(dtype: Any, leaf: Any) -> Any:
  """Reads bits as another dtype; booleans are converted."""
  if bool in (leaf.dtype, dtype):
    return leaf.astype(dtype)
  return jax.lax.bitcast_convert_type(leaf, dtype)
