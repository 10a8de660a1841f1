import jax
import numpy as np
import pytest
from dm_env import specs
from gymnasium import spaces
from gymnasium import vector as gymnasium_vector

from ftwax import distributions
from ftwax.environments import gymnasium_spaces


def assert_equal(a, b):
  assert jax.tree.structure(a) == jax.tree.structure(b)
  jax.tree.map(np.testing.assert_array_equal, a, b)


@pytest.mark.parametrize(
  ('space', 'spec', 'action', 'sent'),
  [
    (spaces.Discrete(3), specs.DiscreteArray(3), 2, np.int64(2)),
    (spaces.Discrete(3, start=5), specs.DiscreteArray(3), 2, np.int64(7)),
    (
      spaces.MultiDiscrete([2, 3], start=[0, 4]),
      (specs.DiscreteArray(2), specs.DiscreteArray(3)),
      (1, 2),
      np.array([1, 6]),
    ),
    (
      spaces.MultiDiscrete([[2, 3], [4, 5]]),
      tuple(map(specs.DiscreteArray, (2, 3, 4, 5))),
      (1, 2, 3, 4),
      np.array([[1, 2], [3, 4]]),
    ),
    (
      spaces.MultiBinary(3),
      (specs.DiscreteArray(2),) * 3,
      (1, 0, 1),
      np.array([1, 0, 1], np.int8),
    ),
    (
      spaces.Tuple([spaces.Discrete(2), spaces.Discrete(3, start=1)]),
      (specs.DiscreteArray(2), specs.DiscreteArray(3)),
      (1, 2),
      (np.int64(1), np.int64(3)),
    ),
    (
      spaces.Dict(
        {'a': spaces.Discrete(2), 'b': spaces.Dict(c=spaces.MultiBinary(2))}
      ),
      {
        'a': specs.DiscreteArray(2),
        'b': {'c': (specs.DiscreteArray(2), specs.DiscreteArray(2))},
      },
      {'a': 1, 'b': {'c': (0, 1)}},
      {'a': np.int64(1), 'b': {'c': np.array([0, 1], np.int8)}},
    ),
  ],
)
def test_action_spaces(space, spec, action, sent):
  got = gymnasium_spaces.action_spec(space, 'action_space')
  assert got == spec
  distributions.check_action_spec(got)
  action = jax.tree.map(np.int32, action)
  decode = gymnasium_spaces.make_decoder(space)
  assert space.contains(decode(action))
  assert_equal(decode(action), sent)
  # The batched space takes the batched action, row by row.
  batch = jax.tree.map(lambda part: np.stack([part, part]), action)
  batched_space = gymnasium_vector.utils.batch_space(space, 2)
  batched_action = decode(batch)
  assert batched_space.contains(batched_action)
  for row in gymnasium_vector.utils.iterate(batched_space, batched_action):
    assert_equal(row, sent)


@pytest.mark.parametrize(
  ('space', 'spec'),
  [
    (spaces.Discrete(3), specs.DiscreteArray(3)),
    (
      spaces.Discrete(3, start=5),
      specs.BoundedArray((), np.int32, 5, 7),
    ),
    (
      spaces.MultiDiscrete([2, 3], start=[1, 0]),
      specs.BoundedArray((2,), np.int32, [1, 0], [2, 2]),
    ),
    (
      spaces.MultiBinary((2, 3)),
      specs.BoundedArray((2, 3), np.int8, 0, 1),
    ),
    (
      spaces.Box(-1, np.inf, (2,), np.float64),
      specs.BoundedArray((2,), np.float32, [-1, -1], [np.inf, np.inf]),
    ),
    (
      spaces.Box(0, 255, (4, 4, 3), np.uint8),
      specs.BoundedArray((4, 4, 3), np.uint8, 0, 255),
    ),
    (
      spaces.Box(-3, 2**31 - 1, (2,), np.int64),
      specs.BoundedArray((2,), np.int32, -3, 2**31 - 1),
    ),
    (
      spaces.Box(0, 9, (1,), np.uint64),
      specs.BoundedArray((1,), np.uint32, 0, 9),
    ),
    (
      spaces.Dict(a=spaces.Tuple([spaces.Discrete(2)]), b=spaces.Discrete(3)),
      {'a': (specs.DiscreteArray(2),), 'b': specs.DiscreteArray(3)},
    ),
  ],
)
def test_observation_spaces(space, spec):
  got = gymnasium_spaces.observation_spec(space, 'observation_space')
  assert jax.tree.structure(got) == jax.tree.structure(spec)
  for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(spec), strict=True):
    assert type(a) is type(b) and a.shape == b.shape and a.dtype == b.dtype
    assert np.all(a.minimum == b.minimum) and np.all(a.maximum == b.maximum)
  space.seed(0)
  encode = gymnasium_spaces.make_encoder(space)
  for _ in range(5):
    value = space.sample()
    encoded = encode(value)
    jax.tree.map(lambda leaf, part: leaf.validate(part), got, encoded)
    jax.tree.map(
      lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-6), encoded, value
    )


def test_bounds_beyond_float32_are_infinite():
  space = spaces.Box(-1e300, np.finfo(np.float64).max, (1,), np.float64)
  spec = gymnasium_spaces.observation_spec(space, 'observation_space')
  assert spec.minimum == -np.inf and spec.maximum == np.inf


@pytest.mark.parametrize(
  ('space', 'message'),
  [
    (
      spaces.Box(-1, 1, (2,), np.int32),
      r'action_space \(Box.*\) must be Discrete',
    ),
    (
      spaces.Dict(a=spaces.Tuple([spaces.Sequence(spaces.Discrete(2))])),
      r"action_space\['a'\]\[0\] \(Sequence.*\) must be Discrete",
    ),
    (spaces.Text(4), r'action_space \(Text.*\) must be .* a Box of floats'),
  ],
)
def test_actions_must_be_choices_or_vectors(space, message):
  with pytest.raises(ValueError, match=message):
    gymnasium_spaces.action_spec(space, 'action_space')


@pytest.mark.parametrize(
  ('space', 'message'),
  [
    (spaces.Text(4), r'observation_space \(Text.*\) must be Box, Discrete'),
    (
      spaces.Dict(a=spaces.Sequence(spaces.Discrete(2))),
      r"observation_space\['a'\] \(Sequence.*\) must be Box, Discrete",
    ),
    (
      spaces.Box(0, 2**31, (1,), np.int64),
      r'observation_space \(Box.*\) must have bounds that fit int32',
    ),
    (
      spaces.Discrete(2, start=2**40),
      r'observation_space \(Discrete.*\) must have bounds that fit int32',
    ),
  ],
)
def test_observation_spaces_that_do_not_fit(space, message):
  with pytest.raises(ValueError, match=message):
    gymnasium_spaces.observation_spec(space, 'observation_space')


@pytest.mark.parametrize('dtype', [np.float32, np.float64])
def test_boxes_of_floats_are_vectors(dtype):
  low, high = dtype([[-0.1, 0, 0]]), dtype([[0.1, 1, np.inf]])
  space = spaces.Box(low, high, dtype=dtype)
  spec = gymnasium_spaces.action_spec(space, 'action_space')
  assert spec.shape == (3,) and spec.dtype == np.float32
  decode = gymnasium_spaces.make_decoder(space)
  for value in (spec.minimum, np.minimum(spec.maximum, 5.0)):
    decoded = decode(value)
    assert space.contains(decoded) and decoded.shape == (1, 3)
    np.testing.assert_allclose(decoded.ravel(), value)
  assert decode(np.zeros((4, 3), np.float32)).shape == (4, 1, 3)
