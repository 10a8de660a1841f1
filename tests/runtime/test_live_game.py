"""Games that are recorded for reports, and those that cannot be played."""

import base64
import io
import json

import dm_env
import numpy as np
import pytest
from dm_env import specs
from PIL import Image

from ftwax import types
from ftwax.environments import capture_the_flag, catch, games
from ftwax.inference import live_game, playable
from ftwax.reporting import saved_games


@pytest.fixture(name='made', scope='module')
def fixture_made():
  config = capture_the_flag.CaptureTheFlagConfig(
    team_size=2, height=7, width=11, num_steps=5
  )
  # Scripts take seconds to compile.
  game = capture_the_flag.make(config)._replace(scripts={})
  return playable.make('capture the flag', game)


def test_matches_are_recorded(made, tmp_path):
  matches = [('random', 'still'), ('still', 'random', 'still', 'still')]
  live_game.record_matches(made, matches, tmp_path, seed=3)
  saved = saved_games.SavedGames(tmp_path / 'games')
  second, first = [game for _, game in saved.readable()]
  assert [seat['name'] for seat in first['seats']] == [
    'random', 'random', 'still', 'still'
  ]  # fmt: skip
  assert [seat['name'] for seat in second['seats']] == list(matches[1])
  assert len(first['states']) == 6 and len(first['actions']) == 5
  assert first['outcome'] == [0.0, 0.0] and first['seed'] == 3
  assert first['script'] == 'capture_the_flag'
  assert 'ftwax.games.capture_the_flag' in first['code']
  # The same map for all.
  assert first['facts'] == second['facts']
  assert first['states'][0] == second['states'][0]


def test_players_that_chose_ahead_play_the_same_game(made):
  names = ['random', 'random', 'still', 'random']
  played = []
  for ahead in (False, True):
    live = live_game.LiveGame(made)
    live.start(5, names)
    for step in range(5):
      if ahead:
        live.actions({})
      live.play({2: {'move': 1}} if step else {})
    played.append((live.states, live.actions_taken))
  assert played[0] == played[1]


def test_who_takes_a_seat_after_others_chose_acts_on_it(made):
  live = live_game.LiveGame(made)
  live.start(5, ['still'] * 4)
  live.actions({})
  live.seat(0, 'random')
  live.play({1: {'move': 2}})
  (actions,) = live.actions_taken
  assert actions[1]['move'] == 2 and actions[0] != actions[2]


@pytest.mark.parametrize(
  'match', [('random', 'nobody'), ('random',), ('random',) * 3]
)
def test_matches_that_cannot_be_played(made, tmp_path, match):
  with pytest.raises(ValueError, match=r'match \(.*each of the 2 teams, or'):
    live_game.record_matches(made, [match], tmp_path)
  assert not list(tmp_path.iterdir())


class _Guess(games.SpecifiedGame):
  """Two players, two steps; the first one wins."""

  def __init__(self):
    super().__init__(
      types.EnvironmentSpec(
        observations=specs.Array((1,), np.float32),
        actions=specs.DiscreteArray(2),
        rewards=specs.Array((), np.float32),
        discounts=specs.BoundedArray((), np.float32, 0.0, 1.0),
      ),
      (0, 1),
    )

  def reset(self):
    self.num_steps = 0
    return self._timestep(types.FIRST)

  def step(self, action):
    assert action.shape == (2,)
    self.num_steps += 1
    return self._timestep(types.LAST if self.num_steps == 2 else types.MID)

  def outcome(self):
    return np.array([1.0, -1.0], np.float32)

  def _timestep(self, step_type):
    return dm_env.TimeStep(
      np.full(2, step_type, np.int32),
      np.zeros(2, np.float32),
      np.ones(2, np.float32),
      np.zeros((2, 1), np.float32),
    )


class _Drawn(_Guess):
  """Shows a picture of its step."""

  def render(self):
    return np.full((2, 3, 3), 100 * self.num_steps, np.uint8)


def test_any_game_that_renders_is_shown_by_its_frames(tmp_path):
  made = playable.make('guess', _Drawn())
  assert made.page.script.stem == 'frames' and len(made.page.keys) == 1
  live_game.record_matches(made, [('random', 'still')], tmp_path)
  (path,) = (tmp_path / 'games').iterdir()
  record = json.loads(path.read_text())
  assert record['outcome'] == [1.0, -1.0]
  shown = []
  for state in record['states']:
    content = base64.b64decode(state.removeprefix('data:image/png;base64,'))
    shown.append(np.asarray(Image.open(io.BytesIO(content)))[0, 0].tolist())
  assert shown == [[0] * 3, [100] * 3, [200] * 3]


def test_a_page_of_its_own_goes_before_frames():
  game = _Drawn()
  game.page = catch.make().page
  assert playable.make('guess', game).page.script.stem == 'catch'


def test_games_that_cannot_be_shown():
  with pytest.raises(ValueError, match=r'_Guess\) must have a `page`'):
    playable.make('guess', _Guess())
  with pytest.raises(ValueError, match=r'must be a game of teams'):
    playable.make('none', object())
