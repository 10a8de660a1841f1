import collections

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ftwax.replay.functional import draws, segment_tree


def chi_square(counts, expected):
  """Returns by how many standard deviations counts are off; about normal."""
  counts, expected = np.asarray(counts), np.asarray(expected)
  statistic = np.sum((counts - expected) ** 2 / expected)
  freedom = len(counts) - 1
  # Wilson and Hilferty, 1931.
  mean = 1 - 2 / (9 * freedom)
  return ((statistic / freedom) ** (1 / 3) - mean) / np.sqrt(2 / (9 * freedom))


def test_scale_bits_is_exact():
  rng = np.random.default_rng(0)
  bits = rng.integers(0, 2**32, (2, 200), dtype=np.uint32)
  bits[:, :2] = [[0, 2**32 - 1], [0, 2**32 - 1]]
  num_values = rng.integers(1, 2**30, 200).astype(np.int32)
  num_values[2:12] = [1, 2, 3, 7, 2**30, 2**30 - 1, 2**16, 2**16 + 1, 5, 6]
  want = [
    ((int(high) * 2**32 + int(low)) * int(n)) >> 64
    for high, low, n in zip(*bits, num_values, strict=True)
  ]
  got = draws.scale_bits(jnp.asarray(bits), jnp.asarray(num_values))
  np.testing.assert_array_equal(got, want)


def uniform_batches(num_candidates, batch_size, num_recent, method):
  groups = draws.make_groups(batch_size, jnp.int32(num_recent))

  def draw(key):
    bits = jax.random.bits(key, (2, batch_size + 2))
    return draws.draw_uniform(bits, groups, num_candidates, method)

  keys = jax.random.split(jax.random.PRNGKey(7), 4000)
  return np.asarray(jax.jit(jax.vmap(draw))(keys))


@pytest.mark.parametrize('method', [draws.INDEPENDENT, draws.STRATIFIED])
@pytest.mark.parametrize('size', [1, 6, 9, 23])
def test_uniform_draws_are_uniform(method, size):
  batch_size, num_recent = 6, 2
  # Two rows of 3 candidates, four of `size`.
  num_candidates = jnp.array([3, 3, size, size, size, size], jnp.int32)
  numbers = uniform_batches(num_candidates, batch_size, num_recent, method)
  assert np.all((numbers >= 0) & (numbers < np.asarray(num_candidates)))
  for group, num in ((numbers[:, :2], 3), (numbers[:, 2:], size)):
    counts = np.bincount(group.reshape(-1), minlength=num)
    if num > 1:
      # Rows of a stratified batch are not independent, which can only make
      # the counts more even.
      assert chi_square(counts, np.full(num, group.size / num)) < 3
    if method == draws.STRATIFIED and num >= group.shape[1]:
      assert all(len(set(row)) == len(row) for row in group)


def test_independent_draws_repeat():
  numbers = uniform_batches(
    jnp.full([6], 9, jnp.int32), 6, 0, draws.INDEPENDENT
  )
  share_of_repeats = np.mean([len(set(row)) < 6 for row in numbers])
  # 1 - 9! / 3! / 9^6 = 0.886.
  assert abs(share_of_repeats - 0.886) < 0.02


def test_locate():
  counts = jnp.array([2, 0, 3, 1], jnp.int32)
  env_id, rank = draws.locate(jnp.arange(6, dtype=jnp.int32), counts)
  np.testing.assert_array_equal(env_id, [0, 0, 2, 2, 2, 3])
  np.testing.assert_array_equal(rank, [0, 1, 0, 1, 2, 0])
  many = jnp.ones([300], jnp.int32)
  env_id, rank = draws.locate(jnp.array([0, 299, 17], jnp.int32), many)
  np.testing.assert_array_equal(env_id, [0, 299, 17])
  np.testing.assert_array_equal(rank, 0)


@pytest.mark.parametrize('method', [draws.INDEPENDENT, draws.STRATIFIED])
def test_proportional_draws_are_proportional(method):
  batch_size, num_recent = 7, 2
  leaves = np.array([1, 0, 2, 0.5, 0, 3, 0.25, 4])
  tree = segment_tree.build(segment_tree.SUM, jnp.asarray(leaves, jnp.float32))
  groups = draws.make_groups(batch_size, jnp.int32(num_recent))

  def draw(key):
    bits = jax.random.bits(key, (2, batch_size))
    leaf, value = draws.draw_proportional(bits, groups, tree, method)
    return leaf[num_recent:], value[num_recent:]

  keys = jax.random.split(jax.random.PRNGKey(3), 8000)
  found, value = jax.device_get(jax.jit(jax.vmap(draw))(keys))
  np.testing.assert_array_equal(value, leaves[found])
  counts = np.bincount(found.reshape(-1), minlength=len(leaves))
  np.testing.assert_array_equal(counts[leaves == 0], 0)
  expected = leaves / leaves.sum() * found.size
  assert chi_square(counts[leaves > 0], expected[leaves > 0]) < 3
  if method == draws.STRATIFIED:
    # A row each for every whole part of the batch that is a leaf's share.
    whole = np.floor(leaves / leaves.sum() * found.shape[1]) - 1
    for row in found[:200]:
      assert np.all(np.bincount(row, minlength=len(leaves)) >= whole)


def first_draws(weights, num_rows, num_recent=0, is_recent=None):
  groups = draws.make_groups(num_rows, jnp.int32(num_recent))
  keys = jax.random.split(jax.random.PRNGKey(5), 20_000)
  draw = jax.vmap(
    lambda key: draws.draw_distinct(key, groups, weights, is_recent)
  )
  index, was_found = jax.jit(draw)(keys)
  return np.asarray(index), np.asarray(was_found)


def test_distinct_draws_are_drawn_one_after_another():
  weights = np.array([1.0, 3.0, 0.0, 2.0, 4.0])
  index, was_found = first_draws(jnp.asarray(weights, jnp.float32), 2)
  assert np.all(was_found)
  pairs = collections.Counter(map(tuple, index))
  expected = {
    (i, j): weights[i] / 10 * weights[j] / (10 - weights[i])
    for i in range(5)
    for j in range(5)
    if i != j and weights[i] and weights[j]
  }
  assert set(pairs) == set(expected)
  counts = [pairs[pair] for pair in expected]
  assert chi_square(counts, 20_000 * np.array(list(expected.values()))) < 3


def test_distinct_draws_of_recent_rows():
  weights = jnp.array([1.0, 3.0, 0.0, 2.0, 4.0])
  is_recent = jnp.array([True, True, False, False, False])
  index, was_found = first_draws(weights, 3, 1, is_recent)
  assert np.all(was_found)
  assert all(len(set(row)) == 3 for row in index[:1000])
  counts = np.bincount(index[:, 0], minlength=5)
  assert chi_square(counts[:2], [10_000, 10_000]) < 3
  np.testing.assert_array_equal(counts[2:], 0)
  # Given the first, the second is proportional among those left.
  second = index[index[:, 0] == 0, 1]
  counts = np.bincount(second, minlength=5)[[1, 3, 4]]
  assert chi_square(counts, len(second) * np.array([3, 2, 4]) / 9) < 3


def test_distinct_draws_tell_when_nothing_is_left():
  index, was_found = first_draws(jnp.array([0.0, 1.0, 0.0, 2.0]), 3)
  np.testing.assert_array_equal(was_found, [[True, True, False]] * 20_000)
  assert set(index[:, :2].reshape(-1)) == {1, 3}
  # More rows than leaves.
  _, was_found = first_draws(jnp.array([1.0, 1.0]), 3)
  np.testing.assert_array_equal(was_found[0], [True, True, False])
