import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from dm_env import specs

from ftwax.networks import entry_torsos, torsos

IMAGE_TORSOS = [
  entry_torsos.FTWTorso,
  entry_torsos.NatureTorso,
  entry_torsos.ShallowTorso,
  entry_torsos.A3CTorso,
  entry_torsos.DeepTorso,
]


def _transform(make_torso):
  return hk.without_apply_rng(hk.transform(lambda x: make_torso()(x)))


def _windows(x, size, stride, padding, fill=0.0):
  """Returns windows [B, H', W', size, size, C] of x [B, H, W, C]."""
  pads = [(0, 0)]
  for side in x.shape[1:3]:
    total = max((-(-side // stride) - 1) * stride + size - side, 0)
    total = total if padding == 'SAME' else 0
    pads.append((total // 2, total - total // 2))
  x = np.pad(x, [*pads, (0, 0)], constant_values=fill)
  height, width = ((side - size) // stride + 1 for side in x.shape[1:3])
  rows = [
    [
      x[:, i * stride : i * stride + size, j * stride : j * stride + size]
      for j in range(width)
    ]
    for i in range(height)
  ]
  return np.stack([np.stack(row, axis=1) for row in rows], axis=1)


def _conv(params, x, stride=1, padding='SAME'):
  w = params['w']
  windows = _windows(x, w.shape[0], stride, padding)
  return np.einsum('bhwijc,ijcd->bhwd', windows, w) + params['b']


def _max_pool(x):
  return _windows(x, 3, 2, 'SAME', fill=-np.inf).max(axis=(3, 4))


def _relu(x):
  return np.maximum(x, 0.0)


def _linear(params, x):
  return x.reshape(x.shape[0], -1) @ params['w'] + params['b']


def _ftw_oracle(convs, linear, x):
  x = _relu(_conv(convs[0], x, 4))
  x = _relu(_conv(convs[1], x, 2))
  first_sum = x + _conv(convs[2], x)
  second_sum = first_sum + _conv(convs[3], _relu(first_sum))
  return _linear(linear, _relu(second_sum))


def _nature_oracle(convs, linear, x):
  for params, stride in zip(convs, (4, 2, 1), strict=True):
    x = _relu(_conv(params, x, stride, 'VALID'))
  return _relu(_linear(linear, x))


def _shallow_oracle(convs, linear, x):
  for params, stride in zip(convs, (4, 2), strict=True):
    x = _relu(_conv(params, x, stride, 'VALID'))
  return _relu(_linear(linear, x))


def _a3c_oracle(convs, linear, x):
  assert linear is None
  for params in convs:
    x = _conv(params, x, 2)
    x = np.where(x > 0, x, np.expm1(np.minimum(x, 0.0)))
  return x.reshape(x.shape[0], -1)


def _deep_oracle(convs, linear, x):
  convs = iter(convs)
  for _ in range(3):
    x = _max_pool(_conv(next(convs), x))
    for _ in range(2):
      branch = _conv(next(convs), _relu(x))
      x = x + _conv(next(convs), _relu(branch))
  assert next(convs, None) is None
  return _relu(_linear(linear, _relu(x)))


@pytest.mark.parametrize(
  ('make_torso', 'oracle', 'side'),
  [
    (entry_torsos.FTWTorso, _ftw_oracle, 18),
    (entry_torsos.NatureTorso, _nature_oracle, 44),
    (entry_torsos.ShallowTorso, _shallow_oracle, 29),
    (entry_torsos.A3CTorso, _a3c_oracle, 17),
    (entry_torsos.DeepTorso, _deep_oracle, 11),
  ],
)
def test_torso_agrees_with_oracle(key, make_torso, oracle, side):
  frames = np.random.RandomState(0).rand(2, side, side + 3, 2)
  torso = _transform(make_torso)
  params = torso.init(key, jnp.zeros((1, side, side + 3, 2)))
  # Biases that are not zero, or they would not be tested.
  params = jax.tree.map(
    lambda p: p + 0.1 * jnp.cos(jnp.arange(p.size)).reshape(p.shape), params
  )
  layers = {
    name.split('/')[-1]: jax.tree.map(lambda p: np.float64(p), layer)
    for name, layer in params.items()
  }
  names = ['conv2_d', *(f'conv2_d_{i}' for i in range(1, len(layers)))]
  convs = [layers[name] for name in names if name in layers]
  expected = oracle(convs, layers.get('linear'), frames)
  actual = torso.apply(params, jnp.float32(frames))
  # Wide residual sums in float32.
  scale = np.abs(expected).max()
  np.testing.assert_allclose(actual / scale, expected / scale, atol=2e-6)


@pytest.mark.parametrize(
  ('make_torso', 'side', 'num_flat', 'num_features'),
  [
    (entry_torsos.FTWTorso, 84, 11 * 11 * 64, 256),
    (entry_torsos.NatureTorso, 84, 7 * 7 * 64, 512),
    (entry_torsos.ShallowTorso, 84, 9 * 9 * 32, 256),
    (entry_torsos.A3CTorso, 42, None, 3 * 3 * 32),
    (entry_torsos.DeepTorso, 84, 11 * 11 * 32, 256),
  ],
)
def test_published_sizes(key, make_torso, side, num_flat, num_features):
  frames = jax.ShapeDtypeStruct((2, side, side, 3), jnp.uint8)
  torso = _transform(make_torso)
  params = jax.eval_shape(torso.init, key, frames)
  features = jax.eval_shape(torso.apply, params, frames)
  assert features.shape == (2, num_features)
  assert features.dtype == jnp.float32
  linear = [layer for name, layer in params.items() if 'linear' in name]
  assert [layer['w'].shape[0] for layer in linear] == (
    [num_flat] if num_flat else []
  )


@pytest.mark.parametrize('make_torso', [*IMAGE_TORSOS, entry_torsos.MLPTorso])
def test_bytes_are_scaled_once_and_floats_never(key, make_torso):
  frames = np.random.RandomState(0).randint(0, 256, (2, 36, 36, 1), np.uint8)
  torso = _transform(make_torso)
  params = torso.init(key, frames)
  apply = jax.jit(torso.apply)
  from_bytes = apply(params, frames)
  np.testing.assert_allclose(
    from_bytes, apply(params, np.float32(frames) / 255), atol=1e-6
  )
  as_they_are = apply(params, np.float32(frames))
  assert np.abs(as_they_are).max() > 20 * np.abs(from_bytes).max()


@pytest.mark.parametrize('make_torso', IMAGE_TORSOS)
def test_frames_without_channels_get_one(key, make_torso):
  frames = np.random.RandomState(0).rand(2, 36, 36).astype(np.float32)
  torso = _transform(make_torso)
  params = torso.init(key, frames)
  np.testing.assert_array_equal(
    torso.apply(params, frames), torso.apply(params, frames[..., None])
  )


def test_mlp_torso_flattens_and_applies_relu_after_each_layer(key):
  x = np.random.RandomState(0).randn(3, 2, 2).astype(np.float32)
  torso = _transform(lambda: entry_torsos.MLPTorso((5, 4)))
  params = jax.tree.map(np.asarray, torso.init(key, x))
  hidden = _relu(_linear(params['mlp_torso/linear'], x))
  expected = _relu(_linear(params['mlp_torso/linear_1'], hidden))
  np.testing.assert_allclose(torso.apply(params, x), expected, atol=1e-6)


@pytest.mark.parametrize(
  ('observation', 'expected'),
  [
    (np.array([[2, -3]], np.int32), [[2.0, -3.0]]),
    (np.array([[True, False]]), [[1.0, 0.0]]),
    (np.array([[0, 51]], np.uint8), [[0.0, 0.2]]),
    (np.array([4.0], np.float32), [[4.0]]),
  ],
)
def test_mlp_torso_without_layers_only_flattens(key, observation, expected):
  torso = _transform(lambda: entry_torsos.MLPTorso(()))
  features = torso.apply(torso.init(key, observation), observation)
  assert features.dtype == jnp.float32
  np.testing.assert_allclose(features, expected, rtol=1e-6)


@pytest.mark.parametrize('make_torso', IMAGE_TORSOS)
def test_small_frames_are_refused(key, make_torso):
  torso = _transform(make_torso)
  demand = r'Frames of \w+Torso \(50x7\) must be at least (\d+)x\1; enlarge'
  with pytest.raises(ValueError, match=demand):
    torso.init(key, jnp.zeros((1, 50, 7, 3)))


@pytest.mark.parametrize(
  ('make_torso', 'side'),
  [
    (entry_torsos.FTWTorso, 8),
    (entry_torsos.NatureTorso, 36),
    (entry_torsos.ShallowTorso, 20),
    (entry_torsos.A3CTorso, 16),
    (entry_torsos.DeepTorso, 8),
  ],
)
def test_smallest_frames(key, make_torso, side):
  def size_of(side):
    frames = jax.ShapeDtypeStruct((1, side, side, 1), jnp.uint8)
    return jax.eval_shape(_transform(make_torso).init, key, frames)

  assert size_of(side)
  with pytest.raises(ValueError, match='must be at least'):
    size_of(side - 1)


@pytest.mark.parametrize('shape', [(1, 84), (1, 84, 84, 3, 2)])
def test_frames_of_wrong_rank_are_refused(key, shape):
  torso = _transform(entry_torsos.FTWTorso)
  with pytest.raises(ValueError, match=r'must be \[H, W, C\] or \[H, W\]'):
    torso.init(key, jnp.zeros(shape))


def test_a_dict_is_refused(key):
  torso = _transform(entry_torsos.MLPTorso)
  with pytest.raises(TypeError, match='one array.*ObservationEmbedding'):
    torso.init(key, {'position': jnp.zeros((1, 2))})


def test_mlp_torso_has_the_nonlinearity_and_weights_of_its_name(key):
  torso = _transform(
    lambda: torsos.Torso(
      hidden_sizes=(6, 4), activation='tanh', initializer='orthogonal'
    ).make({'x': specs.Array((8,), np.float32)})
  )
  x = np.random.RandomState(0).randn(3, 8).astype(np.float32)
  params = torso.init(key, {'x': x})
  expected = x
  for layer in params.values():
    w = np.asarray(layer['w'])
    np.testing.assert_allclose(w.T @ w, 2.0 * np.eye(w.shape[1]), atol=1e-5)
    expected = np.tanh(expected @ w)
  np.testing.assert_allclose(torso.apply(params, {'x': x}), expected, atol=1e-6)
