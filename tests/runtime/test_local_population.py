"""Populations on games in Python, in one process with replay servers."""

import shutil

import fakes
import jax
import numpy as np
import population_helpers
import pytest
import run_helpers

from ftwax import types
from ftwax.population import population_config as config_lib
from ftwax.population import selection
from ftwax.records import checkpoints, loggers, run_directory
from ftwax.reporting import history
from ftwax.runtime import prepare, runs, sharding
from ftwax.runtime.local import acting, learning
from ftwax.runtime.local import arena as arena_lib

pytestmark = pytest.mark.slow


@pytest.fixture
def run(tmp_path):
  return run_helpers.make_run('local', tmp_path)


def _make_experiment():
  return population_helpers.make_experiment(
    checkpointing=checkpoints.CheckpointingConfig(1e-9, max_to_keep=1000)
  )


@pytest.fixture(scope='module')
def whole(tmp_path_factory):
  """A run with a checkpoint after each step."""
  directory = tmp_path_factory.mktemp('whole')
  return run_helpers.make_run('local', directory)(_make_experiment())


def test_a_run_leaves_its_records(whole):
  # 16 seats; a round is 5 actions and a reset, in two trajectories of 3 steps.
  assert whole.counts.actor_steps == 400
  assert whole.counts.episodes == 5 * 16
  assert whole.counts.learner_steps == 5 * 2
  np.testing.assert_array_equal(whole.state.steps, [10] * 4)
  past = history.read(whole.run_dir)
  assert past.ratings.shape == (5, 4)
  np.testing.assert_allclose(past.ratings.sum(axis=1)[0], 4000.0)
  np.testing.assert_array_equal(past.payoff_games, past.payoff_games.T)
  rows = history.read_lineage(whole.run_dir)
  assert rows[0]['num_members'] == 4
  assert {row['reason'] for row in rows[1:]} == {'win_probability'}
  for name in ('report.html', 'config.json', 'checkpoints'):
    assert (whole.run_dir / name).exists()
  learner = loggers.read_jsonl(loggers.log_path(whole.run_dir, 'learner'))
  assert len(learner[-1]['loss']) == 4
  config = _make_experiment().replace(
    population=config_lib.PopulationConfig(8),
    num_environments=8,
  )
  with pytest.raises(
    run_directory.ConfigMismatchError, match='population.num_members: 4 in'
  ):
    runs.run_experiment(config, run_dir=whole.run_dir, resume=True)


def test_the_same_seed_gives_the_same_population(run, whole):
  again = run(population_helpers.make_experiment())
  run_helpers.assert_same(whole.state, again.state)
  assert history.read_lineage(again.run_dir) == history.read_lineage(
    whole.run_dir
  )


def test_a_resumed_population_goes_on(whole, tmp_path):
  directory = tmp_path / 'copy'
  shutil.copytree(whole.run_dir, directory)
  saved = sorted((directory / 'checkpoints').iterdir())
  middle = len(saved) // 2
  for later in saved[middle + 1 :]:
    shutil.rmtree(later)
  resumed = runs.run_experiment(
    _make_experiment(), run_dir=directory, resume=True
  )
  assert resumed.counts.actor_steps == 400
  # Games under way are lost, and with them less than a round.
  assert 3 * 16 <= resumed.counts.episodes <= 5 * 16
  assert np.all(np.diff(history.read(directory).games) > 0)
  rows = history.read_lineage(whole.run_dir)
  again = history.read_lineage(directory)
  assert again[0] == rows[0]
  # What came before the checkpoint is kept, and nothing of what came after.
  early = [row for row in rows if row['generation'] <= 2]
  assert again[: len(early)] == early
  assert resumed.counts.learner_steps == int(resumed.state.steps[0])


def test_members_learn_a_game_and_the_better_are_copied(run):
  experiment = population_helpers.make_experiment(
    config=population_helpers.CONFIG.replace(batch_size=16),
    num_environments=8,
    max_num_actor_steps=12_000,
  )
  result = run(experiment)
  # Chance is 2.5 of 5.
  assert result.mean_return > 3.5
  assert len(history.read_lineage(result.run_dir)) > 1


def test_a_single_agent_task_is_a_game_of_one(run):
  result = run(
    population_helpers.make_experiment(
      _make_fake,
      num_environments=8,
      population=config_lib.PopulationConfig(
        4, burn_in_games=2, num_returns=2, select=selection.Truncation()
      ),
      max_num_actor_steps=800,
      steps_per_round=30,
    )
  )
  assert result.counts.actor_steps == 800
  # 8 episodes of 5 steps and a reset; those go on from round to round.
  assert result.counts.episodes == 8 * 20
  past = history.read(result.run_dir)
  assert np.isfinite(past.mean_returns[-1]).all()
  reasons = {row['reason'] for row in history.read_lineage(result.run_dir)[1:]}
  assert reasons == {'truncation'}


def _make_fake(seed):
  return fakes.FakeEnvironment(fakes.make_spec(), episode_length=5, seed=seed)


@pytest.mark.parametrize('num_devices', [3, 1])
def test_members_are_updated_each_by_its_own_batch(key, num_devices):
  """On odd shares of a queue, whose last trajectories wait."""
  del key
  experiment = population_helpers.make_experiment(
    _make_fake,
    population=config_lib.PopulationConfig(3, exploits=False),
    num_environments=9,
  )
  parts = prepare.prepare(experiment)
  mesh = sharding.make_mesh(jax.devices()[:num_devices])
  learner = learning.Learner(parts, 3, mesh)
  members = learner.init(jax.random.PRNGKey(0))
  policies = jax.tree.leaves(members.params)
  assert len(np.unique(np.asarray(policies[1]), axis=0)) == 3
  games = parts.make_games(range(9), 'test')
  actors = acting.Actors(
    parts.policy, arena_lib.Arena(games, parts.seating), ()
  )
  actors.begin(jax.random.PRNGKey(1), np.repeat(np.arange(3), 3)[:, None])
  variables = acting.put(types.actor_variables(members))
  written = []
  for number in range(4):
    arrays = acting.make_arrays(parts.replays.template, 3, 3)
    for _ in actors.rollout(variables, arrays):
      pass
    written.append(jax.tree.map(np.array, arrays._replace(value=None)))
    learner.insert(written[-1], number)
  joined = acting.map_rows(
    lambda axis, *leaves: np.concatenate(leaves, axis), *written
  )
  expected = [jax.tree.map(lambda x, i=i: x[i], members) for i in range(3)]
  for number in range(3):
    members, metrics, _ = learner.update(members)
    assert learner.num_queued == 12 - 4 * (number + 1)
    # The first batch has three trajectories of the first insertion.
    assert metrics['sample_age_steps'] == number - [0.25, 1.5, 2.75][number]
    for member in range(3):
      own = acting.map_rows(
        lambda axis, leaf, member=member, number=number: np.take(
          np.take(leaf, member, axis - 1),
          range(4 * number, 4 * number + 4),
          axis - 1,
        ),
        joined,
      )
      expected[member], _ = jax.jit(parts.learner.update)(
        expected[member], types.LearnerBatch(own)
      )
  for member in range(3):
    jax.tree.map(
      lambda leaf, other, member=member: np.testing.assert_allclose(
        leaf[member], other, rtol=1e-4, atol=1e-6
      ),
      members.params,
      expected[member].params,
    )
