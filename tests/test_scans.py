"""Packed scans and loops against those of JAX, to the bit."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ftwax import scans


@pytest.fixture(autouse=True)
def _packs(monkeypatch):
  monkeypatch.setattr(scans, 'counts_launches', lambda: True)


# NaN with a payload, which arithmetic would not keep.
_NAN = np.array([0x7FC12345], np.uint32).view(np.float32)[0]

TREE = {
  'floats': jnp.array([[_NAN, -0.0, 1e-42], [jnp.inf, 0.1, -3.0]]),
  'whole': (jnp.int32(-5), jnp.zeros((0, 3)), jnp.uint32(2**32 - 1)),
  'is_on': jnp.array([True, False]),
  'pixels': jnp.arange(6, dtype=jnp.uint8).reshape(2, 3),
  'nothing': (),
}


def _assert_same_bits(found, expected):
  assert jax.tree.structure(found) == jax.tree.structure(expected)
  for one, other in zip(*map(jax.tree.leaves, (found, expected)), strict=True):
    assert one.dtype == other.dtype and one.shape == other.shape
    assert np.asarray(one).tobytes() == np.asarray(other).tobytes()


def test_trees_are_packed_to_the_bit():
  packed, unpack = jax.jit(lambda: scans.pack(TREE)[0])(), scans.pack(TREE)[1]
  assert {name: leaf.shape for name, leaf in packed.items()} == {
    'uint32': (10,),
    'uint8': (6,),
  }
  _assert_same_bits(unpack(packed), TREE)


def _step(carry, inputs):
  x, nothing = inputs
  assert nothing.shape == (0,)
  carry = {
    **carry,
    'whole': (carry['whole'][0] + x, *carry['whole'][1:]),
    'pixels': carry['pixels'][::-1],
  }
  return carry, (carry['floats'] * x, carry['is_on'], ())


@pytest.mark.parametrize('reverse', [False, True])
@pytest.mark.parametrize(
  ('num_steps', 'in_blocks', 'num_blocks'),
  [(5, False, 5), (5, True, 1), (7, True, 7), (8, True, 2), (12, True, 3)],
)
def test_scans_are_those_of_jax(reverse, num_steps, in_blocks, num_blocks):
  xs = jnp.arange(num_steps, dtype=jnp.int32), jnp.zeros((num_steps, 0))

  def with_(scan, **options):
    # Not of constants, which XLA would fold otherwise than it computes.
    return jax.jit(
      lambda tree, xs: scan(_step, tree, xs, reverse=reverse, **options)
    )

  packed = with_(scans.scan, in_blocks=in_blocks)
  _assert_same_bits(packed(TREE, xs), with_(jax.lax.scan)(TREE, xs))
  (call,) = jax.make_jaxpr(packed)(TREE, xs).eqns
  jaxpr = call.params['jaxpr']
  (loop,) = (e for e in jaxpr.eqns if e.primitive.name == 'scan')
  assert loop.params['length'] == num_blocks
  # Words and pixels are carried, one vector is stacked.
  assert len(loop.outvars) == 3


@pytest.mark.parametrize('in_blocks', [False, True])
def test_a_scan_may_stack_nothing(in_blocks):
  end, nothing = scans.scan(
    lambda carry, _: (carry + 1, ()), 0, length=3, in_blocks=in_blocks
  )
  assert (end, nothing) == (3, ())


def test_while_loops_are_those_of_jax():
  def with_(while_loop):
    return jax.jit(
      lambda: while_loop(
        lambda carry: carry[0] < 3,
        lambda carry: (carry[0] + 1, jax.tree.map(jnp.flip, carry[1])),
        (0, TREE),
      )
    )()

  _assert_same_bits(with_(scans.while_loop), with_(jax.lax.while_loop))
