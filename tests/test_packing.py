"""Trees that are joined in one array and split again."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ftwax import trees

# NaN, and numbers that are no floats, must keep their bits.
TREE = {
  'floats': np.array([[1.5, np.nan, -0.0], [2.0, np.inf, 3.0]], np.float32),
  'integers': (np.array([-1, 7], np.int32), np.array(5, np.int32)),
  'key': np.array([2**32 - 1, 1], np.uint32),
}


@pytest.fixture
def packing():
  return trees.Packing(TREE)


def _check(tree, expected):
  assert jax.tree.structure(tree) == jax.tree.structure(expected)
  for leaf, own in zip(
    jax.tree.leaves(tree), jax.tree.leaves(expected), strict=True
  ):
    assert leaf.shape == own.shape and leaf.dtype == own.dtype
    assert np.asarray(leaf).tobytes() == own.tobytes()


def test_a_tree_comes_back_on_the_host_and_in_compiled_code(packing):
  packed = packing.pack(TREE)
  assert packed.shape == (packing.size,) and packed.dtype == np.int32
  _check(packing.unpack(packed), TREE)
  compiled = jax.jit(packing.pack)(TREE)
  np.testing.assert_array_equal(compiled, packed)
  _check(jax.jit(packing.unpack)(jnp.asarray(packed)), TREE)


def test_leading_axes_are_kept_without_copying(packing):
  rows = np.stack([packing.pack(TREE)] * 3)
  unpacked = packing.unpack(rows)
  _check(unpacked, jax.tree.map(lambda leaf: np.stack([leaf] * 3), TREE))
  rows[1] = 0
  assert not unpacked['key'][1].any() and unpacked['key'][2].any()


def test_smaller_dtypes_come_back():
  tree = {
    'half': np.array([1.5, -2.0, np.inf], np.float16),
    'brain': np.array([3.0, -0.5], jnp.bfloat16),
    'bytes': np.array([[255, 0]], np.uint8),
    'bool': np.array([True, False]),
    **TREE,
  }
  packing = trees.Packing(tree)
  _check(packing.unpack(packing.pack(tree)), tree)
  packed = jax.jit(packing.pack)(tree)
  np.testing.assert_array_equal(packed, packing.pack(tree))
  _check(jax.jit(packing.unpack)(packed), tree)


def test_larger_dtypes_are_refused():
  with pytest.raises(TypeError, match=r'float64\) must have at most 32 bits'):
    trees.Packing({**TREE, 'double': np.zeros(3)})
