import collections

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from dm_env import specs

from ftwax import trees, types
from ftwax.networks import embeddings, torsos


def _flatten():
  return torsos.MLPTorso(())


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
      'x': specs.BoundedArray((2,), np.uint8, 0, 255),
    },
    'b': specs.Array((), np.int32),
    'a': specs.DiscreteArray(3),
    types.ACTION_MASK: specs.Array((4,), np.uint8),
  }
  observation = {
    'a': np.array([2, 0]),
    'b': np.array([7, -7], np.int32),
    'c': {
      'x': np.array([[0, 255], [51, 102]], np.uint8),
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
      [1, 0, 0, -7, 0.2, 0.4, 0, 1],
    ],
    rtol=1e-6,
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
    2, np.array([0, 0]), [-30.0, 2.0], reward_transform=reward_transform
  )
  np.testing.assert_allclose(embedding[:, -1], expected, rtol=1e-6)
