"""The kernel of an access, interpreted, against the access of operations."""

import functools

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ftwax import scans
from ftwax.networks import cores, unrolling
from ftwax.networks.dnc import (
  access,
  access_kernel,
  interfaces,
  memory_state,
)

B, T = 3, 4


def make_config(num_reads, **kwargs):
  return cores.Memory(16, 16, num_reads, linkage='plain', **kwargs)


def plain_access(config, numbers, state, mask):
  interface = interfaces.parse_interface(config, numbers)
  return access.masked_access(config, interface, state, mask)


def make_unroll(do_access, config):
  """Returns a weighted sum of all states; and the last state."""

  def unroll(numbers, state, masks):
    def step(state, inputs):
      state = do_access(config, inputs[0], state, inputs[1])
      return state, state

    after, states = unrolling.scan(step, state, (numbers, masks))
    return sum(
      jnp.sum(jnp.sin((index + 1) * leaf))
      for index, leaf in enumerate(jax.tree.leaves(states))
    ), after

  return functools.partial(hk.transform(unroll).apply, {}, None)


def make_inputs(config, leading=()):
  """Steps from a memory with slots of equal usage, with some rows masked."""
  rng = np.random.default_rng(0)
  state = memory_state.initial_state(config, B)
  state = jax.tree.map(
    lambda leaf: jnp.float32(
      rng.uniform(size=(*leading, *leaf.shape)) * 0.9 / leaf.shape[-1]
    ),
    state,
  )
  usage = rng.integers(1, 5, state.usage.shape) / 5
  state = state._replace(
    usage=jnp.float32(usage), write_weights=0.0 * state.write_weights
  )
  size = (*leading, T, B, interfaces.interface_size(config))
  numbers = jnp.float32(2.0 * rng.normal(size=size))
  masks = jnp.asarray(rng.uniform(size=size[:-1]) < 0.7)
  return numbers, state, masks


def assert_close(found, expected):
  scale = max(1.0, *(jnp.max(jnp.abs(x)) for x in jax.tree.leaves(expected)))
  jax.tree.map(
    lambda x, y: np.testing.assert_allclose(x / scale, y / scale, atol=1e-5),
    found,
    expected,
  )


@pytest.mark.parametrize('num_reads, gradient', [(1, True), (2, False)])
def test_kernel_is_the_access(num_reads, gradient, monkeypatch):
  """In the unroll of accelerators, of two members."""
  config = make_config(num_reads, usage_gradient=gradient)
  inputs = make_inputs(config, (2,))

  def run(do_access):
    function = jax.value_and_grad(
      make_unroll(do_access, config), (0, 1), has_aux=True
    )
    return jax.jit(jax.vmap(function))(*inputs)

  expected = run(plain_access)
  monkeypatch.setattr(scans, 'counts_launches', lambda: True)
  assert_close(run(access_kernel.access), expected)
