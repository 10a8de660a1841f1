"""What users pass as an environment, and what they are told of it."""

import functools

import dm_env
import fakes
import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import ftwax
from ftwax import types
from ftwax.agents import ppo
from ftwax.environments import (
  adapting,
  capture_the_flag,
  catch,
  functional,
  game_vectors,
  gymnasium_adapter,
  recall,
  vector,
)

_SMALL = capture_the_flag.CaptureTheFlagConfig(
  team_size=1, height=7, width=11, num_steps=10
)


class Counting(gymnasium.Env):
  """Counts the steps of an episode; ends at the fourth."""

  observation_space = spaces.Box(0, 9, (1,), np.float32)
  action_space = spaces.Discrete(2)

  def __init__(self, first=0):
    self._first = first

  def reset(self, seed=None, options=None):
    self._count = self._first
    return self._observe(), {}

  def step(self, action):
    self._count += 1
    return self._observe(), 1.0, self._count == 4, False, {}

  def _observe(self):
    return np.array([self._count], np.float32)


class _OldStep(Counting):
  def step(self, action):
    return self._observe(), 1.0, False, {}


class _OldReset(Counting):
  def reset(self, seed=None, options=None):
    return np.zeros(1, np.float32)


class _NoReward(Counting):
  def step(self, action):
    observation, _, *ends = super().step(action)
    return observation, None, *ends


class _NeedsMore(Counting):
  def __init__(self, size):
    super().__init__(size)


class _Turns:
  """Looks like an environment of PettingZoo where agents take turns."""

  def agent_iter(self):
    pass

  def step(self, action):
    pass


def _make(environment):
  factory = adapting.make_factory(adapting.accept(environment))
  return game_vectors.make_games(factory, [0, 1], 'test')


def _play(environment):
  made = _make(environment)
  made.reset()
  return made.step(np.zeros(2, np.int32))


@pytest.mark.parametrize(
  'environment',
  [Counting, Counting(2), lambda: Counting(2), lambda seed: Counting(2)],
  ids=['class', 'instance', 'function', 'function of a seed'],
)
def test_environments_of_gymnasium_are_taken_as_they_come(environment):
  made = _make(environment)
  first = made.reset().observation
  second = made.step(np.zeros(2, np.int32)).observation
  np.testing.assert_array_equal(second, first + 1)


def test_copies_do_not_touch_the_original():
  original = Counting()
  original.reset()
  make = adapting.accept(original)
  one, other = make(0), make(1)
  one.reset()
  one.step(0)
  np.testing.assert_array_equal(other.reset().observation, [0.0])
  assert original._count == 0
  assert adapting.describe(make) == 'Counting'


def _make_maze(seed, size=3):
  del seed, size


@pytest.mark.parametrize(
  ('environment', 'name'),
  [
    ('CartPole-v1', 'CartPole-v1'),
    (Counting, 'Counting'),
    (_make_maze, '_make_maze'),
    (functools.partial(_make_maze, size=4), '_make_maze'),
    (functools.partial(gymnasium.make, 'CartPole-v1'), 'CartPole-v1'),
    (lambda seed: gymnasium.make('CartPole-v1'), 'CartPole-v1'),
    (lambda seed: Counting(), 'Counting'),
    (lambda seed: catch.make(), 'catch'),
    (catch.make(), 'catch'),
    (functional.as_game(catch.make()), 'catch'),
    (recall.make(), 'recall'),
    (capture_the_flag.make(_SMALL), 'capture_the_flag'),
  ],
)
def test_an_environment_has_a_name(environment, name):
  assert adapting.describe(environment) == name
  experiment = ftwax.ExperimentConfig(ppo.PPOConfig(), environment, 10)
  assert experiment.name == f'ppo_{name}'


@pytest.mark.parametrize(
  ('environment', 'message'),
  [
    (_OldStep, r"step returns of .*'_OldStep' \(4 values\).*split done into"),
    (_OldReset, r"'_OldReset' \(a ndarray\) must be \(observation, info\)"),
    (_NoReward, r"reward of environment 'test\[0\]' \(None\) must be"),
    (_NeedsMore, r'_NeedsMore\(size\)\) must be made from a seed.*lambda seed'),
    (_Turns(), r'pass a function of a seed that wraps it in a .*PettingZooG'),
    (_Turns, r'made a _Turns; pass a function of a seed that wraps it'),
    (fakes.FakeEnvironment(fakes.make_vector_spec()), 'pass a function that'),
    ('CartPol-v1', r"environment \('CartPol-v1'\).*Did you mean: `CartPole`"),
    (lambda one, two: Counting(), r'must be made from a seed, or from nothing'),
    (
      lambda name, seed: Counting(),
      r'must be made from a seed, or from nothin',
    ),
    ('Cart Pole', r"environment \('Cart Pole'\) must be a name that Gymnasium"),
  ],
)
def test_first_mistakes_are_told_with_a_remedy(environment, message):
  with pytest.raises(ValueError, match=message):
    _play(environment)


def test_a_factory_of_vectors_makes_one_vector():
  def make(num_environments, seed):
    made = gymnasium.make_vec(
      'CartPole-v1', num_environments, vectorization_mode='sync'
    )
    return gymnasium_adapter.GymnasiumVectorEnvironment(made, seed)

  assert _play(vector.VectorFactory(make)).reward.shape == (2,)


def test_what_cannot_be_copied_is_refused():
  made = Counting()
  made.handle = (number for number in range(3))
  with pytest.raises(types.InvalidTypeError, match='must be copyable.*lambda'):
    adapting.accept(made)


def test_the_adapter_alone_gives_none_for_no_reward():
  made = gymnasium_adapter.GymnasiumEnvironment(_NoReward())
  made.reset()
  assert made.step(0).reward is None


def test_adapted_environments_keep_their_observations():
  class Reusing(fakes.FakeEnvironment):
    def step(self, action):
      timestep = super().step(action)
      self._buffer[:] = timestep.observation
      return timestep._replace(observation=self._buffer)

    def reset(self):
      self._buffer = super().reset().observation
      return dm_env.restart(self._buffer)

  made = Reusing(fakes.make_vector_spec())
  made.title = 'reusing'
  adapted = adapting.adapt(made, 0)
  assert isinstance(adapted, dm_env.Environment)
  assert adapted.title == 'reusing'
  assert adapted.observation_spec() == made.observation_spec()
  first = adapted.reset()
  seen = first.observation.copy()
  after = [adapted.step(np.int32(0)) for _ in range(3)]
  np.testing.assert_array_equal(first.observation, seen)
  assert (after[0].observation != after[1].observation).any()
