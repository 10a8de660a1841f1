"""Games that people played in the browser become recorded games."""

import json
import pathlib

import numpy as np
import pytest

from ftwax import types
from ftwax.cli import record_command
from ftwax.environments import capture_the_flag, games
from ftwax.inference import live_game, playable, replaying
from ftwax.records import recorded_games

NUM_STEPS = 6


def make_game(**rules):
  config = capture_the_flag.CaptureTheFlagConfig(
    **{'height': 7, 'width': 11, 'num_steps': NUM_STEPS, **rules}
  )
  game = capture_the_flag.make(config)._replace(scripts={})
  return playable.make('capture the flag', game)


@pytest.fixture(name='made', scope='module')
def fixture_made():
  return make_game()


@pytest.fixture(name='folder')
def fixture_folder(made, tmp_path):
  """Returns two whole games, of which a person plays one."""
  seats = ('random', 'random', 'still', 'random')
  live_game.record_matches(made, [seats, seats], tmp_path, seed=3)
  folder = tmp_path / 'games'
  change(sorted(folder.iterdir())[1], sit)
  return folder


def sit(game):
  """Seats a person, who moved."""
  game['seats'][1].update(name='Ada', kind='person')


def change(path, how):
  game = json.loads(path.read_text())
  how(game)
  path.write_text(json.dumps(game))


def read(made, directory):
  spec = games.spec_of(made.game).environment
  return list(recorded_games.read(directory, spec))


def test_what_people_saw_and_did_is_kept(made, folder, tmp_path):
  assert replaying.record(made, folder, tmp_path / 'out') == 1
  (streams,) = read(made, tmp_path / 'out')
  assert streams.shape == (NUM_STEPS + 1, 1)
  step_type = streams.timestep.step_type[:, 0].tolist()
  middle = [types.MID] * (NUM_STEPS - 1)
  assert step_type == [types.FIRST, *middle, types.LAST]
  saved = json.loads(sorted(folder.iterdir())[1].read_text())
  for name, part in streams.previous_action.items():
    assert part[1:, 0].tolist() == [row[1][name] for row in saved['actions']]
  observations = streams.timestep.observation
  assert np.ptp(observations, axis=0).any()


def test_names_and_all_choose_seats(made, folder, tmp_path):
  for players, count in (('Ada',), 1), (('random',), 5), (('all',), 8):
    out = tmp_path / players[0]
    replaying.record(made, folder, out, players)
    (streams,) = read(made, out)
    assert streams.shape == (count * (NUM_STEPS + 1), 1)
  with pytest.raises(ValueError, match=r'players \(Bob\) must have played'):
    replaying.record(made, folder, tmp_path / 'none', ['Bob'])


def test_who_gave_up_ends_a_truncated_episode(made, folder, tmp_path):
  def give_up(game):
    game['actions'], game['states'] = game['actions'][:3], game['states'][:4]
    game['outcome'] = [-1.0, 1.0]

  change(sorted(folder.iterdir())[1], give_up)
  replaying.record(made, folder, tmp_path / 'out')
  (streams,) = read(made, tmp_path / 'out')
  assert streams.timestep.step_type[:, 0].tolist() == [0, 1, 1, types.LAST]
  assert streams.timestep.discount[-1, 0] == 1.0


def _forge(game):
  game['outcome'] = [1.0, -1.0]


def _turn(game):
  for row in game['actions']:
    row[1]['move'] = 1 - min(row[1]['move'], 1)


@pytest.mark.parametrize(
  ('how', 'message'),
  [
    (_forge, r'its result was \[1.0, -1.0\], and is'),
    (_turn, 'it showed another state than the game does now'),
    (lambda game: game.pop('seed'), 'it has no seed and actions'),
    (lambda game: game['actions'].pop(), '5 steps of actions for 7 states'),
    (lambda game: game['actions'][2].pop(), 'a step has 3 actions'),
    (
      lambda game: game['actions'][2][0].update(move=99),
      'an action .99. is none of the game',
    ),
    (
      lambda game: game['actions'][2][0].update(move='x'),
      "an action .'x'. is none of the game|invalid literal",
    ),
    (lambda game: game['seats'].pop(), 'it has 3 seats, and the game 4'),
  ],
)
def test_games_that_lead_elsewhere_are_left_out(
  made, folder, tmp_path, how, message
):
  change(sorted(folder.iterdir())[1], how)
  told = []
  with pytest.raises(ValueError, match='must have played saved games in'):
    replaying.record(made, folder, tmp_path / 'out', warn=told.append)
  (text,) = told
  assert text.startswith('Left out 2') and '\n' not in text
  with pytest.raises(ValueError, match=message):
    raise ValueError(text)
  assert not (tmp_path / 'out').exists()


def test_other_games_are_refused(made, folder, tmp_path):
  other = playable.make('another', made.game)
  with pytest.raises(ValueError, match=r'must have games of another, and has'):
    replaying.record(other, folder, tmp_path / 'out')
  told = []
  with pytest.raises(ValueError, match='no game could be replayed'):
    replaying.record(
      make_game(height=9), folder, tmp_path / 'out', warn=told.append
    )
  assert len(told) == 2


def test_the_command_replays_games_of_the_library(tmp_path, capsys):
  source = 'capture_the_flag'
  made = playable.find(source)
  live_game.record_matches(made, [('random', 'still')], tmp_path, seed=1)
  (path,) = (tmp_path / 'games').iterdir()
  change(path, sit)
  out = tmp_path / 'out'
  options = record_command.Options(
    run=source, saved=str(tmp_path / 'games'), out=str(out)
  )
  assert record_command.run(options) == 0
  assert '1 saved games were played again' in capsys.readouterr().out
  assert recorded_games.count_steps(out) > NUM_STEPS
  nowhere = str(pathlib.Path(tmp_path, 'nowhere'))
  with pytest.raises(ValueError, match='must be a folder of saved games'):
    record_command.run(record_command.Options(run=source, saved=nowhere))
