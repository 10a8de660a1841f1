"""Returns and advantages against sums term by term."""

import jax
import jax.numpy as jnp
import loss_streams
import numpy as np
import pytest
import rlax

from ftwax.losses import returns

T = 13


def _arguments(seed, shape=()):
  """Rewards, discounts, values and mask of a random, padded stream."""
  t = loss_streams.random_transitions(seed, T)
  rng = np.random.default_rng(seed)
  r, v = (rng.normal(size=(T, *shape)).astype(np.float32) for _ in range(2))
  mask = np.asarray(t.mask_tm1) * (np.arange(T) < T - 2 * (seed % 3))
  return r, np.asarray(t.discount_t), v, mask


def _lambda_returns_by_definition(r, discount, v, mask, lambda_):
  """The mixture of all n-step returns of each step."""
  n_step = [
    loss_streams.returns_by_definition(r, discount, v, mask, n)
    for n in range(1, T + 1)
  ]
  mixed = sum((1 - lambda_) * lambda_**n * x for n, x in enumerate(n_step[:-1]))
  return mixed + lambda_ ** (T - 1) * n_step[-1]


@pytest.mark.parametrize('shape', [(), (2, 3)])
def test_lambda_returns_equal_their_definition(shape):
  lambda_returns = jax.jit(returns.lambda_returns)
  for seed in range(6):
    arguments = _arguments(seed, shape)
    for lambda_ in (0.0, 0.7, 1.0):
      expected = _lambda_returns_by_definition(*arguments, lambda_)
      np.testing.assert_allclose(
        lambda_returns(*arguments, lambda_), expected, atol=1e-5
      )


@pytest.mark.parametrize('lambda_', [0.0, 0.95, 1.0])
def test_advantages_are_returns_less_values(lambda_):
  for seed in range(6):
    r, discount, v_t, mask = _arguments(seed)
    v_tm1 = np.append(np.float32(0.3), v_t[:-1])
    expected = mask * (
      _lambda_returns_by_definition(r, discount, v_t, mask, lambda_) - v_tm1
    )
    found = returns.generalized_advantages(
      v_tm1, v_t, r, discount, mask, lambda_
    )
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_advantages_are_those_of_rlax():
  """Within an episode: rlax knows no ends but those of discounts."""
  rng = np.random.default_rng(0)
  values, r_t = rng.normal(size=9), rng.normal(size=8)
  discount_t = np.array([0.9] * 4 + [0.0] + [0.9] * 3)
  values, r_t, discount_t = (
    jnp.asarray(x, jnp.float32) for x in (values, r_t, discount_t)
  )
  ours = returns.generalized_advantages(
    values[:-1], values[1:], r_t, discount_t, jnp.ones(8), 0.95
  )
  theirs = rlax.truncated_generalized_advantage_estimation(
    r_t, discount_t, 0.95, values
  )
  np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def test_streams_of_the_tests_hold_every_kind_of_end():
  """Otherwise the comparisons above would not tell much."""
  kinds = set()
  for seed in range(6):
    _, discount, _, mask = _arguments(seed)
    ends = np.flatnonzero((mask[:-1] == 1) & (mask[1:] == 0))
    kinds |= {('padding' if seed % 3 else '', discount[t] > 0) for t in ends}
  assert {('', False), ('', True), ('padding', True)} <= kinds


def test_what_is_masked_counts_for_nothing_even_if_it_is_not_finite():
  r, discount, v, mask = _arguments(1)
  assert np.any(mask == 0)
  bad = np.where(mask == 0, np.nan, 0.0).astype(np.float32)
  clean = returns.lambda_returns(r, discount, v, mask)
  found = returns.lambda_returns(r + bad, discount, v + bad, mask)
  np.testing.assert_array_equal(clean, found)
  assert np.all(found[mask == 0] == 0.0)
