import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ftwax.networks import noisy

NUM_INPUTS, NUM_OUTPUTS = 5, 3


def make_layer(**kwargs):
  return hk.without_apply_rng(
    hk.transform(
      lambda x, key: noisy.NoisyLinear(NUM_OUTPUTS, **kwargs)(x, key)
    )
  )


@pytest.mark.parametrize('kind', noisy.KINDS)
def test_outputs_are_those_of_the_paper(kind, key):
  layer = make_layer(kind=kind)
  x = np.random.default_rng(0).normal(size=(4, NUM_INPUTS)).astype(np.float32)
  params = layer.init(key, x, key)
  p = params['noisy_linear']
  noise = noisy.draw_noise(key, NUM_INPUTS, NUM_OUTPUTS, kind)
  w = p['mu_w'] + p['sigma_w'] * noise.w
  b = p['mu_b'] + p['sigma_b'] * noise.b
  np.testing.assert_allclose(
    layer.apply(params, x, key), x @ np.array(w) + np.array(b), atol=1e-5
  )
  np.testing.assert_allclose(
    layer.apply(params, x, None),
    x @ np.array(p['mu_w']) + np.array(p['mu_b']),
    atol=1e-5,
  )
  scale = 0.5 / np.sqrt(NUM_INPUTS) if kind == 'factorised' else 0.017
  np.testing.assert_allclose(p['sigma_w'], scale, rtol=1e-6)


def test_factorised_noise_is_an_outer_product_of_signed_roots(key):
  noise = noisy.draw_noise(key, 400, 300, 'factorised')
  assert np.linalg.matrix_rank(noise.w) == 1
  e = np.sign(noise.b) * np.square(noise.b)  # Undoes the root: normal.
  assert abs(np.mean(e)) < 0.2 and abs(np.std(e) - 1.0) < 0.15
  column = np.array(noise.w[:, 0] / noise.b[0])
  np.testing.assert_allclose(
    noise.w, column[:, None] * np.array(noise.b)[None], rtol=1e-4, atol=1e-5
  )


def test_independent_noise_is_normal(key):
  noise = noisy.draw_noise(key, 100, 90, 'independent')
  assert np.linalg.matrix_rank(noise.w) == 90
  assert abs(np.mean(noise.w)) < 0.05 and abs(np.std(noise.w) - 1) < 0.05


def test_same_key_same_policy_for_all_rows_and_calls(key):
  layer = make_layer()
  x = jnp.ones((4, NUM_INPUTS))
  params = layer.init(key, x, key)
  first, second = layer.apply(params, x, key), layer.apply(params, x, key)
  np.testing.assert_array_equal(first, second)
  np.testing.assert_allclose(
    first, jnp.broadcast_to(first[:1], first.shape), rtol=1e-6
  )
  other = layer.apply(params, x, jax.random.PRNGKey(1))
  assert np.all(np.abs(other - first) > 1e-6)


def test_noise_has_a_gradient(key):
  layer = make_layer()
  x = jnp.ones((1, NUM_INPUTS))
  params = layer.init(key, x, key)
  gradient = jax.grad(lambda p: jnp.sum(layer.apply(p, x, key)))(params)
  noise = noisy.draw_noise(key, NUM_INPUTS, NUM_OUTPUTS, 'factorised')
  found = gradient['noisy_linear']['sigma_w']
  np.testing.assert_allclose(found, noise.w, rtol=1e-5)


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
  layer = hk.transform(lambda x: noisy.NoisyLinear(**kwargs)(x, None))
  with pytest.raises(ValueError, match=message):
    layer.init(key, jnp.ones((1, 2)))
