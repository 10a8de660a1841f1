"""Vectors of environments as what an experiment's factory makes."""

import dm_env
import fakes
import gymnasium
import jax
import numpy as np
import pytest

from ftwax import types
from ftwax.environments import (
  adapting,
  game_vectors,
  gymnasium_adapter,
  specified,
  validation,
  vector,
)

FIRST, MID, LAST = dm_env.StepType


def make_vector(num_environments, seed, mode='sync'):
  made = gymnasium.make_vec(
    'CartPole-v1',
    num_environments,
    vectorization_mode=mode,
    max_episode_steps=15,
  )
  return gymnasium_adapter.GymnasiumVectorEnvironment(made, seed)


def make_single(seed):
  env = gymnasium.make('CartPole-v1', max_episode_steps=15)
  return gymnasium_adapter.GymnasiumEnvironment(env, seed)


def make_games(make, num_games=3, seed=5):
  seeds = range(seed, seed + num_games)
  return game_vectors.make_games(vector.VectorFactory(make), seeds, 'test')


def test_a_vector_is_a_game_for_each_row():
  made = make_games(make_vector)
  alone = game_vectors.make_games(make_single, [5, 6, 7], 'test')
  assert made.num_games == 3 and made.spec == alone.spec
  timesteps = [(made.reset(), alone.reset())]
  rng = np.random.default_rng(0)
  for _ in range(60):
    action = rng.integers(0, 2, 3)
    timesteps.append((made.step(action), alone.step(action)))
  for one, other in timesteps:
    jax.tree.map(np.testing.assert_array_equal, one, other)
  last = [one for one, _ in timesteps if (one.step_type == LAST).any()]
  discounts = np.concatenate([t.discount[t.step_type == LAST] for t in last])
  assert set(discounts) == {0.0, 1.0}  # Terminated and truncated.
  np.testing.assert_array_equal(made.outcomes([0, 2]), np.zeros((2, 1)))
  made.close()


def test_vectors_written_as_one_step_too():
  made = make_games(lambda n, seed: make_vector(n, seed, 'vector_entry_point'))
  step_type = made.reset().step_type
  seen = set()
  for _ in range(40):
    previous = step_type
    timestep = made.step(np.ones(3, np.int64))
    step_type = timestep.step_type
    np.testing.assert_array_equal(step_type == FIRST, previous == LAST)
    seen |= set(step_type.tolist())
  assert seen == {0, 1, 2}
  with pytest.raises(ValueError, match=r'action .* must have the shape \(3,\)'):
    made.step(np.ones(2, np.int64))
  made.close()


def test_the_spec_is_read_off_a_vector_of_one():
  rows = []

  def make(num_environments, seed):
    rows.append(num_environments)
    return make_vector(num_environments, seed)

  spec = game_vectors.read_spec(vector.VectorFactory(make), 'test')
  assert spec.environment.observations.shape == (4,)
  assert rows == [1]


class Rows(specified.Specified, dm_env.Environment):
  """A vector that sends what it is told."""

  num_environments = 3

  def __init__(self, **fields):
    super().__init__(fakes.make_vector_spec(2))
    self._fields = fields

  def reset(self):
    return dm_env.TimeStep(
      np.zeros(3, np.int32),
      np.zeros(3, np.float32),
      np.ones(3, np.float32),
      np.zeros((3, 2), np.float32),
    )

  def step(self, action):
    del action
    timestep = self.reset()._replace(step_type=np.full(3, MID, np.int32))
    return timestep._replace(**self._fields)


def _spoil(shape, dtype, value):
  array = np.zeros(shape, dtype)
  array[1] = value
  return array


@pytest.mark.parametrize(
  ('fields', 'message'),
  [
    (
      {'reward': _spoil(3, np.float32, np.nan)},
      r"reward of environment 'test\[1\]' \(nan\) must be a finite scalar",
    ),
    (
      {'discount': _spoil(3, np.float32, 2.0)},
      r"discount of environment 'test\[1\]' \(2.0\) must be a scalar in \[0",
    ),
    (
      {'observation': _spoil((3, 2), np.float32, np.inf)},
      r"observation of environment 'test\[1\]' \(inf\) must be finite",
    ),
    (
      {'step_type': _spoil(3, np.int32, FIRST) + np.array([1, 0, 1])},
      r"step_type of environment 'test\[1\]' \(0\) must be FIRST where an",
    ),
    (
      {'reward': np.zeros((3, 1), np.float32)},
      r"reward of environment 'test' \(shape \(3, 1\), .* must be of shape \(3",
    ),
    (
      {'observation': np.zeros((3, 2))},
      r'dtype float64\) must be of shape \(3, 2\) and dtype float32 as',
    ),
    (
      {'observation': {'x': np.zeros((3, 2), np.float32)}},
      r'shape \(\), dtype dict|structure .* must have the structure',
    ),
  ],
)
def test_a_row_that_goes_wrong_is_named(fields, message):
  made = make_games(lambda num_environments, seed: Rows(**fields))
  made.reset()
  with pytest.raises(validation.InvalidTimestepError, match=message):
    made.step(np.zeros(3, np.int32))


def test_as_many_rows_as_told_are_made():
  with pytest.raises(
    ValueError, match=r'number of rows that it is called with \(3\)'
  ):
    make_games(lambda num_environments, seed: make_vector(2, seed))
  with pytest.raises(TypeError, match='must make a vector of environments, bu'):
    make_games(lambda num_environments, seed: make_single(seed))


def test_a_factory_of_vectors_makes_one_row_by_default():
  factory = vector.VectorFactory(make_vector)
  assert types.make_environment_spec(factory(0)).actions.num_values == 2
  assert factory(0).num_environments == 1


class Both(gymnasium.Env, gymnasium.vector.VectorEnv):
  """A single environment by one base class and a vector by another."""

  def __init__(self, num_envs=4):
    self._envs = gymnasium.make_vec(
      'CartPole-v1', num_envs, vectorization_mode='sync', max_episode_steps=15
    )
    for name in (
      'num_envs',
      'metadata',
      'observation_space',
      'action_space',
      'single_observation_space',
      'single_action_space',
    ):
      setattr(self, name, getattr(self._envs, name))

  def reset(self, *, seed=None, options=None):
    return self._envs.reset(seed=seed)

  def step(self, actions):
    return self._envs.step(actions)

  def close(self, **options):
    self._envs.close()


class ByAttributes(gymnasium.Env):
  """A single environment by its base class and a vector by its attributes."""

  __init__, reset, step, close = (
    Both.__init__, Both.reset, Both.step, Both.close
  )  # fmt: skip


def _bare(num_envs):
  return gymnasium.make_vec(
    'CartPole-v1', num_envs, vectorization_mode='sync', max_episode_steps=15
  )


@pytest.mark.parametrize(
  'environment',
  [
    lambda seed: Both(),
    lambda: Both(),
    Both,
    lambda seed: ByAttributes(),
    ByAttributes,
    lambda seed: _bare(4),
    lambda num_envs, seed: _bare(num_envs),
    lambda num_environments: _bare(num_environments),
    lambda seed: make_vector(4, seed),
  ],
)
@pytest.mark.parametrize('num_games', [1, 3, 4, 10])
def test_functions_that_make_vectors_are_taken(environment, num_games):
  factory = adapting.make_factory(adapting.accept(environment))
  seeds = range(5, 5 + num_games)
  made = game_vectors.make_games(factory, seeds, 'test')
  alone = game_vectors.make_games(make_single, seeds, 'test')
  assert made.num_games == num_games and made.spec == alone.spec
  jax.tree.map(np.testing.assert_array_equal, made.reset(), alone.reset())
  rng = np.random.default_rng(0)
  num_ended = 0
  for _ in range(40):
    action = rng.integers(0, 2, num_games)
    timestep = made.step(action)
    jax.tree.map(np.testing.assert_array_equal, timestep, alone.step(action))
    ended = np.flatnonzero(timestep.step_type == LAST).tolist()
    num_ended += len(ended)
    assert len(made.episode_metrics(ended)) == len(ended)
  assert num_ended >= num_games
  made.close()


@pytest.mark.parametrize('kind', [Both, ByAttributes])
def test_an_object_that_is_a_vector_is_refused_with_the_way(kind):
  with pytest.raises(
    types.InvalidTypeError, match='pass a function of a seed that makes it'
  ):
    adapting.accept(kind())


def test_rows_that_are_left_over_are_closed_and_measured():
  closed = []

  class Closing(Both):
    def close(self, **options):
      closed.append(self.num_envs)
      super().close()

  made = game_vectors.make_games(lambda seed: Closing(), range(6), 'test')
  made.reset()
  made.close()
  assert closed == [4, 4]
