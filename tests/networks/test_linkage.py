import dnc_oracle as oracle
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import test_util

from ftwax.networks.dnc import (
  lazy_link,
  link_update,
  linkage,
  sparse_linkage,
)

pytestmark = pytest.mark.slow

NUM_SLOTS, NUM_READS, NUM_LINKS = 7, 3, 4


def weights(seed, *shape, total=0.9):
  """Draws weights over slots that sum to `total`."""
  drawn = np.random.default_rng(seed).exponential(size=shape) ** 3
  return (total * drawn / drawn.sum(-1, keepdims=True)).astype(np.float32)


def grow_link(update, initial, num_steps, seed=0, total=0.9):
  """Writes for some steps; returns link, precedence and dense forms of both."""
  link, precedence = initial, jnp.zeros((2, NUM_SLOTS))
  history = []
  for t in range(num_steps):
    w = weights(seed + t, 2, NUM_SLOTS, total=total)
    link = update(link, w, precedence)
    history.append((w, precedence, link))
    precedence = linkage.update_precedence(precedence, w)
  return history


@pytest.mark.parametrize('seed', range(3))
def test_exact_link_is_that_of_the_oracle(seed):
  initial = jnp.zeros((2, NUM_SLOTS, NUM_SLOTS))
  reads = weights(seed, 2, NUM_READS, NUM_SLOTS, total=1.0)
  old = np.zeros((2, NUM_SLOTS, NUM_SLOTS))
  history = grow_link(linkage.update_link, initial, 6, 10 * seed)
  for w, precedence, link in history:
    directional = linkage.directional_reads(link, reads)
    for b in range(2):
      old[b] = oracle.link(old[b], w[b], np.asarray(precedence[b], np.float64))
      np.testing.assert_allclose(link[b], old[b], atol=1e-5)
      np.testing.assert_allclose(
        directional.forward[b], reads[b] @ old[b].T, atol=1e-5
      )
      np.testing.assert_allclose(
        directional.backward[b], reads[b] @ old[b], atol=1e-5
      )


def test_rows_and_columns_sum_to_at_most_one_and_the_diagonal_is_zero():
  initial = jnp.zeros((2, NUM_SLOTS, NUM_SLOTS))
  history = grow_link(linkage.update_link, initial, 50, total=1.0)
  for _, precedence, link in history:
    assert np.all(np.sum(link, -1) <= 1.0 + 1e-5)
    assert np.all(np.sum(link, -2) <= 1.0 + 1e-5)
    assert np.all(np.sum(precedence, -1) <= 1.0 + 1e-5)
    np.testing.assert_array_equal(
      np.diagonal(link, axis1=-2, axis2=-1), np.zeros((2, NUM_SLOTS))
    )
  assert np.max(history[-1][2]) > 0.01


def link_inputs(seed, num_writes):
  """Returns a link, the writes after it, read weights, and what to keep."""
  *_, (w, precedence, link) = grow_link(
    linkage.update_link, jnp.zeros((2, NUM_SLOTS, NUM_SLOTS)), 5, seed
  )
  writes = []
  for i in range(num_writes):
    precedence = linkage.update_precedence(precedence, w)
    w = weights(seed + 17 + i, 2, NUM_SLOTS)
    writes.append(link_update.Write(jnp.array(w), precedence))
  reads = weights(seed + 7, 2, NUM_READS, NUM_SLOTS, total=1.0)
  return link, writes, jnp.array(reads)


def plain(link, writes, reads, keep):
  """Returns the link and the reads after each write."""
  link = keep[:, None, None] * link
  all_reads = []
  for write in writes:
    link = linkage.update_link(link, *write)
    all_reads.append(linkage.directional_reads(link, reads))
  return link, all_reads


def lazy(link, writes, reads, keep):
  """Does the same; all writes but the last one are reads ahead."""
  num_taps = lazy_link.TAPS_PER_READ * NUM_READS * (len(writes) > 1)
  link = lazy_link.make_lazy(link, num_taps)._replace(keep=keep)
  all_reads = []
  for write in writes[:-1]:
    link, ahead = lazy_link.read_ahead(lazy_link.flush(link), write, reads)
    all_reads.append(ahead)
  link, last = lazy_link.update_and_read(link, writes[-1], reads)
  return link.matrix, [*all_reads, last]


def assert_close(expected, found, **tolerance):
  jax.tree.map(
    lambda x, y: np.testing.assert_allclose(x, y, **tolerance), expected, found
  )


@pytest.mark.parametrize('num_writes', [1, 2, 3])
@pytest.mark.parametrize('seed', range(3))
def test_lazy_link_is_the_plain_link_in_value_and_gradient(seed, num_writes):
  inputs = link_inputs(seed, num_writes)
  keep = jnp.ones((2,))
  expected, plain_backward = jax.vjp(lambda *x: plain(*x, keep), *inputs)
  found, lazy_backward = jax.vjp(lambda *x: lazy(*x, keep), *inputs)
  assert_close(expected, found, atol=1e-6)
  rng = np.random.default_rng(seed)
  cotangents = jax.tree.map(
    lambda leaf: rng.normal(size=leaf.shape).astype(np.float32), expected
  )
  expected, *expected_rest = plain_backward(cotangents)
  found, *found_rest = lazy_backward(cotangents)
  # The diagonal is zero before every step, so that its gradient has no use.
  off_diagonal = 1.0 - np.eye(NUM_SLOTS)[None]
  assert_close(
    expected * off_diagonal, found * off_diagonal, atol=1e-4, rtol=1e-4
  )
  assert_close(expected_rest, found_rest, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize('num_writes', [1, 2])
def test_link_that_is_not_kept_counts_as_zero(num_writes):
  link, writes, reads = link_inputs(0, num_writes)
  keep = jnp.array([1.0, 0.0])
  if num_writes > 1:
    reads = keep[:, None, None] * reads  # As after a reset of the state.
  found, backward = jax.vjp(lambda *x: lazy(*x, keep), link, writes, reads)
  expected, plain_backward = jax.vjp(
    lambda *x: plain(*x, keep), link, writes, reads
  )
  assert_close(expected, found, atol=1e-6)
  _, *expected_rest = plain_backward(expected)
  dlink, *found_rest = backward(expected)
  assert_close(expected_rest[0], found_rest[0], atol=1e-4)
  if num_writes == 1:
    np.testing.assert_array_equal(dlink[1], np.zeros((NUM_SLOTS, NUM_SLOTS)))


@pytest.mark.parametrize('num_writes', [1, 2])
def test_gradient_by_hand_equals_finite_differences(num_writes):
  link, writes, reads = link_inputs(0, num_writes)
  test_util.check_grads(
    lambda *inputs: lazy(link, *inputs, jnp.ones((2,)))[1],
    (writes, reads),
    order=1,
    modes=['rev'],
    atol=1e-2,
    rtol=1e-2,
    eps=1e-2,
  )


def test_gradient_by_hand_under_vmap():
  inputs = jax.tree.map(
    lambda *x: jnp.stack(x), *(link_inputs(seed, 2) for seed in range(3))
  )
  keep = jnp.ones((2,))

  def gradient(function):
    def loss(link, writes, reads):
      link, all_reads = function(link, writes, reads, keep)
      return jnp.sum(link**2) + sum(
        jnp.sum(x.forward * x.backward) for x in all_reads
      )

    return jax.vmap(jax.grad(loss, (1, 2)))(*inputs)

  assert_close(gradient(plain), gradient(lazy), atol=1e-4)


def empty_lists():
  shape = (2, NUM_LINKS, NUM_SLOTS)
  lists = sparse_linkage.LinkLists(
    jnp.zeros(shape), jnp.zeros(shape, jnp.int32)
  )
  return sparse_linkage.SparseLink(lists, lists)


def update_sparse(link, w, precedence):
  return sparse_linkage.update_sparse_link(
    link,
    sparse_linkage.keep_largest(w, NUM_LINKS),
    sparse_linkage.keep_largest(precedence, NUM_LINKS),
  )


def to_dense(lists):
  dense = np.zeros((2, NUM_SLOTS, NUM_SLOTS))
  for b, k, i in np.ndindex(*lists.values.shape):
    dense[b, i, lists.slots[b, k, i]] += lists.values[b, k, i]
  return dense


@pytest.mark.parametrize('seed', range(3))
def test_sparse_link_is_that_of_the_oracle(seed):
  old = np.zeros((2, NUM_SLOTS, NUM_SLOTS))
  reads = weights(seed, 2, NUM_READS, NUM_SLOTS, total=1.0)
  history = grow_link(update_sparse, empty_lists(), 8, 10 * seed)
  for w, precedence, link in history:
    directional = sparse_linkage.sparse_directional_reads(link, reads)
    for b in range(2):
      p = np.asarray(precedence[b], np.float64)
      old[b] = oracle.sparse_link(old[b], w[b], p, NUM_LINKS)
      np.testing.assert_allclose(
        directional.forward[b], reads[b] @ old[b].T, atol=1e-5
      )
      np.testing.assert_allclose(
        directional.backward[b], reads[b] @ old[b], atol=1e-5
      )
    np.testing.assert_allclose(to_dense(link.rows), old, atol=1e-5)
    np.testing.assert_allclose(
      to_dense(link.columns).swapaxes(1, 2), old, atol=1e-5
    )
  assert np.max(old) > 0.25


def test_largest_weights_keep_the_sum():
  w = weights(0, 5, NUM_SLOTS, total=0.4)
  kept = sparse_linkage.keep_largest(w, 2)
  np.testing.assert_allclose(np.sum(kept.values, -1), 0.4, rtol=1e-5)
  np.testing.assert_array_equal(kept.slots, np.argsort(-w)[:, :2])
  none = sparse_linkage.keep_largest(jnp.zeros((NUM_SLOTS,)), 2)
  np.testing.assert_array_equal(none.values, [0.0, 0.0])


def test_gradient_of_sparse_linkage_equals_that_of_its_dense_form():
  """The dense form: the same top weights and threshold, on matrices."""
  link, reads = empty_lists(), weights(3, 2, NUM_READS, NUM_SLOTS, total=1.0)
  steps = [weights(t, 2, NUM_SLOTS) for t in range(4)]

  def dense_top(w):
    kept = jax.lax.top_k(w, NUM_LINKS)[0][:, -1:]
    top = jnp.where(w >= kept, w, 0.0)
    total = jnp.maximum(jnp.sum(top, -1, keepdims=True), 1e-30)
    return top * jnp.sum(w, -1, keepdims=True) / total

  def dense(scale, reads):
    link = jnp.zeros((2, NUM_SLOTS, NUM_SLOTS))
    precedence, loss = jnp.zeros((2, NUM_SLOTS)), 0.0
    for w in steps:
      w = w * scale
      link = linkage.update_link(link, dense_top(w), dense_top(precedence))
      link = jnp.where(link < 1.0 / NUM_LINKS, 0.0, link)
      precedence = linkage.update_precedence(precedence, w)
      directional = linkage.directional_reads(link, reads)
      loss += jnp.sum(directional.forward**2) + jnp.sum(directional.backward**3)
    return loss

  def sparse(scale, reads):
    current, precedence, loss = link, jnp.zeros((2, NUM_SLOTS)), 0.0
    for w in steps:
      w = w * scale
      current = update_sparse(current, w, precedence)
      precedence = linkage.update_precedence(precedence, w)
      directional = sparse_linkage.sparse_directional_reads(current, reads)
      loss += jnp.sum(directional.forward**2) + jnp.sum(directional.backward**3)
    return loss

  scale = jnp.ones((2, NUM_SLOTS))
  expected = jax.value_and_grad(dense, argnums=(0, 1))(scale, reads)
  found = jax.value_and_grad(sparse, argnums=(0, 1))(scale, reads)
  assert_close(expected, found, atol=1e-5)
  assert expected[0] > 0.01
