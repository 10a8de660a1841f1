"""The kernel of an access, interpreted, against the access of operations."""

import functools
import re

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

B, T = 3, 3


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
  between_slots = jnp.float32(1.0 - np.eye(config.num_slots))
  link = state.links.link * jnp.broadcast_to(
    between_slots, state.links.link.shape
  )
  state = state._replace(
    usage=jnp.float32(usage),
    write_weights=0.0 * state.write_weights,
    links=state.links._replace(link=link),
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


@pytest.mark.parametrize(
  'num_reads, usage_gradient, in_own_loop',
  [pytest.param(1, True, False, marks=pytest.mark.ci), (2, False, True)],
)
def test_kernel_is_the_access(
  num_reads, usage_gradient, in_own_loop, monkeypatch
):
  """With all gradients, of two members; also in the loop of accelerators."""
  config = make_config(num_reads, usage_gradient=usage_gradient)
  inputs = make_inputs(config, (2,))

  def run(do_access):
    function = jax.value_and_grad(
      make_unroll(do_access, config), (0, 1), has_aux=True
    )
    return jax.jit(jax.vmap(function))(*inputs)

  expected = run(plain_access)
  monkeypatch.setattr(scans, 'counts_launches', lambda: in_own_loop)
  assert_close(run(access_kernel.access), expected)


def test_masked_rows_stay_as_they_are():
  config = make_config(2)
  numbers, state, masks = make_inputs(config)
  after = jax.jit(functools.partial(access_kernel.access, config))(
    numbers[0], state, masks[0]
  )
  for old, new in zip(*map(jax.tree.leaves, (state, after)), strict=True):
    held = ~np.asarray(masks[0])
    np.testing.assert_array_equal(new[held], old[held])
    assert held.any() and not np.array_equal(new, old)


def test_core_accesses_by_kernel_where_there_is_triton(monkeypatch):
  def step(inputs):
    core = cores.DNC(6, memory=cores.Memory(16, 16, 2)).make()
    return core(inputs, core.initial_state(B))

  transformed = hk.without_apply_rng(hk.transform(step))
  key, inputs = jax.random.PRNGKey(0), jnp.ones((B, 5))
  params = jax.eval_shape(transformed.init, key, inputs)
  assert 'pallas' not in str(jax.make_jaxpr(transformed.apply)(params, inputs))
  monkeypatch.setattr(scans, 'counts_launches', lambda: True)
  monkeypatch.setattr(scans, 'has_kernels', lambda: True)
  # A function of its own, since JAX remembers what it has traced.
  program = jax.make_jaxpr(lambda *args: transformed.apply(*args))
  text = str(program(params, inputs))
  assert text.count('pallas_call') == 1 and 'cumprod' not in text


@pytest.mark.parametrize(
  'kwargs',
  [
    {'num_slots': 20},
    {'word_size': 8},
    {'num_writes': 2},
    {'linkage': 'plain'},
    {'key_masking': True},
    {'deallocation': True},
    {'link_sharpness': True},
  ],
)
def test_other_memories_have_no_kernel(kwargs, monkeypatch):
  config = cores.Memory(16, 16, 2)
  assert not access_kernel.is_used(config)
  monkeypatch.setattr(scans, 'counts_launches', lambda: True)
  monkeypatch.setattr(scans, 'has_kernels', lambda: True)
  assert access_kernel.is_used(config)
  assert not access_kernel.is_used(config.replace(**kwargs))


@pytest.mark.parametrize('sizes', [(16, 8), (450, 32)])
def test_other_sizes_are_warned_of_once(sizes, monkeypatch, caplog):
  access_kernel._warn.cache_clear()
  assert not access_kernel.is_used(cores.Memory(*sizes))
  assert not caplog.messages  # Without kernels, all sizes are alike.
  monkeypatch.setattr(scans, 'counts_launches', lambda: True)
  monkeypatch.setattr(scans, 'has_kernels', lambda: True)
  for _ in range(2):
    assert not access_kernel.is_used(cores.Memory(*sizes))
  assert access_kernel.is_used(cores.Memory(16, 16))
  (message,) = caplog.messages
  assert re.search(
    rf'num_slots \({sizes[0]}\) and word_size \({sizes[1]}\) .* choose'
    r' cores.Memory\(16, 16\)',
    message,
  )
