"""Data that spaces do not announce is named: what, and at which step."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from ftwax.environments import (
  game_vectors,
  gymnasium_adapter,
  pettingzoo_adapter,
  validation,
  vector,
)

SPACE = spaces.Dict(
  {
    'pose': spaces.Box(-1, 1, (3,), np.float32),
    'arm': spaces.Tuple(
      [spaces.Discrete(3), spaces.Dict({'on': spaces.MultiBinary(2)})]
    ),
  }
)


def _without(observation, name):
  if name == 'pose':
    del observation['pose']
  elif name == 'on':
    del observation['arm'][1]['on']
  elif name == 'arm':
    observation['arm'] = observation['arm'][:1]
  elif name == 'text':
    observation['pose'] = 'far'
  elif name == 'none':
    observation['pose'] = None
  elif name == 'huge':
    observation['arm'] = (10**30, observation['arm'][1])
  elif name == 'short':
    observation['pose'] = np.zeros(2)
  else:
    return 3.0
  return observation


class Robot(gymnasium.Env):
  """Loses a part of its observation at step 5."""

  observation_space = SPACE
  action_space = spaces.Discrete(2)

  def __init__(self, name):
    self._name = name

  def reset(self, *, seed=None, options=None):
    super().reset(seed=seed)
    self._step = 0
    return self._see(), {}

  def step(self, action):
    self._step += 1
    seen = self._see()
    if self._step == 5:
      seen = _without(seen, self._name)
    return seen, 1.0, False, False, {}

  def _see(self):
    return {'pose': np.zeros(3), 'arm': (1, {'on': np.ones(2, np.int8)})}


FAULTS = {
  'pose': r"observation\['pose'\] .* \(absent\) must be there at every step",
  'on': r"observation\['arm'\]\[1\]\['on'\] .* \(absent\) must be there",
  'arm': r"observation\['arm'\] .* \(1 parts\) must be a tuple of 2 parts",
  'text': r"observation\['pose'\] .* \('far'\) must be of Box",
  'none': r"observation\['pose'\] .* \(nan, shape \(\).*must be of shape",
  'short': r"observation\['pose'\] .* \(shape \(2,\).*must be of shape \(3,\)",
  'huge': r"observation\['arm'\]\[0\] .* \(1000000.*must be of Discrete",
  'number': r'observation .* \(a float\) must be a dict with the entries',
}


@pytest.mark.parametrize('name', FAULTS)
def test_a_part_that_is_lost_is_named(name):
  games = game_vectors.make_games(lambda seed: Robot(name), [0, 1], 'robot')
  games.reset()
  with pytest.raises(
    validation.InvalidTimestepError, match=f'{FAULTS[name]}.*step 5\\.'
  ) as caught:
    for _ in range(6):
      games.step(np.zeros(2, np.int32))
  assert 'ftwax' not in str(caught.value)


class Batch(gymnasium.vector.VectorEnv):
  """A vector that leaves a key out at its third step."""

  metadata = {'autoreset_mode': gymnasium.vector.AutoresetMode.NEXT_STEP}
  num_envs = 2
  single_observation_space = spaces.Dict({'x': spaces.Box(-1, 1, (3,))})
  single_action_space = spaces.Discrete(2)

  def reset(self, *, seed=None, options=None):
    self._step = 0
    return {'x': np.zeros((2, 3))}, {}

  def step(self, actions):
    self._step += 1
    seen = {'x': np.zeros((2, 3))} if self._step < 3 else {'y': 1}
    none = np.zeros(2, bool)
    return seen, np.zeros(2), none, none, {}


def test_a_part_that_a_vector_loses_is_named():
  factory = vector.VectorFactory(
    lambda num, seed: gymnasium_adapter.GymnasiumVectorEnvironment(Batch())
  )
  games = game_vectors.make_games(factory, [0, 1], 'batch')
  games.reset()
  with pytest.raises(
    validation.InvalidTimestepError,
    match=r"observation\['x'\] .*'Batch' \(absent\) must be there.*step 3\.",
  ):
    for _ in range(4):
      games.step(np.zeros(2, np.int32))


class Hive:
  """A parallel game in which an agent comes at step 2 that nobody knows."""

  possible_agents = ('u0', 'u1')

  def __init__(self, stranger='u7', lost=None):
    self._stranger, self._lost = stranger, lost

  def observation_space(self, agent):
    return spaces.Dict({'x': spaces.Box(0, 1, (2,), np.float32)})

  def action_space(self, agent):
    return spaces.Discrete(2)

  def _see(self):
    return {agent: {'x': np.zeros(2, np.float32)} for agent in self.agents}

  def reset(self, seed=None, options=None):
    self.agents, self._step = ['u0', 'u1'], 0
    return self._see(), {}

  def step(self, actions):
    self._step += 1
    if self._step == 2 and self._stranger:
      self.agents = [*self.agents, self._stranger]
    seen = self._see()
    if self._step == 2 and self._lost:
      seen[self._lost] = {}
    of_all = dict.fromkeys
    return (
      seen,
      of_all(self.agents, 0.0),
      of_all(self.agents, False),
      of_all(self.agents, False),
      of_all(self.agents, {}),
    )


@pytest.mark.parametrize(
  ('game', 'message'),
  [
    (
      Hive(),
      r"agent 'u7' in observations of environment 'Hive' \(unknown\) must be"
      r" one of possible_agents \('u0', 'u1'\).*step 2\.",
    ),
    (
      Hive(stranger=None, lost='u1'),
      r"observation of agent 'u1'\['x'\] .* \(absent\) must be there.*step 2\.",
    ),
  ],
)
def test_agents_of_a_game_are_named(game, message):
  adapted = pettingzoo_adapter.PettingZooGame(game)
  adapted.reset()
  with pytest.raises(validation.InvalidTimestepError, match=message):
    for _ in range(3):
      adapted.step(np.zeros(2, np.int32))


def test_a_game_must_list_its_agents():
  class NoList(Hive):
    possible_agents = ()

  with pytest.raises(
    ValueError, match=r'possible_agents of NoList \(\(\)\) must list all agents'
  ):
    pettingzoo_adapter.PettingZooGame(NoList())


def test_a_step_of_an_older_interface_is_named():
  class Old(Hive):
    def step(self, actions):
      return super().step(actions)[:4]

  adapted = pettingzoo_adapter.PettingZooGame(Old(None))
  adapted.reset()
  with pytest.raises(
    validation.InvalidTimestepError,
    match=r"what step returns of environment 'Old' \(4 values\) must be",
  ):
    adapted.step(np.zeros(2, np.int32))
