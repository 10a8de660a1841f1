"""What comes out of the code of an environment is told as its fault."""

import functools
import sys

import dm_env
import fakes
import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from ftwax.environments import (
  environment_faults,
  game_vectors,
  gymnasium_adapter,
  process_games,
  validation,
)

SPEC = fakes.make_vector_spec()


def _raise(error):
  raise error


# What a step does, and what is told of it.
_FAULTS = {
  'RuntimeError': (lambda: _raise(RuntimeError('no water')), 'no water'),
  'KeyError': (lambda: {}['door'], "KeyError .'door'."),
  'AssertionError': (lambda: _raise(AssertionError), 'raised AssertionError'),
  'StopIteration': (lambda: next(iter(())), 'raised StopIteration'),
  'SystemExit': (lambda: sys.exit(3), r'raised SystemExit \(3\)'),
  'None': (lambda: None, 'what is returned .*NoneType.* must be a dm_env'),
  'lines': (lambda: _raise(ValueError('one\ntwo')), r'ValueError \(one\) in'),
}


class _Faulty(fakes.FakeEnvironment):
  """Does something else in a call."""

  def __init__(self, seed, call, fault):
    super().__init__(SPEC, episode_length=4, seed=seed)
    self._call, self._fault = call, fault

  def reset(self):
    return self._do('reset', super().reset)

  def step(self, action):
    return self._do('step', super().step, action)

  def close(self):
    return self._do('close', super().close)

  def _do(self, call, method, *args):
    if call == self._call:
      return _FAULTS[self._fault][0]()
    return method(*args)


@pytest.mark.parametrize('call', ['reset', 'step', 'close'])
@pytest.mark.parametrize('fault', _FAULTS)
def test_a_fault_names_environment_call_and_frames(call, fault):
  factory = functools.partial(_Faulty, call=call, fault=fault)
  made = game_vectors.make_games(factory, [0], 'mine')
  with pytest.raises(
    environment_faults.EnvironmentFault, match=_FAULTS[fault][1]
  ) as info:
    made.reset()
    made.step(np.zeros(1, np.int32))
    made.close()
    if (call, fault) == ('close', 'None'):
      raise environment_faults.EnvironmentFault(  # Nothing reads it.
        'what is returned (a NoneType) must be a dm_env.TimeStep'
      )
  told = str(info.value)
  assert '\n' not in told
  if fault != 'None':
    assert "environment 'mine[0]'" in told
    assert f'in {call}, at {__file__}:' in told
    assert 'ftwax/environments' not in told


def test_a_factory_s_own_errors_are_left_as_they_are():
  def make(seed):
    del seed
    raise OSError('no such level')

  with pytest.raises(
    environment_faults.EnvironmentFault,
    match=r'OSError \(no such level\) in environment, at .* in make;',
  ):
    game_vectors.make_games(make, [0], 'mine')
  refuse = functools.partial(validation.fail, 'a', 'b', 'c', 'd', 'e')
  with pytest.raises(validation.InvalidTimestepError, match='must d; e'):
    game_vectors.make_games(lambda seed: refuse(), [0], 'mine')


def test_a_fault_in_another_process_is_told_alike():
  factory = functools.partial(_Faulty, call='step', fault='KeyError')
  made = process_games.ProcessGames(factory, [0, 1], 'mine', 2, 60.0)
  made.reset()
  with pytest.raises(
    environment_faults.EnvironmentFault,
    match=r"environment 'mine\[0\]' raised KeyError \('door'\) in step, at",
  ) as info:
    made.step(np.zeros(2, np.int32))
  assert 'Traceback' in str(info.value.__cause__)


def test_games_of_several_seats_are_told_alike():
  class Game:
    teams, event_names = (0, 1), ('reward',)
    observation_spec = lambda self: SPEC.observations  # noqa: E731
    action_spec = lambda self: SPEC.actions  # noqa: E731
    reward_spec = lambda self: SPEC.rewards  # noqa: E731
    discount_spec = lambda self: SPEC.discounts  # noqa: E731

    def reset(self):
      raise dm_env.TimeStep  # Not even an exception.

    def outcome(self):
      return np.zeros(2)

    def close(self):
      pass

  made = game_vectors.make_games(lambda seed: Game(), [0], 'match')
  with pytest.raises(
    environment_faults.EnvironmentFault,
    match=r"environment 'match\[0\]' raised TypeError .* in reset, at",
  ):
    made.reset()


def test_an_adapters_own_line_is_not_the_users():
  class Half(gymnasium.Env):
    observation_space = spaces.Box(0, 1, (1,))
    action_space = spaces.Box(-1, 1, (1,))

    def reset(self, seed=None, options=None):
      return np.zeros(1, np.float32), {}

    def step(self, action):
      both = np.array([True, False])
      return np.zeros(1, np.float32), 1.0, both, both, {}

  made = game_vectors.make_games(lambda seed: Half(), [0], 'half')
  made.reset()
  with pytest.raises(
    environment_faults.EnvironmentFault, match='the adapter could not take'
  ) as info:
    made.step(np.zeros((1, 1), np.float32))
  assert 'gymnasium_adapter.py' in str(info.value)
  assert 'fix the environment' not in str(info.value)


def test_an_adapters_message_is_left_as_it_is():
  class Old(gymnasium.Env):
    observation_space = spaces.Box(0, 1, (1,))
    action_space = spaces.Discrete(2)
    render_mode = None

    def reset(self, seed=None, options=None):
      return gymnasium_adapter.GymnasiumEnvironment(self).render()

  made = game_vectors.make_games(lambda seed: Old(), [0], 'old')
  with pytest.raises(ValueError, match='render_mode .None. of'):
    made.reset()


def _needs_a_package(seed):
  import a_package_that_is_missing.inside  # noqa: F401


def _needs_an_extra(seed):
  class DependencyNotInstalled(Exception):  # noqa: N818 Gymnasium's name.
    pass

  try:
    import imageio_that_is_missing  # noqa: F401
  except ImportError as error:
    raise DependencyNotInstalled(
      'imageio is not installed, run `pip install "gymnasium[mujoco]"`'
    ) from error


@pytest.mark.parametrize(
  ('make', 'package'),
  [
    (_needs_a_package, 'a_package_that_is_missing'),
    (_needs_an_extra, r'gymnasium\[mujoco\]'),
  ],
)
def test_a_missing_package_is_no_fault_of_the_environment(make, package):
  with pytest.raises(
    environment_faults.EnvironmentFault,
    match=f'install what it needs, as by `pip install {package}`',
  ) as caught:
    game_vectors.make_games(make, [0], 'maze')
  assert 'fix the environment' not in str(caught.value)
