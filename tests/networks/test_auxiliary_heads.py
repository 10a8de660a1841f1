import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ftwax.networks import auxiliary_heads

NUM_ACTIONS = {'move': 3, 'turn': 5}


def make_head(make):
  """Returns the functions of a head, compiled."""
  transformed = hk.without_apply_rng(hk.transform(lambda x: make()(x)))
  return hk.Transformed(*map(jax.jit, transformed))


def make_pixel_control(num_actions, **kwargs):
  return make_head(
    lambda: auxiliary_heads.PixelControlHead(num_actions, **kwargs)
  )


def test_pixel_control_has_a_map_for_each_action_of_each_part(key):
  head = make_pixel_control(NUM_ACTIONS)
  features = jax.random.normal(key, (2, 16))
  params = head.init(key, features)
  q = head.apply(params, features)
  assert {k: v.shape for k, v in q.items()} == {
    'move': (2, 20, 20, 3),
    'turn': (2, 20, 20, 5),
  }
  # The FTW agent's first layer is 7x7x32.
  assert params['pixel_control_head/linear']['w'].shape == (16, 7 * 7 * 32)
  # The mean over actions is the value, which all parts share.
  np.testing.assert_allclose(
    np.mean(q['move'], -1), np.mean(q['turn'], -1), atol=1e-5
  )
  assert np.std(np.mean(q['move'], -1)) > 1e-3
  assert np.max(np.std(q['turn'], -1)) > 1e-3


def test_pixel_control_enlarges_by_a_transposed_convolution(key):
  """The maps before the last layers, by 9x9 with a stride of 3 in NumPy."""
  grid_shape, channels = (5, 7), 2
  head = make_pixel_control(3, grid_shape=grid_shape, num_channels=channels)
  features = jax.random.normal(key, (1, 4))
  params = head.init(key, features)
  name = 'pixel_control_head'
  small = np.asarray(features) @ np.asarray(params[f'{name}/linear']['w'])
  small = np.maximum(small, 0.0).reshape(2, 3, channels)
  weights = np.asarray(params[f'{name}/enlarge']['w'])
  weights = weights.reshape(3, 3, channels, 3, 3, channels)
  large = np.zeros((6 + 6, 9 + 6, channels))
  for row, column in np.ndindex(2, 3):
    for i, j in np.ndindex(9, 9):
      kernel = weights[2 - i // 3, 2 - j // 3, :, i % 3, j % 3]
      large[3 * row + i, 3 * column + j] += small[row, column] @ kernel
  large = np.maximum(large[3 : 3 + 5, 3 : 3 + 7], 0.0)

  last = make_head(lambda: hk.Conv2D(1 + 3, 4, name='values'))
  values = np.asarray(
    last.apply({'values': params[f'{name}/values']}, np.float32(large)[None])
  )
  advantages = values[..., 1:]
  expected = (
    values[..., :1] + advantages - advantages.mean(axis=-1, keepdims=True)
  )
  np.testing.assert_allclose(head.apply(params, features), expected, atol=1e-5)


def test_pixel_control_of_a_signal_has_one_dimension(key):
  """A transposed convolution of 9 with stride 3, then one of 4, in NumPy."""
  cells, channels = 7, 2
  head = make_pixel_control(NUM_ACTIONS, grid_shape=(cells,), num_channels=2)
  features = jax.random.normal(key, (2, 4))
  params = head.init(key, features)
  rng = np.random.default_rng(0)
  params = jax.tree.map(
    lambda leaf: rng.normal(size=leaf.shape).astype(np.float32), params
  )
  found = head.apply(params, features)
  exact = jax.tree.map(np.float64, params)
  linear, enlarge, values = (
    exact[f'pixel_control_head/{name}']
    for name in ('linear', 'enlarge', 'values')
  )
  kernel = enlarge['w'].reshape(3, channels, 3, channels)
  for row in range(2):
    small = np.float64(features[row]) @ linear['w'] + linear['b']
    small = np.maximum(small, 0.0).reshape(3, channels)
    large = np.zeros((9 + 6, channels))
    for cell, i in np.ndindex(3, 9):
      large[3 * cell + i] += small[cell] @ kernel[2 - i // 3, :, i % 3]
    large = (
      large[3 : 3 + cells]
      + np.tile(enlarge['b'].reshape(3, channels), (3, 1))[:cells]
    )
    padded = np.pad(np.maximum(large, 0.0), ((1, 2), (0, 0)))
    x = np.stack(
      [
        np.einsum('kc,kco->o', padded[at : at + 4], values['w']) + values['b']
        for at in range(cells)
      ]
    )
    for name, (begin, end) in (('move', (1, 4)), ('turn', (4, 9))):
      advantages = x[:, begin:end]
      expected = x[:, :1] + advantages - advantages.mean(-1, keepdims=True)
      np.testing.assert_allclose(
        found[name][row], expected, rtol=1e-4, atol=1e-4
      )


@pytest.mark.parametrize('grid_shape', [(5, 9), (1, 2), (21, 21), (7,), (1,)])
def test_pixel_control_has_any_grid(grid_shape, key):
  head = make_pixel_control(4, grid_shape=grid_shape, num_channels=2)
  features = jnp.ones((1, 8))
  q = head.apply(head.init(key, features), features)
  assert q.shape == (1, *grid_shape, 4)


def test_bad_pixel_control(key):
  head = make_pixel_control(4, grid_shape=(0, 2))
  with pytest.raises(
    ValueError, match=r'grid_shape \(\(0, 2\)\) and num_channels \(32'
  ):
    head.init(key, jnp.ones((1, 8)))


def test_reward_prediction_reads_frames_in_their_order(key):
  head = make_head(lambda: auxiliary_heads.RewardPredictionHead(8))
  embeddings = jax.random.normal(key, (3, 2, 5))
  params = head.init(key, embeddings)
  logits = head.apply(params, embeddings)
  assert logits.shape == (2, 3)
  hidden, last = (
    params['reward_prediction_head/linear'],
    params['reward_prediction_head/linear_1'],
  )
  for row in range(2):
    x = np.concatenate(np.asarray(embeddings)[:, row])
    x = np.maximum(x @ np.array(hidden['w']) + np.array(hidden['b']), 0)
    expected = x @ np.array(last['w']) + np.array(last['b'])
    np.testing.assert_allclose(logits[row], expected, atol=1e-5)
