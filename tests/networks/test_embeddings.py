import collections

import fakes
import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from dm_env import specs

from ftwax import encodings, trees, types
from ftwax.agents import ppo
from ftwax.networks import embeddings, entry_torsos


def _flatten():
  return entry_torsos.MLPTorso(())


def _apply(make_embedding, *inputs):
  """Applies an embedding without parameters."""
  transformed = hk.transform(lambda *inputs: make_embedding()(*inputs))
  params = transformed.init(jax.random.PRNGKey(0), *inputs)
  assert not params
  return transformed.apply(params, None, *inputs)


def _embed(spec, observation, **kwargs):
  kwargs = {'make_vector_torso': _flatten, **kwargs}
  return _apply(
    lambda: embeddings.ObservationEmbedding(spec, **kwargs), observation
  )


def test_entries_are_joined_in_sorted_order_without_the_mask():
  spec = {
    'c': {
      'y': specs.Array((2,), bool),
      'x': specs.BoundedArray((2,), np.uint8, 0, 1),
    },
    'b': specs.Array((), np.int32),
    'a': specs.DiscreteArray(3),
    types.ACTION_MASK: specs.Array((4,), np.uint8),
  }
  observation = {
    'a': np.array([2, 0]),
    'b': np.array([7, -7], np.int32),
    'c': {
      'x': np.array([[0, 1], [1, 1]], np.uint8),
      'y': np.array([[True, False], [False, True]]),
    },
    types.ACTION_MASK: np.ones((2, 4), np.uint8),
  }
  embedding = _embed(spec, observation)
  assert embedding.dtype == jnp.float32
  np.testing.assert_allclose(
    embedding,
    [
      [0, 0, 1, 7, 0, 1, 1, 0],
      [1, 0, 0, -7, 1, 1, 0, 1],
    ],
    rtol=1e-6,
  )


def test_codes_of_few_values_are_one_hot():
  spec = specs.BoundedArray((2,), np.int32, 1, 3)
  np.testing.assert_array_equal(
    _embed(spec, np.array([[1, 3], [2, 2]], np.int32)),
    [[1, 0, 0, 0, 0, 1], [0, 1, 0, 0, 1, 0]],
  )


def test_codes_of_a_grid_have_unit_scale():
  # An observation of MiniGrid: objects 0 to 10, of six colors, in three states.
  spec = specs.BoundedArray((7, 7, 3), np.uint8, 0, 254)
  grid = np.random.default_rng(0).integers(0, [11, 6, 3], (4, 7, 7, 3))
  grid[1] = grid[0]
  grid[1, 3, 6, 2] = (grid[0, 3, 6, 2] + 1) % 3

  def embed(**kwargs):
    transformed = hk.transform(
      lambda grid: embeddings.ObservationEmbedding(
        spec, make_vector_torso=_flatten, **kwargs
      )(grid)
    )
    params = transformed.init(jax.random.PRNGKey(0), grid.astype(np.uint8))
    return transformed.apply(params, None, grid.astype(np.uint8))

  features = embed().reshape(4, 7, 7, 3, 8)
  assert 0.7 < np.std(features) < 1.3
  changed = np.any(features[0] != features[1], axis=-1)  # [7, 7, 3]
  assert np.argwhere(changed).tolist() == [[3, 6, 2]]
  scaled = embed(entry_encodings={'': 'scaled'})
  np.testing.assert_allclose(scaled, grid.reshape(4, -1) / 254, rtol=1e-6)


@pytest.mark.parametrize(
  ('spec', 'encoding'),
  [
    (specs.BoundedArray((84, 84, 4), np.uint8, 0, 255), 'scaled'),
    (specs.BoundedArray((16, 16), np.uint8, 0, 200), 'scaled'),
    (specs.BoundedArray((19, 19, 3), np.uint8, 0, 10), 'one_hot'),
    (specs.BoundedArray((7, 7, 3), np.uint8, 0, 40), 'embedding'),
    (specs.Array((128,), np.uint8), 'embedding'),
    (specs.BoundedArray((6,), np.int8, 0, 1), 'scaled'),
    (specs.BoundedArray((6,), np.int32, -100, 100), 'scaled'),
    (specs.Array((6,), np.int32), 'scaled'),
    (specs.BoundedArray((7, 7, 3), np.float32, 0, 10), 'scaled'),
    (specs.DiscreteArray(50), 'one_hot'),
    (specs.DiscreteArray(200_000), 'embedding'),
    (specs.BoundedArray((9, 9, 3), np.uint8, 0, 255), 'scaled'),
    (specs.BoundedArray((3, 9, 9), np.uint8, 0, 255), 'scaled'),
    (specs.BoundedArray((2, 3, 3), np.uint8, 0, 255), 'scaled'),
    (specs.BoundedArray((4, 84, 84), np.uint8, 0, 255), 'scaled'),
    (specs.BoundedArray((4, 84, 84, 3), np.uint8, 0, 255), 'scaled'),
  ],
)
def test_encoding_is_chosen_by_dtype_shape_and_bounds(spec, encoding):
  assert encodings.choose(spec) == encoding


def test_small_images_of_bytes_may_have_any_bounds():
  spec = specs.BoundedArray((16, 16), np.uint8, 50, 250)
  image = np.full((1, 16, 16), 150, np.uint8)
  scaled = _embed(spec, image, make_image_torso=_flatten)
  np.testing.assert_allclose(scaled, np.full((1, 256), 0.5), rtol=1e-6)


def test_channels_of_codes_are_planes_of_an_image():
  spec = specs.BoundedArray((16, 16, 2), np.uint8, 0, 3)
  shapes = []

  def make_torso():
    return lambda x: (shapes.append(x.shape), x.reshape(x.shape[0], -1))[1]

  _embed(spec, np.zeros((5, 16, 16, 2), np.uint8), make_image_torso=make_torso)
  assert shapes[-1] == (5, 16, 16, 8)


def test_numbers_without_bounds_have_no_codes():
  with pytest.raises(ValueError, match="'scaled' without bounds of integers"):
    _embed(
      specs.Array((2,), np.int32),
      np.zeros((1, 2)),
      entry_encodings={'': 'one_hot'},
    )


def test_insertion_order_of_an_ordered_dict_does_not_matter():
  spec = collections.OrderedDict(
    b=specs.Array((1,), np.float32), a=specs.Array((1,), np.float32)
  )
  observation = {'a': np.array([[1.0]]), 'b': np.array([[2.0]])}
  np.testing.assert_array_equal(_embed(spec, observation), [[1.0, 2.0]])


def test_observation_may_be_a_tuple_or_an_array():
  spec = specs.Array((2,), np.float32)
  x, y = np.array([[1.0, 2.0]]), np.array([[3.0, 4.0]])
  np.testing.assert_array_equal(_embed(spec, x), x)
  np.testing.assert_array_equal(
    _embed((spec, [spec]), (x, [y])), [[1.0, 2.0, 3.0, 4.0]]
  )


@pytest.mark.parametrize(
  ('shape', 'is_image'),
  [
    ((16, 16), True),
    ((84, 16, 3), True),
    ((15, 84, 3), False),
    ((84, 15), False),
    ((256,), False),
    ((16, 16, 16, 16), False),
    ((), False),
  ],
)
def test_torso_is_chosen_by_shape(shape, is_image):
  embedding = _embed(
    specs.Array(shape, np.float32),
    np.zeros((2, *shape)),
    make_image_torso=lambda: lambda x: jnp.ones((x.shape[0], 1)),
    make_vector_torso=lambda: lambda x: jnp.zeros((x.shape[0], 1)),
  )
  np.testing.assert_array_equal(embedding, np.full((2, 1), is_image))


@pytest.mark.parametrize(
  ('shape', 'is_signal'),
  [
    ((30, 3), True),
    ((30, 1), True),
    ((84, 15), True),
    ((84, 16), False),
    ((15, 3), False),
    ((3, 30), False),
    ((30,), False),
    ((30, 3, 1), False),
  ],
)
def test_signals_are_long_and_have_few_channels(shape, is_signal):
  assert encodings.is_signal(shape) == is_signal
  assert not (is_signal and encodings.is_image(specs.Array(shape, np.float32)))


def test_default_torsos(key):
  spec = {
    'image': specs.BoundedArray((16, 16, 3), np.uint8, 0, 255),
    'vector': specs.Array((5,), np.float32),
  }
  transformed = hk.transform(lambda x: embeddings.ObservationEmbedding(spec)(x))
  observation = trees.zeros_like_spec(spec, (2,))
  params = transformed.init(key, observation)
  names = {name.split('/')[2] for name in params}
  assert names == {'ftw_torso', 'mlp_torso'}
  assert transformed.apply(params, None, observation).shape == (2, 256 + 256)


def test_torsos_may_be_given_by_name():
  spec = {
    'map': {'fine': specs.Array((16, 16), np.float32)},
    'other': specs.Array((1,), np.float32),
  }
  observation = {
    'map': {'fine': np.ones((1, 16, 16))},
    'other': np.array([[3.0]]),
  }
  make_torsos = {'map/fine': lambda: lambda x: jnp.sum(x, axis=(1, 2))[:, None]}
  embedding = _embed(spec, observation, make_torsos=make_torsos)
  np.testing.assert_array_equal(embedding, [[256.0, 3.0]])


def test_unknown_name_is_refused():
  spec = {'position': specs.Array((2,), np.float32)}
  with pytest.raises(
    ValueError, match=r"make_torsos \['positoin'\].*from \['position'\]"
  ):
    _embed(spec, {}, make_torsos={'positoin': _flatten})


def test_observation_of_a_mask_alone_is_refused():
  spec = {types.ACTION_MASK: specs.Array((2,), np.uint8)}
  with pytest.raises(ValueError, match="must have an entry besides 'action_m"):
    _embed(spec, {})


def test_observation_that_lacks_an_entry_is_refused():
  spec = {'x': specs.Array((2,), np.float32), 'y': specs.Array((), np.float32)}
  with pytest.raises(
    ValueError, match=r"\(\['x'\]\) must have.*its spec, \['x', 'y'\]"
  ):
    _embed(spec, {'x': np.zeros((1, 2))})


def _embed_input(num_actions, previous_action, previous_reward, **kwargs):
  inputs = types.NetworkInput(
    observation=np.array([[5.0], [6.0]], np.float32),
    previous_action=previous_action,
    previous_reward=np.asarray(previous_reward, np.float32),
  )
  return _apply(
    lambda: embeddings.InputEmbedding(_flatten(), num_actions, **kwargs),
    inputs,
  )


def test_input_embedding_of_one_action():
  embedding = _embed_input(3, np.array([2, types.NO_ACTION]), [0.5, 0.0])
  assert embedding.dtype == jnp.float32
  np.testing.assert_allclose(
    embedding, [[5, 0, 0, 1, np.tanh(0.5)], [6, 0, 0, 0, 0]], rtol=1e-6
  )


def test_input_embedding_of_an_action_beyond_its_bounds():
  spec = specs.BoundedArray((2,), np.float32, [0.0, -1.0], [8.0, np.inf])
  previous = np.array([[0.5, -3.0], [1e30, 1e30]], np.float32)
  embedding = _embed_input(spec, previous, [0.0, 0.0])
  np.testing.assert_allclose(
    embedding[:, 1:-1], [[0.5, -1.0], [1.0, 1e30]], rtol=1e-6
  )


@pytest.mark.parametrize('container', [tuple, lambda x: {'a': x[0], 'b': x[1]}])
def test_input_embedding_of_an_action_of_parts(container):
  embedding = _embed_input(
    container((2, 3)),
    container((np.array([1, 0]), np.array([types.NO_ACTION, 2]))),
    [0.0, 0.0],
  )
  np.testing.assert_array_equal(
    embedding, [[5, 0, 1, 0, 0, 0, 0], [6, 1, 0, 0, 0, 1, 0]]
  )


@pytest.mark.parametrize(
  ('reward_transform', 'expected'),
  [
    (jnp.tanh, np.tanh([-30.0, 2.0])),
    (lambda reward: jnp.clip(reward, -1.0, 1.0), [-1.0, 1.0]),
    (None, [-30.0, 2.0]),
  ],
)
def test_reward_transform(reward_transform, expected):
  embedding = _embed_input(
    2,
    np.array([0, 0]),
    [-30.0, 2.0],
    previous=embeddings.Previous(reward_transform=reward_transform),
  )
  np.testing.assert_allclose(embedding[:, -1], expected, rtol=1e-6)


@pytest.mark.parametrize(
  ('choices', 'expected'),
  [
    ((False, True), [[5, np.tanh(0.5)]]),
    ((True, False), [[5, 0, 1]]),
    ((False, False), [[5]]),
    ((None, None), [[5, 0, 1, np.tanh(0.5)]]),
  ],
)
def test_parts_of_the_previous_step_are_chosen(choices, expected):
  embedding = _embed_input(
    2, np.array([1, 0]), [0.5, 0.0], previous=embeddings.Previous(*choices)
  )
  np.testing.assert_allclose(embedding[:1], expected, rtol=1e-6)


def _picture(shape):
  return specs.BoundedArray(shape, np.uint8, 0, 255)


@pytest.mark.parametrize(
  ('shape', 'order'),
  [
    ((4, 20, 24), (1, 2, 0)),
    ((3, 20, 24), (1, 2, 0)),
    ((20, 24, 3), (0, 1, 2)),
    ((16, 20, 24), (1, 2, 0)),
    ((2, 20, 24, 3), (1, 2, 0, 3)),
    ((2, 3, 20, 24), (2, 3, 0, 1)),
  ],
)
def test_stacks_and_leading_channels_are_pictures_of_more_channels(
  shape, order
):
  frames = np.random.default_rng(0).integers(0, 256, (5, *shape), np.uint8)
  last = frames.transpose(0, *(1 + axis for axis in order))
  last = last.reshape(5, 20, 24, -1)

  def embed(spec, frames):
    transformed = hk.transform(
      lambda frames: embeddings.ObservationEmbedding(spec)(frames)
    )
    params = transformed.init(jax.random.PRNGKey(0), frames)
    return params, transformed.apply(params, None, frames)

  jax.tree.map(
    np.testing.assert_array_equal,
    embed(_picture(shape), frames),
    embed(_picture(last.shape[1:]), last),
  )


@pytest.mark.parametrize(
  ('spec', 'size'),
  [
    (specs.BoundedArray((10, 12, 50), np.uint8, 0, 255), '6,000'),
    (specs.BoundedArray((5000,), np.int32, 0, 9), '5,000'),
  ],
)
def test_too_many_codes_are_refused_with_the_choice(spec, size):
  with pytest.raises(
    ValueError, match=rf"{size}; set torso=torsos.Torso.encodings=.'map'"
  ):
    _embed({'map': spec}, {'map': np.zeros((1, *spec.shape), spec.dtype)})
  embeddings_of_choice = hk.transform(
    lambda codes: embeddings.ObservationEmbedding(
      spec, entry_encodings={'': 'scaled'}
    )(codes)
  )
  codes = np.zeros((1, *spec.shape), spec.dtype)
  jax.eval_shape(embeddings_of_choice.init, jax.random.PRNGKey(0), codes)


def test_a_table_of_many_symbols_is_small():
  spec = specs.DiscreteArray(200_000)
  init = hk.transform(lambda x: embeddings.ObservationEmbedding(spec)(x)).init
  params = jax.eval_shape(init, jax.random.PRNGKey(0), np.zeros((1,), np.int32))
  sizes = sum(leaf.size for leaf in jax.tree.leaves(params))
  assert sizes < 200_000 * 33


def test_images_with_bounds_of_float32_are_not_scaled():
  largest = float(np.finfo(np.float32).max)
  spec = specs.BoundedArray((20, 20), np.float32, -largest, largest)
  image = np.ones((1, 20, 20), np.float32)
  np.testing.assert_array_equal(embeddings.scale_image(image, spec), image)


def test_a_torso_that_adds_action_and_reward_is_refused():
  def make_torso():
    return embeddings.InputEmbedding(entry_torsos.FTWTorso(8), 3)

  config = ppo.PPOConfig(torso=make_torso)
  with pytest.raises(ValueError, match=r'torso .* must embed only the observ'):
    config.make_network(fakes.make_image_spec((16, 16, 3)))
  nested = hk.transform(lambda: embeddings.InputEmbedding(make_torso(), 3))
  with pytest.raises(ValueError, match=r'torso .* must embed only the observ'):
    nested.init(jax.random.PRNGKey(0))
