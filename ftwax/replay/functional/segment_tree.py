"""Segment trees as pure functions: sums, minima and maxima of many leaves.

The root of a tree holds the sum (minimum, maximum) of its leaves. Setting a
leaf takes O(log capacity). For sums, a search finds the leaf in which a
threshold falls, as proportional prioritized replay needs (Schaul et al., 2016,
arXiv:1511.05952, appendix B.2.1).

A tree is one array, float32 [2 P], where `P` is the smallest power of two that
holds all leaves: the root is node 1, the children of node `i` are `2 i` and
`2 i + 1`, and leaf `i` is node `P + i`. Node 0 is not used. Leaves that were
never set hold the identity of the tree's operation.

A node is always computed from its two children, never by adding a difference,
so that rounding errors do not accumulate: after any number of updates the root
is the pairwise sum of the current leaves.

The algorithms are in `tree_updates` and `tree_searches`.
"""

import jax.numpy as jnp

from ftwax import types
from ftwax.replay.functional import (
  replay_checks,
  transforms,
  tree_searches,
  tree_updates,
)

# float32 [2 P], see above.
SegmentTree = types.Array

Operation = tree_updates.Operation

# Entries with this index are skipped in an update.
LEFT_OUT = -1

# jnp.minimum and jnp.maximum take twice as long, since they propagate NaN. No
# leaf may be NaN.
SUM = Operation(jnp.add, 0.0)
MIN = Operation(lambda a, b: jnp.where(a < b, a, b), float('inf'))
MAX = Operation(lambda a, b: jnp.where(a > b, a, b), -float('inf'))


def init(operation: Operation, capacity: int) -> SegmentTree:
  """Returns a tree with `capacity` leaves, all of them the identity."""
  if capacity < 1:
    raise ValueError(
      f'capacity ({capacity}) of a segment tree must be at least 1; give the'
      ' number of leaves.'
    )
  num_leaves = 1 << (capacity - 1).bit_length()
  return jnp.full([2 * num_leaves], operation.identity, jnp.float32)


def build(operation: Operation, leaves: types.Array) -> SegmentTree:
  """Returns the tree of `leaves` [capacity], in O(capacity)."""
  capacity = leaves.shape[0]
  empty = init(operation, capacity)
  level = empty[empty.shape[0] // 2 :].at[:capacity].set(leaves)
  levels = [level]
  while level.shape[0] > 1:
    level = operation.combine(level[0::2], level[1::2])
    levels.append(level)
  return jnp.concatenate([empty[:1], *reversed(levels)])


def get(tree: SegmentTree, index: types.Array) -> types.Array:
  """Returns leaves.

  Args:
    tree: float32 [2 P].
    index: int32 [...], in [0, P). Under `jit`, others return arbitrary values.

  Returns:
    float32 [...].

  Raises:
    ValueError: outside `jit`, if an index is out of range.
  """
  _check_index(tree, index, lowest=0)
  return take(tree, index)


def take(tree: SegmentTree, index: types.Array) -> types.Array:
  """Returns leaves [...] at `index` int32 [...], which must be in range."""
  return tree.at[tree.shape[0] // 2 + index].get(mode='promise_in_bounds')


def get_all(tree: SegmentTree, capacity: int) -> types.Array:
  """Returns all leaves [capacity]."""
  num_leaves = tree.shape[0] // 2
  return tree[num_leaves : num_leaves + capacity]


def summary(tree: SegmentTree) -> types.Array:
  """Returns the sum (minimum, maximum) of all leaves, which is the root."""
  return tree[1]


def count_nonzero(tree: SegmentTree) -> types.Array:
  """Counts the nonzero leaves of a sum, int32 [], in O(capacity)."""
  return jnp.sum(tree[tree.shape[0] // 2 :] != 0, dtype=jnp.int32)


def update(
  operation: Operation,
  tree: SegmentTree,
  index: types.Array,
  value: types.Array,
) -> SegmentTree:
  """Sets leaves and recomputes their ancestors.

  If an index is repeated, the last entry counts.

  Args:
    operation: the tree's operation.
    tree: float32 [2 P].
    index: int32 [M], in [0, P); entries of `LEFT_OUT` are skipped.
    value: float32 [M], not NaN.

  Returns:
    The new tree. Under `jit`, entries with an index out of range or a value of
    NaN are skipped.

  Raises:
    ValueError: if the shapes differ; outside `jit`, if an index is out of range
      or a value is NaN.
  """
  index, value = jnp.asarray(index), jnp.asarray(value)
  if index.ndim != 1 or index.shape != value.shape:
    raise ValueError(
      f'index {index.shape} and value {value.shape} must have one shape [M];'
      ' flatten them.'
    )
  _check_index(tree, index, lowest=LEFT_OUT)
  is_nan = jnp.isnan(value)
  replay_checks.check(
    False,
    ~is_nan,
    'value of a leaf must not be NaN, which would spread to the root; skip the'
    f' entry with an index of {LEFT_OUT}.',
  )
  index = jnp.where(is_nan, LEFT_OUT, index)
  return update_all((operation,), (tree,), index, value)[0]


def update_all(
  operations: tuple[Operation, ...],
  trees: tuple[SegmentTree, ...],
  index: types.Array,
  value: types.Array,
) -> tuple[SegmentTree, ...]:
  """Sets the same leaves of several trees of one size, without checks.

  This costs less than updating one tree after another.

  Args:
    operations: one for each tree.
    trees: float32 [2 P] each.
    index: int32 [M]; entries out of range are skipped.
    value: float32 [M], not NaN.

  Returns:
    The new trees.
  """
  trees, index, value = transforms.vary_alike((trees, index, value))
  member = jnp.zeros_like(index)
  trees = tuple(tree[None] for tree in trees)
  trees = tree_updates.make_update(operations)(trees, member, index, value)
  return tuple(tree[0] for tree in trees)


def find_sum_bound(
  tree: SegmentTree, threshold: types.Array, remainder: types.Array
) -> tuple[types.Array, types.Array]:
  """Finds the smallest `i` such that threshold < leaf_0 + ... + leaf_i.

  The leaf found is never zero unless all are.

  Args:
    tree: a sum whose leaves are non-negative.
    threshold: float32 [M], in [0, sum of all leaves).
    remainder: float32 [M], added to `threshold`, for bits beyond its precision;
      zeros if there are none. With it, leaves can be found whose share of the
      sum is below 2^-24.

  Returns:
    The indices, int32 [M], and the leaves, float32 [M]. Under `jit`, a
    threshold of at least the sum of all leaves, or of NaN, finds the last
    nonzero leaf, and a negative one the first.

  Raises:
    ValueError: outside `jit`, if a threshold is out of range.
  """
  threshold = jnp.asarray(threshold)
  total = summary(tree)
  in_range = (threshold >= 0) & (threshold < total)
  replay_checks.check(
    False,
    in_range,
    'threshold must lie in [0, {total}), the sum of all leaves, got'
    ' {threshold}; scale it by summary(tree).',
    total=total,
    threshold=threshold[jnp.argmin(in_range)] if threshold.size else 0.0,
  )
  return search(tree, threshold, remainder)


def search(
  tree: SegmentTree, threshold: types.Array, remainder: types.Array
) -> tuple[types.Array, types.Array]:
  """Does the same as `find_sum_bound` under `jit`, without checks."""
  args = transforms.vary_alike((tree, threshold, remainder))
  tree, threshold, remainder = args
  member = jnp.zeros_like(threshold, jnp.int32)
  found: tuple[types.Array, types.Array] = tree_searches.find(
    tree[None], member, threshold, remainder
  )
  return found


def _check_index(tree: SegmentTree, index: types.Array, lowest: int) -> None:
  num_leaves = tree.shape[0] // 2
  index = jnp.asarray(index)
  in_range = (index >= lowest) & (index < num_leaves)
  replay_checks.check(
    False,
    in_range,
    f'index of a leaf must lie in [{lowest}, {num_leaves}), got {{index}};'
    ' make a tree of a larger capacity.',
    index=index.reshape(-1)[jnp.argmin(in_range)] if index.size else 0,
  )
