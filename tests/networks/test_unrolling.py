"""The unroll of accelerators against that of CPUs, with all gradients."""

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import slow_cases
import test_every_core as every_core

from ftwax import scans
from ftwax.networks import cores

CORES = (
  'lstm', 'gru', 'stacked_lstm',
  'rl2', 'dnc', 'rpth', 'rpth_dnc', 'rpth_dnc of gru',
)  # fmt: skip


def _value_and_gradients(core):
  """Of a sum that depends on all features, latents and the last state."""

  def unroll(inputs, start, state):
    return cores.as_part(core).make().unroll(inputs, start, state)

  transformed = hk.without_apply_rng(hk.transform(unroll))
  inputs = every_core.make_inputs(0)
  start = jnp.zeros(inputs.shape[:2], bool).at[0, 0].set(True).at[3].set(True)
  zero = hk.transform(
    lambda: cores.as_part(core).make().initial_state(every_core.B)
  )
  state = zero.apply({}, None)
  params = transformed.init(jax.random.PRNGKey(0), inputs, start, state)

  # What a memory holds obeys rules that not all numbers do.
  _, state = jax.jit(transformed.apply)(
    params, every_core.make_inputs(1), jnp.zeros_like(start), state
  )

  def total(params, inputs, state):
    output, after = transformed.apply(params, inputs, start, state)
    leaves = jax.tree.leaves((output, after))
    floats = [leaf for leaf in leaves if leaf.dtype == jnp.float32]
    return sum(
      jnp.sum(jnp.sin((index + 1) * leaf)) for index, leaf in enumerate(floats)
    ), (output, after)

  found = jax.jit(jax.value_and_grad(total, (0, 1), has_aux=True))(
    params, inputs, state
  )
  return [
    np.asarray(leaf)
    for leaf in jax.tree.leaves(found)
    if leaf.dtype == jnp.float32
  ]


# One of several LSTMs says little more than one does.
_SHORT = {*CORES} - {*every_core.LONG}


@pytest.mark.parametrize(
  'name', slow_cases.cases(CORES, _SHORT - {'stacked_lstm'}, ci=_SHORT)
)
def test_values_and_gradients_are_those_of_autodiff(name, monkeypatch):
  expected = _value_and_gradients(every_core.CORES[name])
  monkeypatch.setattr(scans, 'counts_launches', lambda: True)
  found = _value_and_gradients(every_core.CORES[name])
  for one, other in zip(found, expected, strict=True):
    scale = max(1.0, np.max(np.abs(other), initial=0.0))
    np.testing.assert_allclose(one / scale, other / scale, atol=1e-6)
