"""Continuous parts of actions against SciPy, and mixed with discrete ones."""

import operator
import pickle

import chex
import dm_env
import fakes
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from ftwax import continuous, distributions, types

SPEC = fakes.make_continuous_spec().actions


# Compiled, since each is tens of operations.
_sample, _log_prob, _entropy, _kl_divergence, _mode = map(
  jax.jit,
  (
    distributions.sample,
    distributions.log_prob,
    distributions.entropy,
    distributions.kl_divergence,
    distributions.mode,
  ),
)


def _random_logits(seed, prefix=()):
  rng = np.random.default_rng(seed)
  return jax.tree.map(
    lambda x: jnp.asarray(0.7 * rng.normal(size=x.shape), jnp.float32),
    distributions.zero_logits(SPEC, prefix),
  )


def _oracle(logits):
  """SciPy's distributions of the parts, of one row."""
  arm = logits['arm']
  normals = [
    scipy.stats.norm(np.float64(part.loc), np.exp(np.float64(part.log_scale)))
    for part in (arm['force'], arm['torque'])
  ]
  dirichlet = scipy.stats.dirichlet(
    1 + np.log1p(np.exp(np.float64(logits['shares'].logits)))
  )
  return normals, dirichlet


def test_log_prob_and_entropy_equal_those_of_scipy(key):
  for seed in range(3):
    logits = _random_logits(seed)
    action = _sample(jax.random.fold_in(key, seed), logits)
    (force, torque), dirichlet = _oracle(logits)
    categorical = np.float64(jax.nn.log_softmax(logits['mode']))
    share = np.float64(action['shares'])
    log_prob = (
      categorical[action['mode']]
      + np.sum(force.logpdf(action['arm']['force']))
      + np.sum(torque.logpdf(action['arm']['torque']))
      + dirichlet.logpdf(share / share.sum())
    )
    entropy = (
      -np.sum(np.exp(categorical) * categorical)
      + np.sum(force.entropy())
      + np.sum(torque.entropy())
      + dirichlet.entropy()
    )
    np.testing.assert_allclose(
      _log_prob(logits, action), log_prob, atol=1e-5, rtol=1e-5
    )
    np.testing.assert_allclose(_entropy(logits), entropy, atol=1e-5, rtol=1e-5)


def test_samples_follow_the_densities(key):
  """Of each number by Kolmogorov and Smirnov's test."""
  logits = _random_logits(3)
  many = jax.tree.map(lambda x: np.tile(x, (4000, 1)), logits)
  action = _sample(key, many)
  (_, torque), dirichlet = _oracle(logits)
  for index in range(2):
    marginal = scipy.stats.norm(torque.mean()[index], torque.std()[index])
    samples = np.asarray(action['arm']['torque'][:, index])
    assert scipy.stats.kstest(samples, marginal.cdf).pvalue > 1e-3
  for index in range(3):
    a = dirichlet.alpha[index]
    marginal = scipy.stats.beta(a, dirichlet.alpha.sum() - a)
    samples = np.asarray(action['shares'][:, index])
    assert scipy.stats.kstest(samples, marginal.cdf).pvalue > 1e-3
  np.testing.assert_allclose(jnp.sum(action['shares'], -1), 1.0, atol=1e-5)


def test_divergence_is_that_of_sampling(key):
  p, q = _random_logits(4), _random_logits(5)
  many = jax.tree.map(lambda x: np.tile(x, (100_000, 1)), p)
  action = _sample(key, many)
  difference = _log_prob(many, action) - _log_prob(
    jax.tree.map(lambda x: np.tile(x, (100_000, 1)), q), action
  )
  error = 4 * np.std(difference) / np.sqrt(100_000)
  found = _kl_divergence(p, q)
  np.testing.assert_allclose(found, np.mean(difference), atol=error)
  np.testing.assert_allclose(_kl_divergence(p, p), 0.0, atol=1e-6)


def test_mode_has_the_highest_density(key):
  logits = _random_logits(6)
  best = _mode(logits)
  many = jax.tree.map(lambda x: np.tile(x, (1000, 1)), logits)
  others = _log_prob(many, _sample(key, many))
  assert _log_prob(logits, best) >= jnp.max(others)
  np.testing.assert_allclose(jnp.sum(best['shares']), 1.0, rtol=1e-5)


def test_all_is_finite_even_far_out_and_without_an_action():
  logits = jax.tree.map(lambda x: 10 * x, _random_logits(7, (20,)))
  no_action = distributions.no_action(SPEC, (20,))

  def total(logits):
    return jnp.sum(_entropy(logits) + _log_prob(logits, no_action))

  value, gradient = jax.jit(jax.value_and_grad(total))(logits)
  chex.assert_tree_all_finite((value, gradient))


def test_what_is_drawn_fits_the_spec_at_the_environment(key):
  logits = _random_logits(8, (50,))
  action = _sample(key, logits)
  sent = jax.jit(lambda x: distributions.to_environment(SPEC, x))(action)
  for row in range(50):
    at_row = operator.itemgetter(row)
    fakes.check_action(SPEC, jax.tree.map(at_row, jax.device_get(sent)))
  torque = np.asarray(action['arm']['torque'])
  np.testing.assert_allclose(
    sent['arm']['torque'],
    np.clip([0, 1] + torque * [2, 1], [-2, 0], [2, 2]),
    atol=1e-6,
  )
  assert np.any(np.abs(torque) > 1)
  for part in ('mode', 'shares'):
    np.testing.assert_array_equal(sent[part], action[part])
  np.testing.assert_array_equal(sent['arm']['force'], action['arm']['force'])


def test_bounds_on_one_side_only_cut_off():
  spec = dm_env.specs.BoundedArray((2,), np.float32, [0.0, -np.inf], np.inf)
  sent = continuous.to_environment(spec, jnp.array([-3.0, -3.0]))
  np.testing.assert_array_equal(sent, [0.0, -3.0])


def test_structures_agree():
  logits = distributions.zero_logits(SPEC, (4,))
  no_action = distributions.no_action(SPEC, (4,))
  drawn = _sample(jax.random.PRNGKey(0), logits)
  chex.assert_trees_all_equal_shapes_and_dtypes(drawn, no_action)
  assert no_action['mode'][0] == types.NO_ACTION
  assert not np.any(no_action['shares'])


def test_simplex_spec_is_like_any_other():
  spec = continuous.SimplexArray(3, 'shares')
  for copy in (pickle.loads(pickle.dumps(spec)), spec.replace()):
    assert isinstance(copy, continuous.SimplexArray)
    assert (copy.shape, copy.name) == ((3,), 'shares')
  assert spec.replace(num_shares=4).shape == (4,)
  spec.validate(np.float32([0.2, 0.3, 0.5]))
  with pytest.raises(ValueError, match='shares .* must add up to 1, not 0.5'):
    spec.validate(np.float32([0.0, 0.0, 0.5]))
  with pytest.raises(ValueError, match=r'num_shares \(1\) must be at least 2'):
    continuous.SimplexArray(1)


def test_bounds_of_a_dtype_are_no_scale():
  largest = np.finfo(np.float32).max
  spec = dm_env.specs.BoundedArray((1,), np.float32, -largest, largest)
  sample = jnp.array([[0.5], [-3.0]])
  np.testing.assert_array_equal(continuous.to_environment(spec, sample), sample)
  np.testing.assert_array_equal(
    continuous.from_environment(spec, sample), sample
  )
