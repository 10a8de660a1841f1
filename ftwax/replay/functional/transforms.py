"""Helpers that keep the replay fast and valid under JAX's transformations.

`vmap` of a loop runs every iteration for all members, and if their numbers of
iterations differ, it selects between whole carries. Loops that write to a table
therefore operate on the tables of all members, merged into one larger table;
see `merge_members`.

`shard_map` tracks which arrays vary from device to device, and rejects a loop
whose carry starts to vary inside it; see `vary_alike`.

`grad` does not support a `while_loop`; see `stop_gradients`.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import custom_batching, lax

_Tree = TypeVar('_Tree')


def merge_members(
  function: Callable[..., _Tree],
  shift: Callable[..., tuple[Any, ...]],
) -> Callable[..., _Tree]:
  """Makes a function whose `vmap` merges the tables of all members.

  Args:
    function: takes and returns tables and entries for them, leaves [N, ...].
    shift: `(axis_size, *args) -> args` points entries to the rows of their
      member, which follow those of the member before; leaves [A, N, ...].

  Returns:
    The function, jitted, since outside `jit` its loops would be compiled at
    each call.
  """
  merged = custom_batching.custom_vmap(function)

  @merged.def_vmap
  def map_members(axis_size: int, is_batched: Any, *args: Any) -> Any:
    args = jax.tree.map(
      lambda batched, leaf: (
        leaf if batched else jnp.broadcast_to(leaf, (axis_size, *leaf.shape))
      ),
      tuple(is_batched),
      args,
    )
    new = merged(
      *jax.tree.map(  # [A, N, ...] to [A N, ...].
        lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), shift(axis_size, *args)
      )
    )
    new = jax.tree.map(
      lambda leaf: leaf.reshape(axis_size, -1, *leaf.shape[1:]), new
    )
    return new, jax.tree.map(lambda _: True, new)

  return jax.jit(merged)


def vary_alike(tree: _Tree) -> _Tree:
  """Makes all arrays vary over each mesh axis over which any of them varies.

  It does nothing outside `shard_map`.

  Args:
    tree: a pytree; leaves other than arrays are unchanged.

  Returns:
    The same values.
  """
  leaves = [leaf for leaf in jax.tree.leaves(tree) if _is_array(leaf)]
  axes = frozenset[Any]().union(*map(_manual_axes, leaves))
  if not axes:
    return tree

  def vary(leaf: Any) -> Any:
    missing = tuple(axes - _manual_axes(leaf)) if _is_array(leaf) else ()
    if not missing:
      return leaf
    if hasattr(lax, 'pcast'):  # Its name since JAX 0.8.
      return lax.pcast(leaf, missing, to='varying')
    return lax.pvary(leaf, missing)  # type: ignore[attr-defined, unused-ignore]

  return jax.tree.map(vary, tree)


def _is_array(leaf: Any) -> bool:
  return isinstance(leaf, jax.Array | np.ndarray)


def _manual_axes(array: Any) -> frozenset[Any]:
  """Returns the mesh axes over which an array varies inside `shard_map`."""
  array_type: Any = jax.typeof(array)
  manual = getattr(array_type, 'mat', None)  # Its name in newer JAX.
  return (
    getattr(array_type, 'vma', frozenset())
    if manual is None
    else manual.varying
  )


def stop_gradients(tree: _Tree) -> _Tree:
  """Stops gradients through traced leaves; others have no gradient."""
  return jax.tree.map(
    lambda leaf: (
      lax.stop_gradient(leaf) if isinstance(leaf, jax.core.Tracer) else leaf
    ),
    tree,
  )
