"""A core that a user might write, in the place of the library's own."""

import dataclasses
import functools

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from dm_env import specs

from ftwax import hyperparameters, parts, types
from ftwax.networks import cores, noise, recurrence, recurrent

T, B, HIDDEN = 6, 3, 4

_SPEC = types.EnvironmentSpec(
  observations=specs.Array((5,), np.float32),
  actions=specs.DiscreteArray(3),
  rewards=specs.Array((), np.float32),
  discounts=specs.BoundedArray((), np.float32, 0.0, 1.0),
)


def _random_inputs(seed=0):
  random = np.random.RandomState(seed)
  return types.NetworkInput(
    observation=random.randn(T, B, 5).astype(np.float32),
    previous_action=random.randint(types.NO_ACTION, 3, (T, B)),
    previous_reward=random.randn(T, B).astype(np.float32),
  )


def _start():
  start = np.zeros((T, B), bool)
  start[0, 1] = start[3, 1] = start[2, 2] = start[4, 2] = True
  return start


_assert_close = functools.partial(
  jax.tree.map,
  functools.partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-5),
)


def _scale(value):
  return hyperparameters.make_tree(
    {'core': hyperparameters.make_tree({'scale': value})}
  )


class _ScaledSumModule(hk.Module):
  """The module of `_ScaledSum`."""

  def __init__(self, config):
    super().__init__('scaled_sum')
    self._scale = config.scale

  def initial_state(self, batch_size):
    return jnp.zeros((batch_size, HIDDEN))

  def __call__(self, inputs, state):
    x = hk.Linear(HIDDEN)(inputs)
    drawn = noise.normal(HIDDEN)
    if drawn is None:
      drawn = jnp.zeros_like(state)
    state = state + self._scale * x + 0.1 * drawn
    return recurrence.CoreOutput(state, {'noise': drawn}), state

  def unroll(self, inputs, start, state):
    return recurrence.unroll_step(self, inputs, start, state)


@dataclasses.dataclass(frozen=True)
class _ScaledSum(cores.Core):
  """A core that sums up its inputs, scaled by a hyperparameter, and noise."""

  scale: parts.Scalar = hyperparameters.Uniform(0.5, 2.0)

  def make(self, name=None):
    return _ScaledSumModule(self)


def _scaled_network():
  return recurrent.make_recurrent_network(_SPEC, core=_ScaledSum())


def test_core_reads_hyperparameters_and_draws_by_the_seeds(key):
  network = _scaled_network()
  params = network.init(key)
  inputs = _random_inputs()
  unroll = jax.jit(network.unroll)

  def features(scale, first_seed):
    seeds = first_seed + jnp.arange(T * B).reshape(T, B)
    output, state = unroll(
      params, _scale(scale), seeds, inputs, _start(), network.initial_state(B)
    )
    assert output.auxiliary['noise'].shape == (T, B, HIDDEN)
    return state, output.auxiliary['noise']

  one, drawn = features(1.0, 0)
  two, same_noise = features(2.0, 0)
  _, other_noise = features(1.0, 100)
  np.testing.assert_array_equal(drawn, same_noise)
  assert np.all(drawn != other_noise)
  assert np.all(drawn[0] != drawn[1])
  since_start = [drawn[:, 0], drawn[3:, 1], drawn[4:, 2]]
  last_noise = jnp.stack([row.sum(axis=0) for row in since_start])
  # What does not come from noise is proportional to the scale.
  _assert_close(two - 0.1 * last_noise, 2.0 * (one - 0.1 * last_noise))


def test_population_of_parameters_and_hyperparameters(key):
  network = _scaled_network()
  keys = jax.random.split(key, 3)
  params = jax.jit(jax.vmap(network.init))(keys)
  values = _scale(jnp.array([0.5, 1.0, 2.0]))
  inputs = jax.tree.map(
    lambda *x: np.stack(x),
    *[_random_inputs(seed) for seed in range(3)],
  )
  state = network.initial_state(B)
  start = _start()
  seeds = jnp.arange(3 * T * B).reshape(3, T, B)
  outputs = jax.jit(jax.vmap(network.unroll, in_axes=(0, 0, 0, 0, None, None)))(
    params, values, seeds, inputs, start, state
  )
  for i in range(3):
    take = functools.partial(jax.tree.map, lambda x, i=i: x[i])
    expected = jax.jit(network.unroll)(
      take(params), take(values), seeds[i], take(inputs), start, state
    )
    _assert_close(take(outputs), expected)


def test_a_prior_without_values_is_told(key):
  network = _scaled_network()
  params, state = network.init(key), network.initial_state(B)
  message = r'scale \(Uniform\(.*\) of _ScaledSum must have a value.*; pass the'
  with pytest.raises(ValueError, match=message):
    network.unroll(params, None, None, _random_inputs(), _start(), state)


def test_numbers_of_its_own_need_no_values(key):
  own = recurrent.make_recurrent_network(_SPEC, core=_ScaledSum(2.0))
  network, inputs = _scaled_network(), _random_inputs()
  params, state = network.init(key), network.initial_state(B)
  _assert_close(
    own.unroll(params, None, None, inputs, _start(), state),
    network.unroll(params, _scale(2.0), None, inputs, _start(), state),
  )


class _Widening(_ScaledSumModule):
  """A core whose state grows."""

  def __call__(self, inputs, state):
    output, state = super().__call__(inputs, state)
    return output, jnp.append(state, state, axis=-1)


def test_a_core_returns_the_kind_of_state_that_it_takes(key):
  network = recurrent.make_recurrent_network(
    _SPEC, core=lambda: _Widening(_ScaledSum(1.0))
  )
  with pytest.raises(
    ValueError, match=r'float32\[1, 8\]\) must be .* float32\[1, 4\], the one'
  ):
    network.init(key)


class _WideningAtTheEnd(_ScaledSumModule):
  """A core whose state grows in an unroll, but not in a step."""

  def unroll(self, inputs, start, state):
    output, state = super().unroll(inputs, start, state)
    return output, jnp.append(state, state, axis=-1)


def test_so_does_its_unroll(key):
  network = recurrent.make_recurrent_network(
    _SPEC, core=lambda: _WideningAtTheEnd(_ScaledSum(1.0))
  )
  params, state = network.init(key), network.initial_state(B)
  with pytest.raises(ValueError, match='the unroll of the core returns'):
    network.unroll(params, None, None, _random_inputs(), _start(), state)
