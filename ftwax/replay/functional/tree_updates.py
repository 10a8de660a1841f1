"""Updates of many segment trees at once, with an algorithm per platform.

There are N trees of P leaves, float32 [N, 2 P], for each of several operations;
see `segment_tree`. On a CPU, leaves are set one after another, in a loop that
XLA compiles to scalar code, up to the level that has about as many nodes as
leaves were set; the nodes above it are then computed once. On other platforms
all leaves of a batch climb together, level by level. Both result in the same
trees. Under `vmap` the trees of a population are merged into one array, since
the loop of scalars would be about a hundred times slower if each of its steps
were batched.

An entry consists of `member` int32 [M], which of the N trees it belongs to,
`index` int32 [M], its leaf, and `value` float32 [M].
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import custom_batching, lax

from ftwax import types
from ftwax.replay.functional import transforms


class Operation(NamedTuple):
  """Combines two children into their parent.

  Attributes:
    combine: an associative and commutative function of two arrays.
    identity: the neutral element of `combine`.
  """

  combine: Callable[[types.Array, types.Array], types.Array]
  identity: float


def last_occurrence(index: types.Array) -> types.Array:
  """Returns whether no later entry of `index` [M] is equal, bool [M]."""
  order = jnp.argsort(index, stable=True)
  ordered = index[order]
  is_last = jnp.concatenate([ordered[1:] != ordered[:-1], jnp.ones(1, bool)])
  return jnp.zeros(index.shape, bool).at[order].set(is_last)


def update_in_sequence(
  operations: tuple[Operation, ...],
  trees: tuple[types.Array, ...],
  member: types.Array,
  index: types.Array,
  value: types.Array,
) -> tuple[types.Array, ...]:
  """Sets leaves one after another; the implementation for CPUs."""
  num_trees, num_nodes = trees[0].shape
  num_leaves = num_nodes // 2
  # Leaves climb to the lowest level with at most one node per leaf.
  num_entries = max(1, index.shape[0] // num_trees)
  # The largest power of two that does not exceed either number.
  num_tops = 1 << min(num_leaves, num_entries).bit_length() - 1
  height = (num_leaves // num_tops).bit_length() - 1

  def climb(_: Any, carry: Any) -> Any:
    flats, base, node, values = carry
    # One of the two children has just been computed.
    sibling = base + (node ^ 1)
    values = [
      operation.combine(value, flat[sibling])
      for operation, flat, value in zip(operations, flats, values, strict=True)
    ]
    node >>= 1
    return _write(flats, base + node, values), base, node, values

  def set_leaf(
    flats: list[types.Array], entry: tuple[types.Array, ...]
  ) -> tuple[list[types.Array], None]:
    member, index, value = entry
    in_range = (index >= 0) & (index < num_leaves)
    base = member * num_nodes if num_trees > 1 else 0
    node = num_leaves + jnp.where(in_range, index, 0)
    values = [jnp.where(in_range, value, flat[base + node]) for flat in flats]
    carry = _write(flats, base + node, values), base, node, values
    return lax.fori_loop(0, height, climb, carry)[0], None

  flats = [tree.reshape(-1) for tree in trees]
  flats, _ = lax.scan(set_leaf, flats, (member, index, value))
  flats = _renew(operations, flats, num_nodes, num_tops - 1)
  pairs = zip(flats, trees, strict=True)
  return tuple(flat.reshape(tree.shape) for flat, tree in pairs)


def _renew(
  operations: tuple[Operation, ...],
  flats: list[types.Array],
  num_nodes: int,
  num_renewed: int,
) -> list[types.Array]:
  """Recomputes the uppermost nodes of each tree from their children."""

  def renew_one(i: types.Array, flats: list[types.Array]) -> list[types.Array]:
    base = i // num_renewed * num_nodes
    node = num_renewed - i % num_renewed  # Down to the root.
    values = [
      operation.combine(flat[base + 2 * node], flat[base + 2 * node + 1])
      for operation, flat in zip(operations, flats, strict=True)
    ]
    return _write(flats, base + node, values)

  if num_renewed == 0:
    return flats
  num_trees = flats[0].shape[0] // num_nodes
  new: list[types.Array] = lax.fori_loop(
    0, num_trees * num_renewed, renew_one, flats
  )
  return new


def _write(
  flats: list[types.Array], place: types.Array, values: list[types.Array]
) -> list[types.Array]:
  pairs = zip(flats, values, strict=True)
  return [flat.at[place].set(value) for flat, value in pairs]


def update_together(
  operations: tuple[Operation, ...],
  trees: tuple[types.Array, ...],
  member: types.Array,
  index: types.Array,
  value: types.Array,
) -> tuple[types.Array, ...]:
  """Sets all leaves at once; the implementation for accelerators."""
  num_nodes = trees[0].shape[1]
  num_leaves = num_nodes // 2
  in_range = (index >= 0) & (index < num_leaves)
  base = member * num_nodes
  node = num_leaves + jnp.where(in_range, index, 0)
  leaf = jnp.where(in_range, base + node, trees[0].size)
  leaf = jnp.where(last_occurrence(leaf), leaf, trees[0].size)

  def update_one(operation: Operation, tree: types.Array) -> types.Array:
    def climb(level: types.Array, flat: types.Array) -> types.Array:
      # Skipped entries recompute values that do not change.
      # Entries that share a parent write the same value to it.
      parent = node >> level
      left, right = flat[base + 2 * parent], flat[base + 2 * parent + 1]
      return flat.at[base + parent].set(operation.combine(left, right))

    flat = tree.reshape(-1).at[leaf].set(value, mode='drop')
    flat = lax.fori_loop(1, num_leaves.bit_length(), climb, flat)
    new: types.Array = flat.reshape(tree.shape)
    return new

  return tuple(map(update_one, operations, trees))


def shift_members(
  num_trees: int, axis_size: int, member: types.Array
) -> types.Array:
  """Converts the members of entries [A, M] to [A M] indices of merged trees."""
  shift = num_trees * jnp.arange(axis_size, dtype=jnp.int32)[:, None]
  return (member + shift).reshape(-1)


@functools.cache
def make_update(
  operations: tuple[Operation, ...],
) -> Callable[..., tuple[types.Array, ...]]:
  """Makes the update of N trees for any platform, also under `vmap`.

  Args:
    operations: one for each array of trees.

  Returns:
    `(trees, member, index, value) -> trees`, jitted, since outside `jit` its
    loops would be compiled at each call.
  """

  @custom_batching.custom_vmap
  def update_fn(*args: Any) -> tuple[types.Array, ...]:
    new: tuple[types.Array, ...] = lax.platform_dependent(
      *args,
      cpu=functools.partial(update_in_sequence, operations),
      default=functools.partial(update_together, operations),
    )
    return new

  @update_fn.def_vmap
  def update_vmap(axis_size: int, is_batched: Any, *args: Any) -> Any:
    args = transforms.broadcast_members(axis_size, is_batched, args)
    trees, member, *entries = args
    member = shift_members(trees[0].shape[1], axis_size, member)
    new = update_fn(
      transforms.lay_side_by_side(trees),
      member,
      *transforms.lay_side_by_side(entries),
    )
    new = tuple(
      tree.reshape(old.shape) for tree, old in zip(new, trees, strict=True)
    )
    return new, (True,) * len(new)

  return jax.jit(update_fn)
