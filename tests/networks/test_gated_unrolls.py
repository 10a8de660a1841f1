"""Unrolls with backward passes by hand, also as kernels, against steps.

Kernels are interpreted.
"""

import functools

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ftwax.networks import (
  gated_unrolls,
  recurrence,
  recurrent_cores,
  recurrent_kernels,
)

# Rows are one block and a part of another.
T, B, H, MEMBERS = 5, 19, 16, 2


def _lstm_of_steps(gates, w_h, start, state):
  def step(state, inputs):
    gates_t, start_t = inputs
    hidden, cell = recurrence.reset_state(start_t, state)
    state = recurrent_cores.lstm_cell(gates_t + jnp.dot(hidden, w_h), cell)
    return tuple(state), state.hidden

  return jax.lax.scan(step, state, (gates, start))[::-1]


def _gru_of_steps(gates, w_h, start, state):
  def step(state, inputs):
    gates_t, start_t = inputs
    state = recurrence.reset_state(start_t, state)
    state = recurrent_cores._gru_step(w_h, gates_t, state)
    return state, state

  return jax.lax.scan(step, state, (gates, start))[::-1]


CORES = {
  'lstm': (4, gated_unrolls.lstm, _lstm_of_steps),
  'gru': (3, gated_unrolls.gru, _gru_of_steps),
}


def _data(num_gates, leading=()):
  random = np.random.RandomState(0)

  def draw(*shape):
    return jnp.float32(random.randn(*leading, *shape))

  gates, w_h = draw(T, B, num_gates * H), draw(H, num_gates * H) / 4.0
  start = jnp.asarray(random.rand(*leading, T, B) < 0.3)
  states = draw(B, H), draw(B, H)
  return gates, w_h, start, states if num_gates == 4 else states[0]


def _values_and_gradients(unroll, gates, w_h, start, state):
  """Of a sum that depends on the outputs of all steps and the last state."""

  def total(gates, w_h, state):
    results = jax.tree.leaves(unroll(gates, w_h, start, state))
    sums = [jnp.sum(jnp.sin((i + 1) * x)) for i, x in enumerate(results)]
    return sum(sums), results

  return jax.value_and_grad(total, (0, 1, 2), has_aux=True)(gates, w_h, state)


def _assert_equal(found, expected):
  found, expected = jax.tree.leaves(found), jax.tree.leaves(expected)
  for one, other in zip(found, expected, strict=True):
    np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


@pytest.fixture(params=[False, True], ids=['loop', 'kernel'], autouse=True)
def fits(request, monkeypatch):
  """Whether the kernels fit."""
  monkeypatch.setattr(recurrent_kernels, 'fits', lambda *_: request.param)
  # No weights stay in registers.
  monkeypatch.setattr(recurrent_kernels, '_NUM_REGISTERS', 0)
  return request.param


@pytest.mark.parametrize('name', CORES)
def test_unrolls_do_what_steps_do(name):
  num_gates, unroll, of_steps = CORES[name]
  data = _data(num_gates)
  _assert_equal(jax.jit(unroll)(*data), jax.jit(of_steps)(*data))
  found, expected = (
    jax.jit(functools.partial(_values_and_gradients, each))(*data)
    for each in (unroll, of_steps)
  )
  _assert_equal(found, expected)


@pytest.mark.parametrize('name', CORES)
def test_unrolls_do_so_for_several_members_in_a_loop(name):
  num_gates, unroll, of_steps = CORES[name]
  data = _data(num_gates, (MEMBERS,))

  def each(unroll):
    # The weights are the members' own, as all else.
    members = jax.vmap(functools.partial(_values_and_gradients, unroll))

    def loop(carry, _):
      return carry, members(*data)

    return jax.jit(lambda: jax.lax.scan(loop, (), None, length=2))()

  _assert_equal(each(unroll), each(of_steps))


@pytest.mark.parametrize('name', CORES)
def test_sequences_that_devices_share_have_the_same_gradients(
  name, monkeypatch
):
  monkeypatch.setattr(recurrent_kernels, 'fits', lambda *_: False)
  num_gates, unroll, of_steps = CORES[name]
  data = _data(num_gates)
  with recurrence.batch_first(True):
    found = jax.jit(functools.partial(_values_and_gradients, unroll))(*data)
  _assert_equal(found, _values_and_gradients(of_steps, *data))


@pytest.mark.parametrize('name', CORES)
def test_cores_unroll_by_hand_in_kernels_where_they_fit(
  name, monkeypatch, fits
):
  make = {'lstm': recurrent_cores.LSTM, 'gru': recurrent_cores.GRU}[name]
  options = {'forget_bias': 1.0} if name == 'lstm' else {}

  def unroll(inputs, start):
    core = make(H, **options).make()
    return core.unroll(inputs, start, core.initial_state(B))

  def steps(inputs, start):
    core = make(H, **options).make()
    state, rows = core.initial_state(B), []
    for inputs_t, start_t in zip(inputs, start, strict=True):
      state = recurrence.reset_state(start_t, state)
      output, state = core(inputs_t, state)
      rows.append(output.features)
    return recurrence.CoreOutput(jnp.stack(rows), {}), state

  gates, _, start, _ = _data(CORES[name][0])
  each = [hk.without_apply_rng(hk.transform(f)) for f in (unroll, steps)]
  params = each[0].init(jax.random.PRNGKey(0), gates, start)
  expected = jax.jit(each[1].apply)(params, gates, start)
  used = []

  def by_hand(*args):
    used.append(name)
    return CORES[name][1](*args)

  run_kernels = recurrent_kernels.unroll_rows

  def in_kernels(*args):
    used.append('kernels')
    return run_kernels(*args)

  monkeypatch.setattr(gated_unrolls, name, by_hand)
  monkeypatch.setattr(recurrent_kernels, 'unroll_rows', in_kernels)
  found = jax.jit(lambda *args: each[0].apply(*args))(params, gates, start)
  assert used == [name, *(['kernels'] if fits else [])]
  assert jax.tree.structure(found) == jax.tree.structure(expected)
  _assert_equal(found, expected)


@pytest.mark.parametrize('name', CORES)
def test_what_does_not_fit_together_is_refused(name):
  num_gates, unroll, _ = CORES[name]
  gates, w_h, start, state = _data(num_gates)
  with pytest.raises(
    ValueError, match=r'inputs of unroll must have .* \[5, 18, ...\]'
  ):
    unroll(gates, w_h, start[:, 1:], state)
