"""Nodes of distributed runs in one process, without an engine of its own."""

import itertools
import json

import distributed_helpers
import fakes
import functional_fakes
import in_process
import jax
import numpy as np
import population_helpers
import pytest
import run_helpers
import slow_cases

from ftwax.cli import commands
from ftwax.population import population_config, selection
from ftwax.records import checkpoints, loggers, run_directory
from ftwax.reporting import history
from ftwax.runtime import callbacks, distributed, evaluation, prepare, runs
from ftwax.runtime import experiment as experiment_lib
from ftwax.runtime.distributed import runner

pytestmark = pytest.mark.usefixtures('compiles_once')


def _run(experiment, directory, engine=None, settings=None, **options):
  return runner.run_with(
    lambda: engine or in_process.InProcess(),
    prepare.prepare(experiment),
    runs.open_run_directory(
      experiment, directory, options.get('resume', False)
    ),
    settings=settings,
    num_eval_episodes=4,
    **options,
  )


def _read(directory, label):
  return loggers.read_jsonl(loggers.log_path(directory, label))


def _make_population(**options):
  return population_helpers.make_experiment(num_environments=2, **options)


def _assert_told_by_lineage(directory, state):
  """Asserts that learners hold the traits that the lineage ends with."""
  birth, *rows = history.read_lineage(directory)
  rates = list(birth['hyperparameters']['learning_rate'])
  for row in rows:
    rates[row['member']] = row['hyperparameters']['learning_rate']
  np.testing.assert_allclose(
    rates, state.hyperparameters.learning_rate, rtol=1e-5
  )


class _Losing(in_process.InProcess):
  """Loses nodes before given calls of a method."""

  def __init__(self, method, calls):
    super().__init__()
    self._method = method
    self._calls = calls
    self.num_lost = 0
    self.num_calls = 0

  def call(self, name, method, *args, num_returns=1):
    if method == self._method:
      self.num_calls += 1
      if self.num_calls in self._calls:
        self.num_lost += 1
        self.lose(name)
    return super().call(name, method, *args, num_returns=num_returns)


@pytest.mark.parametrize('num_actors', slow_cases.cases([1, 2, 3], [3]))
def test_takes_the_steps_that_are_asked_for(tmp_path, num_actors):
  experiment = distributed_helpers.make_experiment(max_num_actor_steps=101)
  result = _run(
    experiment, tmp_path, settings=distributed.Settings(num_actors=num_actors)
  )
  assert result.counts.actor_steps == 102  # Both games take the last one.
  # Episodes take 4 steps; a trajectory has 5 timesteps after its first, and a
  # batch 4 of them. The last trajectories may be cut short.
  assert 3 <= result.counts.learner_steps <= 6
  assert result.state.steps == [result.counts.learner_steps]
  rows = _read(tmp_path, 'train')
  assert rows[-1]['actor_steps'] <= 102
  assert {row['actor'] for row in rows} == set(range(num_actors))
  assert sum(row['num_episodes'] for row in rows) == result.counts.episodes
  assert _read(tmp_path, 'learner')


def test_few_steps_end_as_well(tmp_path):
  experiment = distributed_helpers.make_experiment(max_num_actor_steps=3)
  assert _run(experiment, tmp_path).counts.actor_steps == 4


def test_the_same_run_twice_gives_the_same_bits(tmp_path):
  experiment = _make_population()
  first, second = (
    _run(experiment, tmp_path / name).state for name in ('a', 'b')
  )
  run_helpers.assert_same(first, second)


def test_a_local_run_continues_a_distributed_one_and_back(tmp_path):
  make = distributed_helpers.make_experiment
  first = _run(make(), tmp_path)
  local = runs.run_experiment(
    make(max_num_actor_steps=200), run_dir=tmp_path, resume=True
  )
  assert local.counts.learner_steps > first.counts.learner_steps
  last = _run(make(max_num_actor_steps=300), tmp_path, resume=True)
  assert last.counts.actor_steps == 300
  assert last.counts.learner_steps > local.counts.learner_steps
  assert last.state.steps == [last.counts.learner_steps]


def test_evaluates_at_multiples_and_at_the_end(tmp_path):
  result = _run(
    distributed_helpers.make_experiment(),
    tmp_path,
    period=evaluation.Period(50),
  )
  rows = _read(tmp_path, 'evaluation')
  assert len(rows) == 2
  assert rows[0]['num_episodes'] >= 4
  # The last one is of the members with which the run ends.
  assert rows[-1]['learner_steps'] == result.counts.learner_steps
  assert rows[-1]['actor_steps'] == 100


def test_an_observer_ends_the_run_and_keeps_the_best(tmp_path):
  class Ends(experiment_lib.Observer):
    def observe_evaluation(self, row, run):
      assert run.snapshot().population.members is not None
      return True

  result = _run(
    distributed_helpers.make_experiment(
      observers=[Ends(), callbacks.BestCheckpoint()], max_num_actor_steps=1000
    ),
    tmp_path,
    period=evaluation.Period(13, 'episodes'),
  )
  assert 50 <= result.counts.actor_steps < 150
  assert (tmp_path / 'best').exists()


class _Counts(experiment_lib.Observer):
  """Counts the timesteps that a copy in an actor sees."""

  def __init__(self):
    self._num_steps = 0

  def observe(self, environment, timestep, action):
    del environment, timestep, action
    self._num_steps += 1

  def get_metrics(self):
    return {'observed': self._num_steps}


def test_copies_of_observers_in_actors_see_steps(tmp_path):
  _run(distributed_helpers.make_experiment(observers=[_Counts()]), tmp_path)
  assert _read(tmp_path, 'train')[-1]['observed'] > 1


@pytest.mark.parametrize(
  'num_learners', [pytest.param(1, marks=pytest.mark.ci), 4]
)
def test_members_evolve_wherever_they_are(tmp_path, num_learners):
  result = _run(
    _make_population(),
    tmp_path,
    settings=distributed.Settings(num_learners=num_learners),
  )
  assert result.counts.actor_steps == 400
  assert len(history.read_lineage(tmp_path)) > 1
  _assert_told_by_lineage(tmp_path, result.state)
  past = history.read(tmp_path)
  assert np.all(np.diff(past.games, axis=0) >= 0)
  learners = {row.get('learner', 0) for row in _read(tmp_path, 'learner')}
  assert learners == set(range(num_learners))


@pytest.mark.ci
def test_members_of_one_team_are_evaluated_beside_each_other(tmp_path):
  experiment = _make_population(
    environment=functional_fakes.make_role_matching((0, 0), (0, 1)),
    population=population_helpers.POPULATION.replace(
      select=selection.Truncation()
    ),
  )
  _run(experiment, tmp_path, period=evaluation.Period(200))
  row = _read(tmp_path, 'evaluation')[-1]
  assert np.shape(row['cross_returns']) == (4, 4)
  assert len(row['role_returns']) == 2
  past = history.read(tmp_path)
  np.testing.assert_array_equal(past.ratings, 1000.0)
  assert np.isfinite(past.mean_returns[-1]).all()


def test_copies_cross_learners(tmp_path):
  seen = []

  class Engine(in_process.InProcess):
    def call(self, name, method, *args, num_returns=1):
      if method == 'adopt':
        (before,) = super().call(name, 'state')
        result = super().call(name, method, *args)
        (after,) = super().call(name, 'state')
        _, parents, *given = args
        for row, (learner, place) in parents.items():
          data = self.get(given[learner])[place]['params']
          params = self.get(after).params
          run_helpers.assert_same(
            jax.tree.map(lambda leaf, row=row: leaf[row], params), data
          )
          seen.append(run_helpers.differ(self.get(before).params, params))
        return result
      return super().call(name, method, *args, num_returns=num_returns)

  _run(
    _make_population(),
    tmp_path,
    Engine(),
    distributed.Settings(num_learners=4),
  )
  assert any(seen)


@pytest.mark.parametrize(
  'calls',
  slow_cases.cases([{1}, {2, 5}, {3, 4, 9}], [{2, 5}]),
)
def test_what_a_lost_actor_played_is_not_counted(tmp_path, calls):
  engine = _Losing('play', calls)
  result = _run(
    distributed_helpers.make_experiment(max_num_actor_steps=203),
    tmp_path,
    engine,
    distributed.Settings(num_actors=3),
  )
  assert engine.num_lost == len(calls)
  assert result.counts.actor_steps == 204
  rows = _read(tmp_path, 'train')
  assert sum(row['num_episodes'] for row in rows) == result.counts.episodes
  status = json.loads((tmp_path / run_directory.NODES_FILE).read_text())
  assert {'actor/0', 'actor/2', 'learner/0'} <= set(status)


@pytest.mark.parametrize(
  ('num_learners', 'method'),
  [
    pytest.param(1, 'learn', marks=pytest.mark.ci),
    pytest.param(1, 'state', marks=pytest.mark.ci),
    (2, 'learn'),
    pytest.param(2, 'give', marks=pytest.mark.slow),
    pytest.param(2, 'adopt', marks=pytest.mark.slow),
    pytest.param(2, 'state', marks=pytest.mark.ci),
  ],
)
def test_all_members_continue_after_a_learner_is_lost(
  tmp_path, method, num_learners
):
  engine = _Losing(method, {3})
  experiment = _make_population(
    checkpointing=checkpoints.CheckpointingConfig(1e-6),
    max_num_actor_steps=800,
  )
  result = _run(
    experiment,
    tmp_path,
    engine,
    distributed.Settings(num_learners=num_learners),
  )
  assert engine.num_lost == 1
  assert result.counts.actor_steps == 800
  # One state of all: none is ahead of the others.
  assert len(set(result.state.steps.tolist())) == 1
  assert result.state.steps[0] == result.counts.learner_steps
  _assert_told_by_lineage(tmp_path, result.state)


def test_a_lost_evaluation_is_made_again(tmp_path):
  engine = _Losing('evaluate', {1})
  _run(
    distributed_helpers.make_experiment(),
    tmp_path,
    engine,
    period=evaluation.Period(100),
  )
  assert engine.num_calls == 2
  assert len(_read(tmp_path, 'evaluation')) == 1


def test_a_learner_that_never_starts_is_told_in_one_line(tmp_path):
  engine = _Losing('initial_state', {1})
  with pytest.raises(SystemExit) as end, commands.errors_told():
    _run(distributed_helpers.make_experiment(), tmp_path, engine)
  assert end.value.code.startswith(
    'NodeFailedError: learners must start, and one was lost before it had'
    f' (learner/0 was lost.); see what it has written in {tmp_path}/output.'
  )


def test_a_node_that_dies_too_often_fails_the_run(tmp_path):
  engine = _Losing('learn', range(1, 100))
  settings = distributed.Settings(max_restarts=2)
  with pytest.raises(
    distributed.NodeFailedError, match='learner/0 must not fail more than 2'
  ):
    _run(distributed_helpers.make_experiment(), tmp_path, engine, settings)
  assert checkpoints.saved_steps(tmp_path / 'checkpoints')
  assert (tmp_path / 'error.txt').exists()


class _Breaks(fakes.FakeEnvironment):
  """Raises in some of its steps."""

  num_steps = 0
  period = 30

  def step(self, action):
    _Breaks.num_steps += 1
    if _Breaks.num_steps % _Breaks.period == 0:
      raise OSError('the simulator has crashed')
    return super().step(action)


def _make_breaking(seed):
  return _Breaks(fakes.make_vector_spec(), 4, False, seed)


def test_environments_that_raise_are_made_again(tmp_path):
  _Breaks.period = 30
  result = _run(
    distributed_helpers.make_experiment(environment=_make_breaking),
    tmp_path,
  )
  assert result.counts.actor_steps == 100


def test_environments_that_always_raise_fail_the_run(tmp_path):
  _Breaks.period = 1
  with pytest.raises(
    distributed.NodeFailedError, match=r'environments of .*\(the simulator has'
  ):
    _run(
      distributed_helpers.make_experiment(environment=_make_breaking),
      tmp_path,
      settings=distributed.Settings(max_restarts=2),
    )


def test_an_error_of_a_node_names_it(tmp_path):
  experiment = distributed_helpers.make_experiment()
  calls = []

  def make_network(spec, config):
    calls.append(config)
    if len(calls) > 1:  # The first one is that of the command's own process.
      raise LookupError('no such layer')
    return experiment.agent.make_network(spec)

  agent = experiment.agent.replace(network=make_network)
  with pytest.raises(
    distributed.NodeFailedError,
    match='learner/0 failed: LookupError: no such layer',
  ):
    _run(experiment.replace(agent=agent), tmp_path)


class _Slow(in_process.InProcess):
  """Answers a learner's calls only after other ones."""

  def wait(self, references, timeout_s):
    del timeout_s
    return list(references[-1:])


@pytest.mark.parametrize(
  ('num_actors', 'waits'),
  slow_cases.rows(
    itertools.product([2, 3], [True, False]), [(2, False), (3, True)]
  ),
)
def test_waiting_actors_never_wait_for_ever(tmp_path, waits, num_actors):
  # Three actors with two games each leave a rest of a batch of four.
  result = _run(
    distributed_helpers.make_experiment(max_num_actor_steps=300),
    tmp_path,
    _Slow(),
    distributed.Settings(num_actors=num_actors, actors_wait=waits),
  )
  assert result.counts.actor_steps == 300


@pytest.mark.parametrize(
  ('options', 'settings', 'message'),
  [
    ({'checkpointing': None}, {}, r'checkpointing \(None\) must be set'),
    (
      {
        'population': population_config.PopulationConfig(4),
        'environment': population_helpers.make_game,
      },
      {'num_learners': 3},
      r'num_learners \(3\) must divide num_members \(4\)',
    ),
    (
      {},
      {'num_learners': 2},
      r'num_learners \(2\) must divide num_members \(1',
    ),
  ],
)
def test_refuses_what_cannot_run(options, settings, message):
  experiment = distributed_helpers.make_experiment(**options)
  with pytest.raises(ValueError, match=message):
    distributed.run_experiment(
      experiment, settings=distributed.Settings(**settings)
    )


@pytest.mark.parametrize(
  ('settings', 'message'),
  [
    ({'num_actors': 0}, r'num_actors \(0\) must be at least 1'),
    ({'max_restarts': -1}, r'max_restarts \(-1\) must not be negative'),
    ({'resources': {'actor': {'CPU': 1}}}, 'need a Ray cluster'),
    (
      {'resources': {'player': {'CPU': 1}}, 'cluster': 'auto'},
      "'player' is none",
    ),
  ],
)
def test_refuses_settings_that_cannot_be(settings, message):
  with pytest.raises(ValueError, match=message):
    distributed.Settings(**settings)


def test_devices_belong_to_settings():
  with pytest.raises(ValueError, match='choose settings=Settings'):
    distributed.run_experiment(
      distributed_helpers.make_experiment(), devices=jax.devices()
    )


def test_a_learner_shards_over_the_devices_of_its_process(tmp_path):
  result = _run(
    distributed_helpers.make_experiment(),
    tmp_path,
    settings=distributed.Settings(num_devices=2),
  )
  assert result.counts.learner_steps > 0
  with pytest.raises(
    distributed.NodeFailedError, match=r'num_devices \(99\) must be at most'
  ):
    _run(
      distributed_helpers.make_experiment(),
      tmp_path / 'second',
      settings=distributed.Settings(num_devices=99),
    )
