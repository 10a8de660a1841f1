"""Games on the host, and what is refused of them."""

import dataclasses

import numpy as np
import pytest

from ftwax.environments import (
  capture_the_flag,
  compiled_games,
  functional,
  games,
)
from ftwax.runtime import generations

CONFIG = capture_the_flag.CaptureTheFlagConfig(
  team_size=1, height=7, width=11, num_steps=4, action='flat'
)


def _play(game, seed=0):
  return compiled_games.CompiledGames(game, 1, seed, 'flag')


def test_a_functional_game_is_played_on_the_host():
  game = _play(capture_the_flag.make(CONFIG), seed=1)
  assert game.spec.teams == (0, 1) and len(game.spec.event_names) == 13
  assert game.spec.environment == capture_the_flag.make(CONFIG).spec
  timestep = game.step(np.zeros(2))
  for expected in (0, 1, 1, 1, 2, 0):
    np.testing.assert_array_equal(timestep.step_type, [expected, expected])
    assert isinstance(timestep.observation, np.ndarray)
    assert timestep.reward.shape == (2, 13)
    np.testing.assert_array_equal(timestep.discount, [float(expected != 2)] * 2)
    if expected == 2:
      np.testing.assert_array_equal(game.outcomes([0]), [[0, 0]])
    timestep = game.step(np.array([1, 2]))
  game.close()


def test_equal_configs_share_their_compiled_game():
  assert capture_the_flag.make(CONFIG) is capture_the_flag.make(
    dataclasses.replace(CONFIG)
  )


def test_seeds_choose_the_games():
  first, same, other = (
    _play(capture_the_flag.make(CONFIG), seed).reset().observation
    for seed in (1, 1, 2)
  )
  np.testing.assert_array_equal(first, same)
  assert not np.array_equal(first, other)


@pytest.mark.parametrize(
  ('teams', 'num_players', 'message'),
  [
    ((0, 1), 4, r'teams \(0, 1\) must name a team for each of the 4 players'),
    ((0, 2), None, r'teams \(0, 2\) must be numbered from zero without gaps'),
    ((), None, r'teams \(\) must be numbered from zero'),
  ],
)
def test_bad_teams_are_refused(teams, num_players, message):
  with pytest.raises(ValueError, match=message):
    games.check_teams(teams, num_players)


def test_bad_roles_are_refused():
  game = capture_the_flag.make(CONFIG)
  for roles in ((0,), (0, 2), (1, 1)):
    with pytest.raises(ValueError, match=r'roles \(.*\) must be numbered'):
      _play(game._replace(roles=roles))


def test_a_headline_is_one_of_the_events():
  spec = games.spec_of(capture_the_flag.make(CONFIG))
  returns = np.arange(26.0).reshape(2, 13)
  row = generations.train_row(spec, returns, np.ones(2))
  event = spec.event_names.index('i_captured_the_flag')
  assert row['episode_return'] == returns[:, event].mean()
  plain = spec._replace(headline='')
  assert plain.headlines(returns).tolist() == returns.sum(axis=1).tolist()
  with pytest.raises(ValueError, match=r"headline \('goals'\) must be one of"):
    games.check_game(spec._replace(headline='goals'))


def test_events_must_be_named():
  game = capture_the_flag.make(CONFIG)._replace(event_names=('tag', 'flag'))
  with pytest.raises(
    ValueError, match=r"event_names \('tag', 'flag'\) must na"
  ):
    _play(game)
  game = capture_the_flag.make(CONFIG)._replace(teams=(1, 1))
  with pytest.raises(ValueError, match=r'teams \(1, 1\) must be numbered'):
    _play(game)
  assert isinstance(game, functional.FunctionalGame)


def test_outcomes_compare_scores():
  for scores, outcome in [
    ((3, 1), (1, -1)),
    ((2, 2), (0, 0)),
    ((1, 5, 5), (-1, 0.5, 0.5)),
    ((-1, -3, -2), (1, -1, 0)),
    ((7,), (0,)),
  ]:
    result = games.outcome_of_scores(scores)
    np.testing.assert_array_equal(result, outcome)
    games.check_outcomes(result[None], len(scores))


@pytest.mark.parametrize('outcome', [(0.5, -0.5, 0), (1,), (np.nan, 0)])
def test_other_outcomes_are_refused(outcome):
  with pytest.raises(
    ValueError, match=r'outcome \(.*\) of a game must be a finite score for'
  ):
    games.check_outcomes(np.array([outcome]), 2)
