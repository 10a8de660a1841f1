"""Populations on games in Python, in one process with replay servers."""

import shutil

import dm_env
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
from ftwax.replay import samples
from ftwax.reporting import history
from ftwax.runtime import runs, sharding
from ftwax.runtime.local import members

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
  # Of the last round's two trajectories the second lacks its last step.
  assert whole.counts.learner_steps == 4 * 2 + 1
  np.testing.assert_array_equal(whole.state.steps, [9] * 4)
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
      population=config_lib.PopulationConfig(4, burn_in_games=2, num_returns=2),
      select=selection.truncation,
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


# Parts.


class _Recorder:
  """An actor and its adder, who remember what they are told."""

  def __init__(self, action):
    self._action = action
    self.seen = []
    self.num_resets = 0
    self.num_items = action

  def reset(self):
    self.num_resets += 1

  def observe_first(self, timestep):
    self.seen.append(timestep.observation)

  def observe(self, action, timestep):
    np.testing.assert_array_equal(action['move'], [self._action] * 2)
    self.seen.append(timestep.observation)

  def select_action(self, observation):
    assert observation is None
    return {'move': np.full(2, self._action)}


def test_each_actor_has_the_rows_of_its_member():
  made = [_Recorder(3), _Recorder(4)]
  actors = members.Actors(made, made)
  first = dm_env.TimeStep(*[np.arange(4)] * 4)
  actors.observe_first(first)
  action = actors.select_action(first.observation)
  np.testing.assert_array_equal(action['move'], [3, 3, 4, 4])
  actors.observe(action, first._replace(observation=np.arange(4) + 10))
  np.testing.assert_array_equal(made[0].seen, [[0, 1], [10, 11]])
  np.testing.assert_array_equal(made[1].seen, [[2, 3], [12, 13]])
  assert [recorder.num_resets for recorder in made] == [1, 1]
  assert actors.num_items == 3


class _Dataset:
  """Gives numbered batches, but for those that come late."""

  def __init__(self, number, late=()):
    self._number, self._late, self._count = number, list(late), 0

  def __next__(self):
    if self._count in self._late:
      self._late.remove(self._count)
      raise TimeoutError('late')
    self._count += 1
    value = np.array([10 * self._number + self._count])
    return samples.ReplaySample(value, value, value)


def test_batches_of_members_are_stacked_and_none_is_lost():
  made = [_Dataset(1), _Dataset(2, late=[1])]
  batches = members.Batches(made)
  np.testing.assert_array_equal(next(batches).batch, [[11], [21]])
  with pytest.raises(TimeoutError, match='late'):
    next(batches)
  np.testing.assert_array_equal(next(batches).variables_steps, [[12], [22]])


@pytest.mark.parametrize('num_devices', [3, 1])
def test_members_are_updated_each_by_its_own_batch(key, num_devices):
  core = types.LearnerCore(
    init=lambda key: {'key': key, 'sum': np.zeros(())},
    update=lambda state, batch: (
      {**state, 'sum': state['sum'] + batch.sum()},
      {'mean': batch.mean()},
    ),
  )
  mesh = sharding.make_mesh(jax.devices()[:num_devices])
  core = sharding.place_members_core(core, mesh, 3)
  state = jax.jit(core.init)(key)
  assert len(np.unique(state['key'], axis=0)) == 3
  batch = np.arange(6.0, dtype=np.float32).reshape(3, 2)
  state, metrics = jax.jit(core.update)(state, batch)
  np.testing.assert_array_equal(state['sum'], [1, 5, 9])
  np.testing.assert_array_equal(metrics['mean'], [0.5, 2.5, 4.5])
