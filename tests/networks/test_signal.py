import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ftwax.networks import signal


def make_torso(config=None):
  return hk.without_apply_rng(
    hk.transform(lambda x: signal.SignalTorso(config)(x))
  )


def test_default_shapes(key):
  torso = make_torso()
  x = jax.random.normal(key, (2, 30, 3))
  params = torso.init(key, x)
  # 30, 15, 8, 4, 2 moments.
  assert torso.apply(params, x).shape == (2, 2 * 64)


def test_one_layer_is_a_strided_convolution(key):
  config = signal.SignalTorsoConfig((4,), layer_norm=False)
  torso = make_torso(config)
  x = np.random.default_rng(0).normal(size=(2, 6, 3)).astype(np.float32)
  params = torso.init(key, x)
  p = params['signal_torso/conv1_d']
  padded = np.pad(x, ((0, 0), (0, 1), (0, 0)))  # SAME of an even length.
  rows = [
    np.einsum('bwc,wco->bo', padded[:, t : t + 3], p['w']) for t in (0, 2, 4)
  ]
  expected = np.stack(rows, 1) + np.array(p['b'])
  expected = np.where(expected > 0, expected, np.expm1(expected))
  np.testing.assert_allclose(
    torso.apply(params, x), expected.reshape(2, -1), atol=1e-5
  )


def test_single_channel_and_projection(key):
  torso = make_torso(signal.SignalTorsoConfig((4, 4), output_size=7))
  x = jnp.arange(20).reshape(2, 10)  # Integers are taken as they are.
  params = torso.init(key, x)
  features = torso.apply(params, x)
  assert features.shape == (2, 7) and features.dtype == jnp.float32
  np.testing.assert_allclose(
    features, torso.apply(params, x[..., None].astype(jnp.float32)), rtol=1e-6
  )


def test_images_are_refused(key):
  with pytest.raises(ValueError, match=r'shape \(8, 8, 3\) must be \[length'):
    make_torso().init(key, jnp.zeros((1, 8, 8, 3)))


@pytest.mark.parametrize(
  ('kwargs', 'message'),
  [
    (
      {'num_channels': ()},
      r'num_channels \(\(\)\) of a signal torso must have',
    ),
    ({'stride': 0}, r'stride \(0\) of a signal torso must be at least one'),
  ],
)
def test_bad_configs(kwargs, message):
  with pytest.raises(ValueError, match=message):
    signal.SignalTorsoConfig(**kwargs)
