"""Segment trees as pure functions: sums, minima and maxima of many leaves.

A tree of any capacity keeps the sum (minimum, maximum) of its leaves at its
root, takes new leaves in O(log capacity) each, and, for sums, finds the leaf in
which a threshold falls. That is what proportional prioritized replay needs
(Schaul et al., 2016, arXiv:1511.05952, appendix B.2.1).

A tree is one array, float32 [2 P], where `P` is the smallest power of two that
holds all leaves: the root is node 1, the children of node `i` are `2 i` and
`2 i + 1`, and leaf `i` is node `P + i`. Node 0 is not used. Leaves that were
never set hold the identity of the tree's operation.

A node is always computed anew from its two children, never by adding a
difference, so that rounding does not build up: after any number of updates
the root is the pairwise sum of the leaves as they are.

On a CPU leaves are set one after another, in a loop that XLA compiles to
scalar code, up to a level with about as many nodes as leaves were set; what
stands above it is computed anew once for all. Elsewhere all leaves of a batch
climb together, level by level. Both give the same tree. Under `vmap` the trees
of a population are laid side by side in one array, since the loop of scalars
would be some hundred times slower if each of its steps were batched.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import custom_batching, lax

from ftwax import types

# float32 [2 P], see above.
SegmentTree = types.Array

# More than these are found together on a CPU, too.
_MANY_THRESHOLDS = 1024


class Operation(NamedTuple):
  """What a tree sums up with.

  Attributes:
    combine: associative and commutative, of two arrays.
    identity: what combines with anything to that thing.
  """

  combine: Callable[[types.Array, types.Array], types.Array]
  identity: float


# Not jnp.minimum and jnp.maximum, which take twice as long to hand on NaN, and
# no leaf may be that.
SUM = Operation(jnp.add, 0.0)
MIN = Operation(lambda a, b: jnp.where(a < b, a, b), float('inf'))
MAX = Operation(lambda a, b: jnp.where(a > b, a, b), -float('inf'))


def init(operation: Operation, capacity: int) -> SegmentTree:
  """Returns a tree of `capacity` leaves, all of them the identity."""
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
  """Returns the leaves [...] at `index` int32 [...], which must be in range."""
  return tree.at[tree.shape[0] // 2 + index].get(mode='promise_in_bounds')


def get_all(tree: SegmentTree, capacity: int) -> types.Array:
  """Returns all leaves [capacity]."""
  num_leaves = tree.shape[0] // 2
  return tree[num_leaves : num_leaves + capacity]


def summary(tree: SegmentTree) -> types.Array:
  """Returns the sum (minimum, maximum) of all leaves: the root."""
  return tree[1]


def count_nonzero(tree: SegmentTree) -> types.Array:
  """Counts the leaves of a sum that are not zero, int32, in O(capacity)."""
  return jnp.sum(tree[tree.shape[0] // 2 :] != 0, dtype=jnp.int32)


def update(
  operation: Operation,
  tree: SegmentTree,
  index: types.Array,
  value: types.Array,
) -> SegmentTree:
  """Sets leaves and what stands above them.

  Of entries with the same index the last one counts. Entries whose index is
  negative or past the last leaf are left out.

  Args:
    operation: that of the tree.
    tree: float32 [2 P].
    index: int32 [M].
    value: float32 [M].

  Returns:
    The new tree.
  """
  return update_all((operation,), (tree,), index, value)[0]


def update_all(
  operations: tuple[Operation, ...],
  trees: tuple[SegmentTree, ...],
  index: types.Array,
  value: types.Array,
) -> tuple[SegmentTree, ...]:
  """Sets the same leaves of several trees of one size, as `update` does.

  It costs less than to update one after another.
  """
  if index.ndim != 1 or index.shape != value.shape:
    raise ValueError(
      f'index {index.shape} and value {value.shape} must have one shape [M];'
      ' flatten them.'
    )
  member = jnp.zeros_like(index)
  trees = tuple(tree[None] for tree in trees)
  trees = _make_update(operations)(trees, member, index, value)
  return tuple(tree[0] for tree in trees)


def find_sum_bound(
  tree: SegmentTree, threshold: types.Array, remainder: types.Array
) -> tuple[types.Array, types.Array]:
  """Finds the smallest `i` such that threshold < leaf_0 + ... + leaf_i.

  The leaf found is never zero unless all are: a threshold that is the sum of
  all leaves or above gives the last leaf that is not zero, as NaN does, and
  one below zero the first.

  Args:
    tree: a sum whose leaves are not negative.
    threshold: float32 [M].
    remainder: float32 [M], what is to be added to `threshold` and is too small
      for its precision; zeros where there is none. With it leaves can be found
      whose share of the sum is below 2^-24.

  Returns:
    int32 [M], and the leaves found, float32 [M].
  """
  member = jnp.zeros(threshold.shape, jnp.int32)
  return _jitted_find(tree[None], member, threshold, remainder)


def last_occurrence(index: types.Array) -> types.Array:
  """Returns bool [M], where no later entry of `index` [M] is equal."""
  order = jnp.argsort(index, stable=True)
  ordered = index[order]
  is_last = jnp.concatenate([ordered[1:] != ordered[:-1], jnp.ones(1, bool)])
  return jnp.zeros(index.shape, bool).at[order].set(is_last)


# In what follows there are N trees [N, 2 P], of each of several operations, and
# `member` int32 [M] says to which of the N an entry belongs.


def update_in_sequence(
  operations: tuple[Operation, ...],
  trees: tuple[types.Array, ...],
  member: types.Array,
  index: types.Array,
  value: types.Array,
) -> tuple[types.Array, ...]:
  """Sets leaves one after another: what `update` does on a CPU."""
  num_trees, num_nodes = trees[0].shape
  num_leaves = num_nodes // 2
  # Leaves climb to the last level that has at most one node for each of them.
  num_entries = max(1, index.shape[0] // num_trees)
  num_tops = 1 << min(num_leaves, num_entries).bit_length() - 1
  height = (num_leaves // num_tops).bit_length() - 1

  def climb(_, carry):
    flats, base, node, values = carry
    # Of the two children one has just been computed.
    sibling = base + (node ^ 1)
    values = [
      operation.combine(value, flat[sibling])
      for operation, flat, value in zip(operations, flats, values, strict=True)
    ]
    node >>= 1
    return _write(flats, base + node, values), base, node, values

  def set_leaf(flats, entry):
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


def _renew(operations, flats, num_nodes, num_renewed):
  """Computes the uppermost nodes of each tree from their children."""

  def renew_one(i, flats):
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


def _write(flats, place, values):
  pairs = zip(flats, values, strict=True)
  return [flat.at[place].set(value) for flat, value in pairs]


def update_together(
  operations: tuple[Operation, ...],
  trees: tuple[types.Array, ...],
  member: types.Array,
  index: types.Array,
  value: types.Array,
) -> tuple[types.Array, ...]:
  """Sets all leaves at once: what `update` does on accelerators."""
  num_nodes = trees[0].shape[1]
  num_leaves = num_nodes // 2
  in_range = (index >= 0) & (index < num_leaves)
  base = member * num_nodes
  node = num_leaves + jnp.where(in_range, index, 0)
  leaf = jnp.where(in_range, base + node, trees[0].size)
  leaf = jnp.where(last_occurrence(leaf), leaf, trees[0].size)

  def update_one(operation, tree):
    def climb(level, flat):
      # Entries that were left out compute what stands there already.
      parent = node >> level
      left, right = flat[base + 2 * parent], flat[base + 2 * parent + 1]
      return flat.at[base + parent].set(operation.combine(left, right))

    flat = tree.reshape(-1).at[leaf].set(value, mode='drop')
    flat = lax.fori_loop(1, num_leaves.bit_length(), climb, flat)
    return flat.reshape(tree.shape)

  return tuple(map(update_one, operations, trees))


def _step_down(flat, base, walker):
  """Goes from a node to the child in which threshold + remainder falls."""
  node, _, threshold, remainder = walker
  left, right = flat[base + 2 * node], flat[base + 2 * node + 1]
  go_right = (right > 0) & ~(threshold < left)
  rest = threshold - left
  # What rounding takes from the sum goes on as the remainder.
  total = rest + remainder
  error = remainder - (total - rest)
  threshold = jnp.where(go_right, jnp.maximum(total, 0.0), threshold)
  remainder = jnp.where(go_right, error, remainder)
  value = jnp.where(go_right, right, left)
  return 2 * node + go_right, value, threshold, remainder


def _descend(flat, num_nodes, *entries):
  """Walks from roots to leaves, side by side; returns a leaf per entry."""
  bases = [member * num_nodes for member, *_ in entries]

  def step(_, walkers):
    pairs = zip(bases, walkers, strict=True)
    return [_step_down(flat, base, walker) for base, walker in pairs]

  start = [
    (jnp.int32(1), flat[base + 1], jnp.maximum(threshold, 0.0), remainder)
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
  """Descends for two thresholds after another two, as a CPU likes it.

  Two walks go side by side: what one reads comes while the other computes.
  XLA would not compile a loop of three to scalar code.
  """
  flat, num_nodes = trees.reshape(-1), trees.shape[1]
  num_entries = threshold.shape[0]

  def find_two(columns):
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
  """Descends for all thresholds at once, as accelerators like it."""
  flat, num_nodes = trees.reshape(-1), trees.shape[1]
  return jax.vmap(lambda *entry: _descend(flat, num_nodes, entry)[0])(
    member, threshold, remainder
  )


def _lay_side_by_side(axis_size: int, is_batched: Any, *args: Any) -> list[Any]:
  """Turns A times N trees [A, N, 2 P] into A N trees, and the entries alike.

  Args:
    axis_size: A, over which `vmap` runs.
    is_batched: which of the arguments have the axis A.
    *args: trees, members, and what else there is of each entry.
  """
  trees, member, *rest = jax.tree.map(
    lambda batched, arg: (
      arg if batched else jnp.broadcast_to(arg, (axis_size, *arg.shape))
    ),
    tuple(is_batched),
    args,
  )
  num_trees = jax.tree.leaves(trees)[0].shape[1]
  shift = num_trees * jnp.arange(axis_size, dtype=jnp.int32)[:, None]
  entries = [leaf.reshape(-1) for leaf in (member + shift, *rest)]
  trees = jax.tree.map(lambda tree: tree.reshape(-1, tree.shape[-1]), trees)
  return [trees, *entries]


@functools.cache
def _make_update(operations: tuple[Operation, ...]):
  """Makes the update of N trees for any platform, under `vmap` too."""

  @custom_batching.custom_vmap
  def update_fn(*args):
    return lax.platform_dependent(
      *args,
      cpu=functools.partial(update_in_sequence, operations),
      default=functools.partial(update_together, operations),
    )

  @update_fn.def_vmap
  def update_vmap(axis_size, is_batched, *args):
    trees = update_fn(*_lay_side_by_side(axis_size, is_batched, *args))
    shape = axis_size, -1, trees[0].shape[-1]
    trees = tuple(tree.reshape(shape) for tree in trees)
    return trees, (True,) * len(trees)

  # Jitted so that calls outside jit do not compile the loops each time.
  return jax.jit(update_fn)


@custom_batching.custom_vmap
def _find_sum_bounds(trees, member, threshold, remainder):
  is_many = threshold.shape[0] > _MANY_THRESHOLDS
  return lax.platform_dependent(
    trees,
    member,
    threshold,
    remainder,
    cpu=find_together if is_many else find_in_sequence,
    default=find_together,
  )


@_find_sum_bounds.def_vmap
def _find_sum_bounds_vmap(axis_size, is_batched, *args):
  found = _find_sum_bounds(*_lay_side_by_side(axis_size, is_batched, *args))
  found, value = (leaf.reshape(axis_size, -1) for leaf in found)
  return (found, value), (True, True)


_jitted_find = jax.jit(_find_sum_bounds)
