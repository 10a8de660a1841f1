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

The algorithms, with one for each platform, take N trees at once, float32 [N, 2
P]: under `vmap` the trees of a population are merged, since a loop of scalars
would be about a hundred times slower if each of its steps were batched. Their
entries name one of the N trees in `member` int32 [M].

On a CPU, leaves are set one after another, in a loop that XLA compiles to
scalar code, up to the level that has about as many nodes as leaves were set;
the nodes above it are then computed once. On other platforms all leaves of a
batch climb together, level by level. Both result in the same trees.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from ftwax import shapes, types
from ftwax.replay.functional import replay_checks, transforms

# float32 [2 P], see above.
SegmentTree = types.Array

# With more thresholds than this, a CPU searches for all at once, too.
_MANY_THRESHOLDS = 1024


class Operation(NamedTuple):
  """Combines two children into their parent.

  Attributes:
    combine: an associative and commutative function of two arrays.
    identity: the neutral element of `combine`.
  """

  combine: Callable[[types.Array, types.Array], types.Array]
  identity: float


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
  shapes.check('build', leaves=(leaves, 'capacity'))
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
  trees = make_update(operations)(trees, member, index, value)
  return tuple(tree[0] for tree in trees)


def find_sum_bound(
  tree: SegmentTree, threshold: types.Array, remainder: types.Array
) -> tuple[types.Array, types.Array]:
  """Finds the smallest `i` such that threshold < leaf_0 + ... + leaf_i.

  The leaf found is never zero unless all are.

  Args:
    tree: a sum whose leaves are non-negative.
    threshold: float32 [M], in [0, sum of all leaves]; the sum itself, to which
      a product may be rounded, finds the last nonzero leaf.
    remainder: float32 [M], added to `threshold`, for bits beyond its precision;
      zeros if there are none. With it, leaves can be found whose share of the
      sum is below 2^-24.

  Returns:
    The indices, int32 [M], and the leaves, float32 [M]. Under `jit`, a
    threshold above the sum of all leaves, or of NaN, finds the last nonzero
    leaf, too, and a negative one the first.

  Raises:
    ValueError: outside `jit`, if a threshold is out of range.
  """
  threshold = jnp.asarray(threshold)
  total = summary(tree)
  in_range = (threshold >= 0) & (threshold <= total)
  replay_checks.check(
    False,
    in_range,
    'threshold must lie in [0, {total}], the sum of all leaves, got'
    ' {threshold}; scale it by summary(tree).',
    total=total,
    threshold=threshold,
  )
  return search(tree, threshold, remainder)


def search(
  tree: SegmentTree, threshold: types.Array, remainder: types.Array
) -> tuple[types.Array, types.Array]:
  """Does the same as `find_sum_bound` under `jit`, without checks."""
  args = transforms.vary_alike((tree, threshold, remainder))
  tree, threshold, remainder = args
  member = jnp.zeros_like(threshold, jnp.int32)
  return _find(tree[None], member, threshold, remainder)


def _check_index(tree: SegmentTree, index: types.Array, lowest: int) -> None:
  num_leaves = tree.shape[0] // 2
  index = jnp.asarray(index)
  in_range = (index >= lowest) & (index < num_leaves)
  replay_checks.check(
    False,
    in_range,
    f'index of a leaf must lie in [{lowest}, {num_leaves}), got {{index}};'
    ' make a tree of a larger capacity.',
    index=index,
  )


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
  return lax.fori_loop(0, num_trees * num_renewed, renew_one, flats)


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
    return flat.reshape(tree.shape)

  return tuple(map(update_one, operations, trees))


def _shift_members(
  axis_size: int, trees: Any, member: types.Array, *columns: types.Array
) -> tuple[Any, ...]:
  """Points the entries of A members, [A, M], to their trees, [A, N, 2 P]."""
  num_trees = jax.tree.leaves(trees)[0].shape[1]
  shift = num_trees * jnp.arange(axis_size, dtype=jnp.int32)[:, None]
  return trees, member + shift, *columns


@functools.cache
def make_update(
  operations: tuple[Operation, ...],
) -> Callable[..., tuple[types.Array, ...]]:
  """Makes the update of N trees for any platform, also under `vmap`.

  Args:
    operations: one for each array of trees.

  Returns:
    `(trees, member, index, value) -> trees`.
  """

  def update_fn(*args: Any) -> tuple[types.Array, ...]:
    return lax.platform_dependent(
      *args,
      cpu=functools.partial(update_in_sequence, operations),
      default=functools.partial(update_together, operations),
    )

  return transforms.merge_members(update_fn, _shift_members)


def _step_down(
  flat: types.Array, base: types.Array, walker: tuple[types.Array, ...]
) -> tuple[types.Array, ...]:
  """Moves from a node to the child in which threshold + remainder falls."""
  node, _, threshold, remainder = walker
  left, right = flat[base + 2 * node], flat[base + 2 * node + 1]
  # `~(<)` instead of `>=`, so that NaN also finds a nonzero leaf, the last one.
  go_right = (right > 0) & ~(threshold < left)
  rest = threshold - left
  # The rounding error of the sum becomes the remainder.
  total = rest + remainder
  error = remainder - (total - rest)
  threshold = jnp.where(go_right, jnp.maximum(total, 0.0), threshold)
  remainder = jnp.where(go_right, error, remainder)
  value = jnp.where(go_right, right, left)
  return 2 * node + go_right.astype(jnp.int32), value, threshold, remainder


def _descend(
  flat: types.Array, num_nodes: int, *entries: tuple[types.Array, ...]
) -> list[tuple[types.Array, types.Array]]:
  """Walks from root to leaf for several entries; returns a leaf per entry."""
  bases = [member * num_nodes for member, *_ in entries]

  def step(_: Any, walkers: Any) -> Any:
    pairs = zip(bases, walkers, strict=True)
    return [_step_down(flat, base, walker) for base, walker in pairs]

  # Under `shard_map`, all parts of a carry must vary over the same axes.
  root, _ = transforms.vary_alike((jnp.int32(1), flat))
  start = [
    (root, flat[base + 1], jnp.maximum(threshold, 0.0), remainder)
    for base, (_, threshold, remainder) in zip(bases, entries, strict=True)
  ]
  depth = (num_nodes // 2).bit_length() - 1
  walkers = lax.fori_loop(0, depth, step, start)
  return [(node - num_nodes // 2, value) for node, value, *_ in walkers]


def find_in_sequence(
  trees: types.Array,
  member: types.Array,
  threshold: types.Array,
  remainder: types.Array,
) -> tuple[types.Array, types.Array]:
  """Descends for two thresholds at a time, which is fastest on a CPU.

  Two walks are interleaved: one computes while the other waits for memory. XLA
  would not compile a loop of three to scalar code.
  """
  flat, num_nodes = trees.reshape(-1), trees.shape[1]
  num_entries = threshold.shape[0]

  def find_two(columns: Any) -> Any:
    rows = [tuple(column[i] for column in columns) for i in range(2)]
    found = _descend(flat, num_nodes, *rows)
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *found)

  columns = [
    jnp.pad(column, (0, num_entries % 2)).reshape(-1, 2)
    for column in (member, threshold, remainder)
  ]
  found, value = lax.map(find_two, columns)
  return found.reshape(-1)[:num_entries], value.reshape(-1)[:num_entries]


def find_together(
  trees: types.Array,
  member: types.Array,
  threshold: types.Array,
  remainder: types.Array,
) -> tuple[types.Array, types.Array]:
  """Descends for all thresholds at once, which is fastest on accelerators."""
  flat, num_nodes = trees.reshape(-1), trees.shape[1]
  found, value = jax.vmap(lambda *entry: _descend(flat, num_nodes, entry)[0])(
    member, threshold, remainder
  )
  return found, value


def _find_on_platform(*args: types.Array) -> tuple[types.Array, types.Array]:
  is_many = args[-1].shape[0] > _MANY_THRESHOLDS
  return lax.platform_dependent(
    *args,
    cpu=find_together if is_many else find_in_sequence,
    default=find_together,
  )


_find = transforms.merge_members(_find_on_platform, _shift_members)
