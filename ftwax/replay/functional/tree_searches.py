"""Searches in many segment trees at once, with an algorithm per platform.

There are N sums of P leaves, float32 [N, 2 P]; see `segment_tree`. An entry
consists of `member` int32 [M], which of the N trees to search, and `threshold`
and `remainder` float32 [M]. As in `tree_updates`, the trees of a population are
merged under `vmap`.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax import custom_batching, lax

from ftwax import types
from ftwax.replay.functional import transforms, tree_updates

# With more thresholds than this, a CPU searches for all at once, too.
_MANY_THRESHOLDS = 1024


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


@custom_batching.custom_vmap
def _find(
  trees: types.Array,
  member: types.Array,
  threshold: types.Array,
  remainder: types.Array,
) -> Any:
  is_many = threshold.shape[0] > _MANY_THRESHOLDS
  return lax.platform_dependent(
    trees,
    member,
    threshold,
    remainder,
    cpu=find_together if is_many else find_in_sequence,
    default=find_together,
  )


@_find.def_vmap
def _find_vmap(axis_size: int, is_batched: Any, *args: Any) -> Any:
  args = transforms.broadcast_members(axis_size, is_batched, args)
  trees, member, *entries = args
  member = tree_updates.shift_members(trees.shape[1], axis_size, member)
  found = _find(
    transforms.lay_side_by_side(trees),
    member,
    *transforms.lay_side_by_side(entries),
  )
  found, value = (leaf.reshape(axis_size, -1) for leaf in found)
  return (found, value), (True, True)


# Jitted so that calls outside `jit` do not compile the loops each time.
find = jax.jit(_find)
