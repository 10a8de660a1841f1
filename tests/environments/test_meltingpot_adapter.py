"""Melting Pot's interface, by a fake of it that tells the same events."""

import contextlib
import random
import sys
import types as python_types

import dm_env
import numpy as np
import pytest
from dm_env import specs

from ftwax import types
from ftwax.environments import (
  games,
  meltingpot_adapter,
  meltingpot_paintball,
)
from ftwax.environments.capture_the_flag import events

NUM_PLAYERS = 4


class FakeSubstrate:
  """Four players see their own number; `script` tells events, step by step."""

  def __init__(self, script=(), num_steps=3):
    self.script = script
    self.num_steps = num_steps
    self.listeners = []
    self.is_closed = False

  def observables(self):
    events = python_types.SimpleNamespace(subscribe=self.listeners.append)
    return python_types.SimpleNamespace(events=events)

  def observation_spec(self):
    return [
      {
        'RGB': specs.Array((2, 2, 3), np.uint8, 'RGB'),
        'READY_TO_SHOOT': specs.Array((), np.float64, 'READY_TO_SHOOT'),
        'WORLD.RGB': specs.Array((9, 9, 3), np.uint8, 'WORLD.RGB'),
        'COLLECTIVE_REWARD': specs.Array((), np.float64, 'COLLECTIVE_REWARD'),
      }
    ] * NUM_PLAYERS

  def action_spec(self):
    return [specs.DiscreteArray(9, np.int64, 'action')] * NUM_PLAYERS

  def _timestep(self, step_type, reward, discount):
    seen = [
      {
        'RGB': np.full((2, 2, 3), player, np.uint8),
        'READY_TO_SHOOT': np.array(float(self.time)),
        'WORLD.RGB': np.zeros((9, 9, 3), np.uint8),
        'COLLECTIVE_REWARD': np.array(0.0),
      }
      for player in range(NUM_PLAYERS)
    ]
    return dm_env.TimeStep(step_type, reward, discount, seen)

  def _tell(self, events):
    for event in events:
      for listener in self.listeners:
        listener(event)

  def reset(self):
    self.time = 0
    timestep = self._timestep(
      dm_env.StepType.FIRST, [np.array(0.0)] * NUM_PLAYERS, 0.0
    )
    self._tell([('AvatarStarted', [b'str', b'success'])] * NUM_PLAYERS)
    return timestep

  def step(self, action):
    assert all(type(choice) is int for choice in action)
    is_last = self.time + 1 == self.num_steps
    self._tell(self.script[self.time] if self.script else ())
    self.time += 1
    return self._timestep(
      dm_env.StepType.LAST if is_last else dm_env.StepType.MID,
      [np.array(float(choice)) for choice in action],
      0.0 if is_last else 1.0,
    )

  def close(self):
    self.is_closed = True


def zap(source, target):
  return (
    'zap',
    [b'dict', b'source', np.array(source), b'target', np.array(target)],
  )


def flag(name, player):
  return (
    f'flag_{name}',
    [b'dict', b'player_index', np.array(player), b'team', b'red'],
  )


# Players count from one; one and three are red.
SCRIPT = [
  [flag('picked_up', 1), zap(3, 2)],
  [
    zap(4, 1),
    ('zapped_flag_carrier', [b'dict', b'player_index', np.array(4.0)]),
    zap(4, 3),
    flag('returned', 2),
  ],
  [flag('captured', 3)],
]


def test_rewards_are_the_substrate_s_own_without_events():
  game: games.GameEnvironment = meltingpot_adapter.MeltingPotGame(
    FakeSubstrate(), teams=(0, 0, 1, 1)
  )
  spec = types.make_environment_spec(game)
  assert set(spec.observations) == {'RGB', 'READY_TO_SHOOT'}
  assert game.event_names == ('reward',)
  timestep = game.step(np.zeros(4, np.int32))
  for expected in (0, 1, 1, 2, 0):
    assert np.all(timestep.step_type == expected)
    np.testing.assert_array_equal(timestep.discount, [expected != 2] * 4)
    np.testing.assert_array_equal(
      timestep.reward, np.arange(4) * (expected != 0)
    )
    for name, leaf in timestep.observation.items():
      spec.observations[name].validate(leaf[3])
    np.testing.assert_array_equal(
      timestep.observation['RGB'][:, 0, 0, 0], np.arange(4)
    )
    if expected == 2:
      np.testing.assert_array_equal(game.outcome(), [-1, 1])
    timestep = game.step(np.arange(4))
  game.close()
  assert game.substrate.is_closed


def test_paintball_s_events_are_counted():
  teams = (0, 1, 0, 1)
  game = meltingpot_adapter.MeltingPotGame(
    FakeSubstrate(SCRIPT), teams, meltingpot_paintball.paintball_events(teams)
  )
  assert game.event_names == events.EVENT_NAMES
  timestep = game.reset()
  assert timestep.reward.shape == (4, 13) and not timestep.reward.any()
  told = []
  for _ in range(3):
    reward = game.step(np.zeros(4, np.int32)).reward
    assert reward.dtype == np.float32
    told.append([
      {events.EVENT_NAMES[i] for i in np.flatnonzero(row)} for row in reward
    ])  # fmt: skip
  i, mate, enemy = (
    lambda deed, who=who: f'{who}_{deed}_the_flag'
    for who in ('i', 'teammate', 'opponent')
  )
  assert told[0] == [
    {i('picked_up')},
    {enemy('picked_up'), 'i_was_tagged_without_flag'},
    {mate('picked_up'), 'i_tagged_opponent_without_flag'},
    {enemy('picked_up')},
  ]
  assert told[1] == [
    {enemy('returned'), 'i_was_tagged_with_flag'},
    {i('returned')},
    {enemy('returned'), 'i_was_tagged_without_flag'},
    {
      mate('returned'),
      'i_tagged_opponent_with_flag',
      'i_tagged_opponent_without_flag',
    },
  ]
  assert told[2] == [
    {mate('captured')},
    {enemy('captured')},
    {i('captured')},
    {enemy('captured')},
  ]
  np.testing.assert_array_equal(game.outcome(), [1, -1])
  assert not game.reset().reward.any()  # What a reset tells is no event.


def test_what_does_not_fit_is_refused():
  with pytest.raises(ValueError, match=r'teams \(0, 1\) must name a team for'):
    meltingpot_adapter.MeltingPotGame(FakeSubstrate(), teams=(0, 1))
  with pytest.raises(
    ValueError, match=r"observation_names \('SOUND'\) must be"
  ):
    meltingpot_adapter.MeltingPotGame(
      FakeSubstrate(), observation_names=['SOUND']
    )
  with pytest.raises(ValueError, match=r'team_size \(0\) of paintball must be'):
    meltingpot_paintball.make_paintball(0, team_size=0)


def test_a_missing_melting_pot_is_named(monkeypatch):
  monkeypatch.setitem(sys.modules, 'meltingpot', None)
  with pytest.raises(
    ImportError, match=r'Melting Pot must be .* by the recipe'
  ):
    meltingpot_paintball.make_paintball(0)


def make_config(name):
  assert name == 'paintball__capture_the_flag'
  return python_types.SimpleNamespace(
    unlocked=contextlib.nullcontext,
    lab2d_settings_builder=lambda config, roles: {
      'maxEpisodeLengthFrames': 1000,
      'simulation': {'map': 'stock', 'scene': 'scene'},
    },
  )


def test_paintball_is_built_with_seed_length_and_map(monkeypatch):
  built = []

  def build_from_config(config, roles):
    settings = config.lab2d_settings_builder(config=config, roles=roles)
    built.append((settings, len(roles), random.random()))
    return FakeSubstrate()

  module = python_types.ModuleType('meltingpot.substrate')
  module.get_config = make_config
  module.build_from_config = build_from_config
  monkeypatch.setitem(
    sys.modules, 'meltingpot', python_types.ModuleType('meltingpot')
  )
  monkeypatch.setitem(sys.modules, 'meltingpot.substrate', module)
  random.seed(5)
  before = random.getstate()
  for seed, ascii_map in [(1, None), (1, 'mine'), (2, None)]:
    game = meltingpot_paintball.make_paintball(
      seed, num_steps=300, ascii_map=ascii_map
    )
    assert game.teams == (0, 1, 0, 1)
  assert random.getstate() == before
  settings, num_players, first = built[1]
  assert settings == {
    'maxEpisodeLengthFrames': 300,
    'simulation': {'map': 'mine', 'scene': 'scene'},
  }
  assert built[0][0]['simulation']['map'] == 'stock'
  assert num_players == 4
  assert built[0][2] == first != built[2][2]


def test_maps_are_drawn_in_the_letters_of_the_substrate():
  text = meltingpot_paintball.draw_map(seed=3)
  assert text == meltingpot_paintball.draw_map(seed=3)
  assert text != meltingpot_paintball.draw_map(seed=4)
  rows = text.strip().split('\n')
  assert len(rows) == 11 and {len(row) for row in rows} == {15}
  counts = {letter: text.count(letter) for letter in 'PQFG'}
  assert counts == {'P': 4, 'Q': 4, 'F': 1, 'G': 1}
  assert set(text) == set('\nIW,PQFG')
  assert rows[0] == 'I' * 15 and rows[1] == 'I' + 'W' * 13 + 'I'
  for red, blue in ('PQ', 'FG'):
    columns = [min(row.find(letter) for row in rows if letter in row)
               for letter in (red, blue)]  # fmt: skip
    assert columns[0] < columns[1]
