"""Scripts and frozen agents take seats on the device; evaluations meet them."""

import functional_fakes
import jax
import numpy as np
import population_helpers
import pytest
import run_helpers

import ftwax
from ftwax import types
from ftwax.agents.actor_critic import acting
from ftwax.environments import functional
from ftwax.population import players
from ftwax.records import loggers

pytestmark = pytest.mark.slow

CONFIG = population_helpers.CONFIG


def _make_duel(seed) -> functional.FunctionalGame:
  del seed
  return functional_fakes.make_team_matching(team_size=1)


def _make_game_with_scripts(seed) -> functional.FunctionalGame:
  scripts = {
    'knows': functional_fakes.name_sign,
    'is_wrong': functional_fakes.name_other_sign,
  }
  return population_helpers.make_game(seed)._replace(scripts=scripts)


@pytest.fixture
def run(tmp_path):
  return run_helpers.make_run('device', tmp_path)


def _make_duels(**options):
  return run_helpers.make_experiment(
    CONFIG, _make_duel, steps_per_round=5, opponent_share=1.0, **options
  )


def test_one_agent_meets_a_script_and_then_its_frozen_self(run):
  experiment = _make_duels(
    opponents={'knows': players.scripted(functional_fakes.name_sign)},
    max_num_actor_steps=4_000,
  )
  result = run(experiment, 'first', eval_every=4_000, num_eval_episodes=6)
  # One seat of each of 4 games, 5 actions a round.
  assert result.counts.actor_steps == 4_000
  assert result.counts.episodes == 800
  assert result.mean_return > 3.5  # Chance is 2.5 of 5.
  rows = loggers.read_jsonl(loggers.log_path(result.run_dir, 'population'))
  (rating,), (other,) = rows[-1]['ratings'], rows[-1]['opponent_ratings']
  assert rating < other  # It never won.
  np.testing.assert_allclose(rating + other, 2000.0)
  assert rows[-1]['games'] == [800]
  row = loggers.read_jsonl(loggers.log_path(result.run_dir, 'evaluation'))[-1]
  assert row['num_episodes'] == 6
  # At best it draws.
  assert row['scores/knows'] <= 0.5 and row['elo'] <= 0.0

  spec = _make_duel(0).spec
  network = CONFIG.make_network(spec)
  variables = jax.tree.map(
    lambda leaf: np.asarray(leaf[0]), types.actor_variables(result.state)
  )
  frozen = players.frozen(acting.make_actor_core(network, spec), variables)
  again = _make_duels(
    opponents={'first': frozen},
    max_num_actor_steps=20,
    evaluation=ftwax.Evaluation(greedy=False),
  )
  result = run(again, 'second', eval_every=20, num_eval_episodes=20)
  (row,) = loggers.read_jsonl(loggers.log_path(result.run_dir, 'evaluation'))
  assert row['scores/first'] < 0.4  # It has learned for longer.


def test_members_and_opponents_share_games(run):
  experiment = population_helpers.make_experiment(
    num_environments=16,
    opponents={
      'knows': players.scripted(functional_fakes.name_sign),
      'is_wrong': players.scripted(functional_fakes.name_other_sign),
    },
    max_num_actor_steps=480,
  )
  result = run(experiment)
  # Of 16 games 8 have a team of opponents: 48 seats of members.
  assert result.counts.actor_steps == 2 * 48 * 5
  rows = loggers.read_jsonl(loggers.log_path(result.run_dir, 'population'))
  assert rows[-1]['opponent_ratings'][0] > rows[-1]['opponent_ratings'][1]


def test_a_population_is_evaluated_against_scripts(run):
  experiment = population_helpers.make_experiment(_make_game_with_scripts)
  result = run(experiment, eval_every=100, num_eval_episodes=6)
  row = loggers.read_jsonl(loggers.log_path(result.run_dir, 'evaluation'))[-1]
  assert row['num_episodes'] == 4 * 6 * 2
  assert row['scores/is_wrong'] > 0.5 > row['scores/knows'] - 0.01
  assert {'scores/random', 'elo'} <= set(row)
  assert np.shape(row['member_elo']) == np.shape(row['member_returns']) == (4,)
  scores = np.array(row['member_scores'])
  assert scores.shape == (4, 3)
  assert (scores[:, 2] > scores[:, 1]).all()


def test_evaluations_of_a_single_agent_task_count_each_member(run):
  def make_environment(seed):
    del seed
    return functional_fakes.make_matching(episode_length=5)

  experiment = population_helpers.make_experiment(
    make_environment, num_environments=16, max_num_actor_steps=100
  )
  result = run(experiment, eval_every=50, num_eval_episodes=24)
  row = loggers.read_jsonl(loggers.log_path(result.run_dir, 'evaluation'))[-1]
  # 16 environments a member, each of which plays 2 episodes.
  assert row['num_episodes'] == 4 * 32
  assert row['episode_length'] == 5
  assert len(row['member_returns']) == 4
  assert 'elo' not in row


def test_opponents_need_a_game_of_teams(run):
  def make_environment(seed):
    del seed
    return functional_fakes.make_matching()

  experiment = run_helpers.make_experiment(
    CONFIG,
    make_environment,
    opponents={'knows': players.scripted(functional_fakes.name_sign)},
  )
  with pytest.raises(ValueError, match=r'opponents \(1\) must be 0'):
    run(experiment)
