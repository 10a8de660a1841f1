"""Scripts and frozen agents on seats, in training and in evaluation."""

import functional_fakes
import jax
import jax.numpy as jnp
import numpy as np
import population_helpers
import pytest
import run_helpers

from ftwax.environments import functional
from ftwax.inference import loading
from ftwax.population import players, population_config
from ftwax.records import loggers

pytestmark = pytest.mark.slow

_SOLE = population_config.PopulationConfig(num_members=1, exploits=False)


def _make_duel(seed):
  """Returns a game of one against one, with a script that always takes 0."""
  del seed
  game = functional_fakes.make_team_matching(team_size=1, episode_length=5)
  return game._replace(scripts={'zero': _take_zero})


def _take_zero(key, state, seat):
  del key, state, seat
  return jnp.int32(0)


def _make_experiment(**options):
  return population_helpers.make_experiment(
    _make_duel,
    **{
      'population': _SOLE,
      'num_environments': 8,
      'opponent_share': 1.0,
      **options,
    },
  )


@pytest.fixture
def run(tmp_path):
  return run_helpers.make_run('local', tmp_path)


def test_one_agent_learns_beside_a_script_and_then_meets_itself(run):
  script = players.scripted(_take_zero)
  experiment = _make_experiment(
    opponents={'zeros': script}, max_num_actor_steps=4_000
  )
  result = run(experiment, eval_every=2_000, num_eval_episodes=12)
  assert result.mean_return > 3.5  # Chance is 2.5 of 5, as of a script.
  rows = loggers.read_jsonl(loggers.log_path(result.run_dir, 'evaluation'))
  assert len(rows) == 2
  assert rows[-1]['scores/zero'] > 0.7 and rows[-1]['scores/zeros'] > 0.7
  assert rows[-1]['elo'] > 50.0

  agent = loading.load(result.run_dir)
  np.testing.assert_array_equal(
    agent.variables.internal_rewards, result.state.internal_rewards[0]
  )
  again = _make_experiment(
    seed=2,  # Whose first parameters play at chance.
    opponents={'before': agent.player},
    max_num_actor_steps=48,
  )
  result = run(again, 'again', eval_every=48, num_eval_episodes=12)
  (row,) = loggers.read_jsonl(loggers.log_path(result.run_dir, 'evaluation'))
  assert row['scores/before'] < 0.5  # It has learned for longer.
  assert row['scores/before'] < row['scores/random']


def test_a_population_is_rated_by_the_scripts_of_its_game(run):
  experiment = _make_experiment(
    population=population_config.PopulationConfig(4, burn_in_games=0),
    opponents={'zeros': players.scripted(_take_zero)},
    opponent_share=0.5,
    max_num_actor_steps=960,
  )
  result = run(experiment, eval_every=480, num_eval_episodes=6)
  rows = loggers.read_jsonl(loggers.log_path(result.run_dir, 'evaluation'))
  assert [len(row['member_elo']) for row in rows] == [4, 4]
  assert np.shape(rows[0]['member_scores']) == (4, 3)
  # Two games of each member against each of three, a seat each.
  assert rows[0]['num_episodes'] == 4 * 3 * 2
  population = loggers.read_jsonl(
    loggers.log_path(result.run_dir, 'population')
  )
  assert population[-1]['opponent_ratings'][0] != 1000.0


def test_two_devices_share_the_members(run):
  experiment = _make_experiment(
    population=population_config.PopulationConfig(4, burn_in_games=0),
    opponent_share=0.0,
    max_num_actor_steps=480,
  )
  one = run(experiment, 'one')
  two = run(experiment, 'two', devices=jax.devices()[:2])
  assert len(two.state.steps.sharding.device_set) == 2
  jax.tree.map(
    lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5),
    one.state.params,
    two.state.params,
  )
  with pytest.raises(ValueError, match=r'num_members \(4\) must divide by'):
    run(experiment, 'three', devices=jax.devices()[:3])


def test_opponents_need_a_game_of_two_teams(run):
  solo = functional_fakes.make_matching()
  assert isinstance(solo, functional.FunctionalEnvironment)
  with pytest.raises(ValueError, match=r'opponents \(1\) must be 0 in a'):
    run(
      population_helpers.make_experiment(
        lambda seed: solo,
        population=_SOLE,
        opponents={'zeros': players.scripted(_take_zero)},
      )
    )
