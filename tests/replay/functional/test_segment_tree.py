import functools

import hypothesis
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import strategies as st

from ftwax.replay.functional import segment_tree

OPERATIONS = {
  'sum': (segment_tree.SUM, np.add),
  'min': (segment_tree.MIN, np.minimum),
  'max': (segment_tree.MAX, np.maximum),
}


def random_updates(rng, capacity, num_updates):
  index = rng.integers(0, capacity, num_updates).astype(np.int32)
  value = rng.choice([0.0, 0.25, 1.0, 3.0], num_updates).astype(np.float32)
  return index, value


def find(tree, threshold, remainder=None):
  threshold = jnp.asarray(threshold, jnp.float32)
  if remainder is None:
    remainder = jnp.zeros_like(threshold)
  # Jitted, so that thresholds off the tree are no errors.
  find_jitted = jax.jit(segment_tree.find_sum_bound)
  found, value = find_jitted(tree, threshold, remainder)
  np.testing.assert_array_equal(value, segment_tree.get(tree, found))
  return found


@pytest.mark.ci
@pytest.mark.parametrize('name', OPERATIONS)
@pytest.mark.parametrize('capacity', [1, 2, 3, 5, 8, 13])
def test_root_sums_up_the_leaves(name, capacity):
  operation, numpy_operation = OPERATIONS[name]
  rng = np.random.default_rng(capacity)
  leaves = np.full(capacity, operation.identity, np.float32)
  tree = segment_tree.init(operation, capacity)
  assert segment_tree.summary(tree) == operation.identity
  for num_updates in (1, 4, 40):
    index, value = random_updates(rng, capacity, num_updates)
    tree = segment_tree.update(operation, tree, index, value)
    # Of equal indices the last one counts, as in NumPy.
    for i, v in zip(index, value, strict=True):
      leaves[i] = v
    np.testing.assert_array_equal(segment_tree.get_all(tree, capacity), leaves)
    np.testing.assert_array_equal(segment_tree.get(tree, index), leaves[index])
    root = numpy_operation.reduce(leaves.astype(np.float64))
    assert segment_tree.summary(tree) == root
    np.testing.assert_array_equal(
      segment_tree.build(operation, jnp.asarray(leaves)), tree
    )
  if name == 'sum':
    assert segment_tree.count_nonzero(tree) == np.count_nonzero(leaves)


@pytest.mark.ci
@pytest.mark.parametrize('capacity', [1, 6, 64])
def test_both_ways_give_the_same_tree(capacity):
  rng = np.random.default_rng(0)
  num_trees, num_updates = 3, 50
  trees = jnp.stack(
    [
      segment_tree.build(
        segment_tree.SUM, jnp.asarray(rng.random(capacity), jnp.float32)
      )
      for _ in range(num_trees)
    ]
  )
  member = rng.integers(0, num_trees, num_updates).astype(np.int32)
  index = rng.integers(-2, capacity + 3, num_updates).astype(np.int32)
  value = rng.random(num_updates).astype(np.float32)
  operations = segment_tree.SUM, segment_tree.MAX
  maxima = jnp.stack(
    [
      segment_tree.build(
        segment_tree.MAX, segment_tree.get_all(tree, trees.shape[1] // 2)
      )
      for tree in trees
    ]
  )
  args = operations, (trees, maxima), member, index, value
  one_by_one, one_by_one_max = segment_tree.update_in_sequence(*args)
  together, together_max = segment_tree.update_together(*args)
  np.testing.assert_array_equal(one_by_one, together)
  np.testing.assert_array_equal(one_by_one_max, together_max)
  # Something was set, and what lies out of range was left out.
  assert not np.array_equal(one_by_one, trees)
  inside = (index >= 0) & (index < trees.shape[1] // 2)
  kept = (arg[inside] for arg in (member, index, value))
  np.testing.assert_array_equal(
    segment_tree.update_in_sequence(operations[:1], (trees,), *kept)[0],
    together,
  )
  threshold = rng.random(num_updates).astype(np.float32) * trees[member, 1]
  args = trees, member, threshold, np.zeros_like(threshold)
  np.testing.assert_array_equal(
    segment_tree.find_in_sequence(*args), segment_tree.find_together(*args)
  )


def test_vmap_over_trees_is_one_tree_after_another():
  rng = np.random.default_rng(1)
  shape = 2, 3  # Of populations of trees.
  capacity, num_updates = 9, 12
  index, value = random_updates(rng, capacity, num_updates * 6)
  index, value = (x.reshape(*shape, -1) for x in (index, value))
  trees = jnp.zeros((*shape, 32))
  update = functools.partial(segment_tree.update, segment_tree.SUM)
  new = jax.jit(jax.vmap(jax.vmap(update)))(trees, index, value)
  threshold = rng.random((*shape, 5)).astype(np.float32) * new[..., 1:2]
  find_all = jax.vmap(jax.vmap(segment_tree.find_sum_bound))
  found, found_value = find_all(new, threshold, np.zeros_like(threshold))
  for i in np.ndindex(shape):
    want = update(trees[i], index[i], value[i])
    np.testing.assert_array_equal(new[i], want)
    np.testing.assert_array_equal(found[i], find(want, threshold[i]))
    np.testing.assert_array_equal(found_value[i], want[16 + found[i]])
  # What is not batched is shared.
  shared = jax.vmap(update, in_axes=(None, 0, None))(
    trees[0, 0], index[0], value[0, 0]
  )
  want = update(trees[0, 0], index[0, 2], value[0, 0])
  np.testing.assert_array_equal(shared[2], want)


@hypothesis.settings(max_examples=100, deadline=None, derandomize=True)
@hypothesis.given(
  leaves=st.lists(st.integers(0, 3), min_size=8, max_size=8),
  threshold=st.integers(0, 60),
)
def test_find_sum_bound_is_its_definition(leaves, threshold):
  # Quarters, so that float32 is exact and boundaries are hit.
  leaves, threshold = np.array(leaves) / 4, threshold / 8
  tree = segment_tree.build(segment_tree.SUM, jnp.asarray(leaves, jnp.float32))
  found = int(find(tree, [threshold])[0])
  above = np.flatnonzero(threshold < np.cumsum(leaves))
  nonzero = np.flatnonzero(leaves)
  if len(above):
    assert found == above[0]
  elif len(nonzero):
    assert found == nonzero[-1]
  else:
    assert found == 0


@pytest.mark.parametrize('threshold', [-1.0, np.nan, np.inf, 1e30, 3.0])
def test_find_sum_bound_never_finds_zero(threshold):
  leaves = jnp.array([0.0, 1.0, 0.0, 2.0, 0.0])
  tree = segment_tree.build(segment_tree.SUM, leaves)
  found = int(find(tree, [threshold])[0])
  assert found == (1 if threshold == -1 else 3)


def test_remainder_reaches_small_leaves():
  # Thresholds of float32 step over leaves of 1 behind one of 2^26.
  leaves = jnp.array([2.0**26, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0])
  tree = segment_tree.build(segment_tree.SUM, leaves)
  threshold = jnp.full([4], 2.0**26)
  remainder = jnp.array([0.5, 1.5, 2.5, 3.5])
  np.testing.assert_array_equal(find(tree, threshold, remainder), [4, 5, 6, 7])


def test_a_million_updates_keep_the_root():
  capacity, batch_size, num_batches = 1000, 500, 2000
  tree = segment_tree.init(segment_tree.SUM, capacity)

  def step(carry, key):
    tree, smallest = carry
    keys = jax.random.split(key, 4)
    index = jax.random.randint(keys[0], [batch_size], 0, capacity)
    # Priorities that span fourteen orders of magnitude, and zeros.
    value = 10 ** jax.random.uniform(keys[1], [batch_size], minval=-7, maxval=7)
    value *= jax.random.bernoulli(keys[2], 0.9, [batch_size])
    tree = segment_tree.update(segment_tree.SUM, tree, index, value)
    threshold = segment_tree.summary(tree) * jax.random.uniform(keys[3], [8])
    found, leaf = segment_tree.find_sum_bound(tree, threshold, jnp.zeros(8))
    leaf = jnp.where(found < capacity, leaf, 0.0)
    return (tree, jnp.minimum(smallest, jnp.min(leaf))), None

  keys = jax.random.split(jax.random.PRNGKey(0), num_batches)
  run = jax.jit(lambda carry: jax.lax.scan(step, carry, keys)[0])
  tree, smallest = run((tree, jnp.float32(jnp.inf)))
  leaves = np.asarray(segment_tree.get_all(tree, capacity), np.float64)
  assert abs(segment_tree.summary(tree) - leaves.sum()) / leaves.sum() < 1e-6
  assert smallest > 0


def test_last_occurrence():
  index = jnp.array([3, 1, 3, 2, 1, 3])
  np.testing.assert_array_equal(
    segment_tree.last_occurrence(index), [0, 0, 0, 1, 1, 1]
  )


def test_errors():
  with pytest.raises(ValueError, match=r'capacity \(0\) .* at least 1'):
    segment_tree.init(segment_tree.SUM, 0)
  tree = segment_tree.init(segment_tree.SUM, 4)
  with pytest.raises(ValueError, match=r'index \(2,\) and value \(3,\) must'):
    segment_tree.update(
      segment_tree.SUM, tree, jnp.zeros(2, jnp.int32), jnp.zeros(3)
    )


def test_what_is_off_the_tree_is_refused_or_left_out():
  leaves = jnp.array([0.0, 1.0, 0.0, 2.0])
  tree = segment_tree.build(segment_tree.SUM, leaves)

  def update(index, value):
    return segment_tree.update(
      segment_tree.SUM, tree, jnp.array([index]), jnp.array([value])
    )

  for index, value, message in (
    (4, 1.0, r'index of a leaf must lie in \[-1, 4\), got 4'),
    (-2, 1.0, r'index of a leaf must lie in \[-1, 4\), got -2'),
    (1, np.nan, r'value of a leaf must not be NaN'),
  ):
    with pytest.raises(ValueError, match=message):
      update(index, value)
    np.testing.assert_array_equal(jax.jit(update)(index, value), tree)
  np.testing.assert_array_equal(update(segment_tree.LEFT_OUT, 1.0), tree)
  with pytest.raises(ValueError, match=r'must lie in \[0, 4\), got -1'):
    segment_tree.get(tree, jnp.array([0, -1]))
  last, leaf = segment_tree.find_sum_bound(tree, jnp.array([3.0]), jnp.zeros(1))
  assert leaf[0] > 0 and not np.any(
    segment_tree.get_all(tree, 4)[last[0] + 1 :]
  )
  for threshold in (-1.0, np.nan, 3.5):
    with pytest.raises(ValueError, match=r'must lie in \[0, 3.0\]'):
      segment_tree.find_sum_bound(tree, jnp.array([threshold]), jnp.zeros(1))
