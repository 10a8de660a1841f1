"""Populations on games with teams of any number and size, and roles."""

import functional_fakes
import jax.numpy as jnp
import numpy as np
import population_helpers
import pytest
import run_helpers

from ftwax.population import players, selection
from ftwax.population import population_config as config_lib
from ftwax.records import loggers
from ftwax.reporting import history
from ftwax.runtime import prepare
from ftwax.runtime.local import arena as arena_lib

pytestmark = pytest.mark.slow

ONE_TEAM = (0, 0), (0, 1)
HUNT = (0, 0, 0, 1), (0, 0, 0, 1)
FREE_FOR_ALL = (0, 1, 2), (0, 1, 0)


def _run(
  directory, runtime, teams, roles, num_steps=12_000, options=(), **rules
):
  """Runs two members and returns the result and the last evaluation."""
  experiment = population_helpers.make_experiment(
    functional_fakes.make_role_matching(teams, roles),
    **{
      'num_environments': 8,
      'max_num_actor_steps': num_steps,
      'steps_per_round': 40,
      'population': config_lib.PopulationConfig(
        2, own_team_fraction=0.5, **rules
      ),
      **dict(options),
    },
  )
  run = run_helpers.make_run(runtime, directory)
  result = run(experiment, eval_every=num_steps, num_eval_episodes=8)
  rows = loggers.read_jsonl(loggers.log_path(result.run_dir, 'evaluation'))
  return result, rows[-1]


def test_one_team_is_judged_by_its_returns(tmp_path):
  result, row = _run(
    tmp_path, 'device', *ONE_TEAM, select=selection.Truncation()
  )
  assert min(row['role_returns']) > 0.9
  np.testing.assert_array_less(0.9, row['cross_returns'])
  assert row['self_play'] > 0.9 and row['cross_play'] > 0.9
  assert not any(name.startswith('scores/') for name in row)
  past = history.read(result.run_dir)
  np.testing.assert_array_equal(past.ratings, 1000.0)
  assert past.mean_returns[-1].min() > 0.8


def test_three_play_against_one(tmp_path):
  def never_right(games, seats, timestep, state):
    del games, timestep
    return jnp.zeros(len(seats), jnp.int32), state

  prey = players.Player(lambda key, size: (), never_right, roles=(1,))
  options = {'opponents': {'prey': prey}, 'num_environments': 16}
  result, row = _run(tmp_path, 'device', *HUNT, options=options)
  # Members play its role in training alone.
  assert row['role_returns'][0] > 0.9 and row['role_returns'][1] is None
  # It is right half of the time.
  assert row['scores/prey'] > 0.7
  past = history.read(result.run_dir)
  assert np.isfinite(past.ratings).all() and np.ptp(past.ratings) > 0.0
  assert past.payoff_games[0, 1] > 0


def test_players_stay_until_a_game_ends(tmp_path, monkeypatch):
  calls = []
  for name in ('seat', 'reset', 'step'):
    method = getattr(arena_lib.Arena, name)

    def spy(self, *args, name=name, method=method):
      calls.append(name)
      return method(self, *args)

    monkeypatch.setattr(arena_lib.Arena, name, spy)
  _, row = _run(tmp_path, 'local', *FREE_FOR_ALL)
  assert min(row['role_returns']) > 0.8
  seated = [index for index, name in enumerate(calls) if name == 'seat']
  assert len(seated) > 2
  assert all(calls[index + 1] == 'reset' for index in seated)


def test_members_of_one_team_are_not_copied_by_their_ratings():
  game = functional_fakes.make_role_matching(*ONE_TEAM)
  with pytest.raises(
    ValueError, match=r'select .* of one team \(0, 0\), which'
  ):
    prepare.prepare(population_helpers.make_experiment(game))


def test_results_that_are_no_numbers_are_refused(tmp_path):
  game = functional_fakes.make_role_matching(*HUNT)._replace(
    outcome=lambda state: state.scores / 0.0
  )
  for runtime in ('device', 'local'):
    experiment = population_helpers.make_experiment(
      game, population=config_lib.PopulationConfig(2)
    )
    with pytest.raises(ValueError, match=r'outcome .*be a finite score for'):
      run_helpers.make_run(runtime, tmp_path)(experiment, runtime)
