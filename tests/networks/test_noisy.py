import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ftwax.networks import noise, noisy

NUM_INPUTS, NUM_OUTPUTS = 5, 3


def make_layer(**kwargs):
  transformed = hk.without_apply_rng(
    hk.transform(lambda x: noisy.NoisyLinear(NUM_OUTPUTS, **kwargs)(x))
  )

  def apply(params, x, seeds):
    with noise.seeded(seeds):
      return transformed.apply(params, x)

  return transformed.init, apply


@pytest.mark.parametrize('kind', noisy.KINDS)
def test_outputs_have_the_moments_of_the_paper(kind, key):
  """Those of a linear layer whose weights are independent normals."""
  init, apply = make_layer(kind=kind)
  x = np.random.default_rng(0).normal(size=(1, NUM_INPUTS)).astype(np.float32)
  params = init(key, x)
  p = jax.tree.map(np.array, params['noisy_linear'])
  scale = 0.5 / np.sqrt(NUM_INPUTS) if kind == 'factorised' else 0.017
  np.testing.assert_allclose(p['sigma_w'], scale, rtol=1e-6)
  mean = x @ p['mu_w'] + p['mu_b']
  np.testing.assert_allclose(apply(params, x, None), mean, atol=1e-5)
  seeds = jnp.arange(20_000)
  rows = np.array(apply(params, np.repeat(x, len(seeds), 0), seeds))
  # E f(e)^2 is E |e|, the root of 2 / pi.
  square = np.sqrt(2 / np.pi) if kind == 'factorised' else 1.0
  weights = (x**2) @ (square * p['sigma_w']) ** 2
  deviation = np.sqrt(weights + square * p['sigma_b'] ** 2)
  error = 4 * deviation / np.sqrt(len(seeds))
  assert np.all(np.abs(rows.mean(0) - mean) < error)
  np.testing.assert_allclose(rows.std(0), deviation[0], rtol=0.05)


def test_factorised_noise_scales_inputs_and_outputs(key, monkeypatch):
  init, apply = make_layer()
  x = np.random.default_rng(0).normal(size=(1, NUM_INPUTS)).astype(np.float32)
  params = init(key, x)
  p = jax.tree.map(np.array, params['noisy_linear'])
  e = np.random.default_rng(1).normal(size=(1, NUM_INPUTS + NUM_OUTPUTS))
  monkeypatch.setattr(noise, 'normal', lambda size: jnp.float32(e))
  f = np.sign(e) * np.sqrt(np.abs(e))
  w = p['mu_w'] + p['sigma_w'] * np.outer(f[0, :NUM_INPUTS], f[0, NUM_INPUTS:])
  b = p['mu_b'] + p['sigma_b'] * f[0, NUM_INPUTS:]
  np.testing.assert_allclose(apply(params, x, None), x @ w + b, atol=1e-5)


@pytest.mark.parametrize('kind', noisy.KINDS)
def test_each_seed_is_a_policy(kind, key):
  init, apply = make_layer(kind=kind)
  x = jnp.ones((4, NUM_INPUTS))
  params = init(key, x)
  seeds = jnp.array([5, 5, 6, 7])
  rows = apply(params, x, seeds)
  np.testing.assert_array_equal(rows, apply(params, x, seeds))
  np.testing.assert_array_equal(rows[0], rows[1])
  assert np.all(np.abs(rows[1:3] - rows[2:]) > 1e-6)


@pytest.mark.parametrize('kind', noisy.KINDS)
def test_noise_has_a_finite_gradient(kind, key):
  init, apply = make_layer(kind=kind)
  x = jnp.ones((1, NUM_INPUTS))
  params = init(key, x)
  seeds = jnp.arange(1)
  gradient = jax.grad(lambda p: jnp.sum(apply(p, x, seeds)))(params)
  found = gradient['noisy_linear']['sigma_w']
  assert np.all(np.isfinite(found)) and np.all(found != 0.0)


@pytest.mark.parametrize(
  ('kwargs', 'message'),
  [
    ({'kind': 'gaussian'}, r"kind \('gaussian'\) of noise must be one of fact"),
    (
      {'num_outputs': 0},
      r'num_outputs \(0\) of a noisy layer must be at least',
    ),
  ],
)
def test_bad_layers(kwargs, message, key):
  kwargs = {'num_outputs': 2, **kwargs}
  layer = hk.transform(lambda x: noisy.NoisyLinear(**kwargs)(x))
  with pytest.raises(ValueError, match=message):
    layer.init(key, jnp.ones((1, 2)))
