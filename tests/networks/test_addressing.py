import dnc_oracle as oracle
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import test_util

from ftwax.networks.dnc import addressing

NUM_SLOTS, WORD_SIZE, NUM_READS, NUM_WRITES = 9, 5, 3, 2


def draw(seed, *shapes):
  """Draws arrays in (0, 1)."""
  rng = np.random.default_rng(seed)
  return [rng.uniform(size=shape).astype(np.float32) for shape in shapes]


def distributions(seed, *shape):
  weights = np.random.default_rng(seed).exponential(size=shape)
  return (weights / weights.sum(-1, keepdims=True)).astype(np.float32)


@pytest.mark.parametrize('seed', range(5))
@pytest.mark.parametrize('has_masks', [False, True])
def test_content_weights_are_those_of_the_oracle(seed, has_masks):
  memory, keys, strengths, masks = draw(
    seed,
    (2, NUM_SLOTS, WORD_SIZE),
    (2, NUM_READS, WORD_SIZE),
    (2, NUM_READS),
    (2, NUM_READS, WORD_SIZE),
  )
  memory, keys, strengths = memory - 0.5, 4 * keys - 2, 1 + 9 * strengths
  masks = masks if has_masks else None
  weights = addressing.content_weights(memory, keys, strengths, masks)
  for b in range(2):
    for r in range(NUM_READS):
      expected = oracle.content_weights(
        memory[b].astype(np.float64),
        keys[b, r],
        strengths[b, r],
        None if masks is None else masks[b, r],
      )
      np.testing.assert_allclose(weights[b, r], expected, atol=1e-5)
  np.testing.assert_allclose(np.sum(weights, -1), 1.0, atol=1e-5)


@pytest.mark.parametrize('seed', range(5))
def test_retention_and_usage_are_those_of_the_oracle(seed):
  gates, old = draw(seed, (2, NUM_READS), (2, NUM_SLOTS))
  reads = distributions(seed, 2, NUM_READS, NUM_SLOTS)
  writes = distributions(seed + 1, 2, NUM_WRITES, NUM_SLOTS)
  psi = addressing.retention(gates, reads)
  used = addressing.usage(old, writes, psi)
  for b in range(2):
    expected = oracle.retention(gates[b].astype(np.float64), reads[b])
    np.testing.assert_allclose(psi[b], expected, atol=1e-5)
    expected = oracle.usage(old[b], writes[b], expected)
    np.testing.assert_allclose(used[b], expected, atol=1e-5)
  assert np.all(used >= 0.0) and np.all(used <= 1.0)


@pytest.mark.parametrize('num_slots', [NUM_SLOTS, 100])  # Compared, sorted.
@pytest.mark.parametrize('seed', range(5))
def test_allocation_is_that_of_the_oracle(seed, num_slots):
  used, gates = draw(seed, (3, num_slots), (3, NUM_WRITES))
  weights = addressing.write_allocation(used, gates)
  for b in range(3):
    expected = oracle.write_allocation(used[b].astype(np.float64), gates[b])
    np.testing.assert_allclose(weights[b], expected, atol=1e-5)
  assert np.all(np.sum(weights, -1) <= 1.0 + 1e-5)


@pytest.mark.parametrize('seed', range(5))
def test_allocation_takes_equals_in_the_order_of_the_index(seed):
  used = np.round(draw(seed, (NUM_SLOTS,))[0])  # Either full or free.
  expected = oracle.allocation(used.astype(np.float64))
  np.testing.assert_allclose(addressing.allocation(used), expected, atol=1e-5)


def test_allocation_of_an_empty_memory_is_its_first_slot():
  weights = addressing.allocation(jnp.zeros((4,)))
  np.testing.assert_allclose(weights, [1.0, 0.0, 0.0, 0.0], atol=1e-5)


def test_allocation_of_a_full_memory_is_nothing():
  np.testing.assert_allclose(addressing.allocation(jnp.ones((4,))), 0.0)


@pytest.mark.parametrize('seed', range(5))
def test_write_weights_sum_to_their_gate(seed):
  write_gates, allocation_gates = draw(seed, (2, NUM_WRITES), (2, NUM_WRITES))
  allocation = distributions(seed, 2, NUM_WRITES, NUM_SLOTS)
  content = distributions(seed + 1, 2, NUM_WRITES, NUM_SLOTS)
  weights = addressing.write_weights(
    write_gates, allocation_gates, allocation, content
  )
  gates = allocation_gates[..., None]
  expected = write_gates[..., None] * (
    gates * allocation + (1 - gates) * content
  )
  np.testing.assert_allclose(weights, expected, atol=1e-5)
  np.testing.assert_allclose(np.sum(weights, -1), write_gates, atol=1e-5)


@pytest.mark.parametrize('seed', range(5))
def test_write_and_read_are_those_of_the_oracle(seed):
  memory, erase, vectors = draw(
    seed,
    (2, NUM_SLOTS, WORD_SIZE),
    (2, NUM_WRITES, WORD_SIZE),
    (2, NUM_WRITES, WORD_SIZE),
  )
  weights = distributions(seed, 2, NUM_WRITES, NUM_SLOTS)
  reads = distributions(seed + 1, 2, NUM_READS, NUM_SLOTS)
  written = addressing.write(memory, weights, erase, vectors)
  words = addressing.read(written, reads)
  for b in range(2):
    expected = oracle.write(
      memory[b].astype(np.float64), weights[b], erase[b], vectors[b]
    )
    np.testing.assert_allclose(written[b], expected, atol=1e-5)
    np.testing.assert_allclose(words[b], reads[b] @ expected, atol=1e-5)


@pytest.mark.parametrize('seed', range(5))
def test_sharpened_weights_are_those_of_the_oracle(seed):
  weights = distributions(seed, 2, NUM_SLOTS)
  weights[0, :3] = 0.0
  (sharpness,) = draw(seed, (2,))
  sharpness = 1 + 4 * sharpness
  sharpened = addressing.sharpen(weights, sharpness)
  for b in range(2):
    expected = oracle.sharpen(weights[b].astype(np.float64), sharpness[b])
    np.testing.assert_allclose(sharpened[b], expected, atol=1e-5)
  np.testing.assert_allclose(np.sum(sharpened, -1), 1.0, atol=1e-5)


@pytest.mark.slow
def test_gradients_equal_finite_differences():
  memory, keys, strengths, gates = draw(
    0, (NUM_SLOTS, WORD_SIZE), (1, WORD_SIZE), (1,), (NUM_READS,)
  )
  reads = distributions(1, NUM_READS, NUM_SLOTS)
  weighting = draw(2, (NUM_SLOTS,))[0]

  def addressed(memory, keys, gates):
    content = addressing.content_weights(memory, keys, 5 * strengths)[0]
    psi = addressing.retention(gates, reads)
    used = addressing.usage(content, content[None], psi)
    return jnp.vdot(weighting, addressing.allocation(used))

  test_util.check_grads(
    addressed,
    (memory, keys, gates),
    order=1,
    modes=['rev'],
    atol=2e-2,
    rtol=2e-2,
    eps=1e-2,
  )


def test_gradients_at_an_empty_memory_are_finite():
  memory, usage = jnp.zeros((NUM_SLOTS, WORD_SIZE)), jnp.zeros((NUM_SLOTS,))
  keys, strengths = jnp.zeros((1, WORD_SIZE)), jnp.ones((1,))

  def addressed(memory, keys, usage):
    content = addressing.content_weights(memory, keys, strengths)
    sharp = addressing.sharpen(0.0 * content, strengths)
    return jnp.vdot(addressing.allocation(usage), (content + sharp)[0] ** 2)

  gradients = jax.grad(addressed, argnums=(0, 1, 2))(memory, keys, usage)
  for gradient in gradients:
    assert np.all(np.isfinite(gradient))
