"""Distributed runs of populations: a learner of all members, and arenas."""

import threading

import cloudpickle
import functional_fakes
import numpy as np
import population_helpers
import pytest

from ftwax.population import population_config as population_config
from ftwax.records import loggers
from ftwax.reporting import history
from ftwax.runtime import distributed
from ftwax.runtime.distributed import (
  arenas,
  environments,
  population,
  processes,
  program,
)
from ftwax.runtime.host import arena as arena_lib
from ftwax.runtime.host import rounds


@pytest.fixture
def helpers_by_value():
  """Lets nodes have functions of a module that they cannot import."""
  cloudpickle.register_pickle_by_value(population_helpers)
  yield
  cloudpickle.unregister_pickle_by_value(population_helpers)


def _make_experiment(**options):
  options = {
    'num_environments': 2,
    'population': population_config.PopulationConfig(
      2, num_players=4, burn_in_games=0, win_probability_threshold=0.5001
    ),
    'steps_per_round': 6,
    'max_num_actor_steps': 403,
    **options,
  }
  return population_helpers.make_experiment(**options)


def _make_duel(seed):
  del seed
  return functional_fakes.make_team_matching(team_size=1)


@pytest.mark.slow
@pytest.mark.usefixtures('helpers_by_value')
def test_a_run_of_processes_leaves_its_records(tmp_path):
  result = distributed.run_distributed(
    _make_experiment(), 2, run_dir=tmp_path / 'run'
  )
  assert result.counts.actor_steps == 403
  # An arena has 8 seats, 4 of each member. After 5 actions each game begins
  # anew, and a batch is of 3 such ticks: of 403 / 8 * 6 / 5 there are 60.
  assert 5 <= result.counts.learner_steps <= 20
  np.testing.assert_array_equal(
    result.state.steps, [result.counts.learner_steps] * 2
  )
  past = history.read(result.run_dir)
  assert past.ratings.shape[1] == 2 and len(past.ratings) > 0
  assert np.all(np.diff(past.games) >= 0)
  assert history.read_lineage(result.run_dir)[0]['num_members'] == 2
  train = loggers.read_jsonl(loggers.log_path(result.run_dir, 'train'))
  assert {row['actor'] for row in train} <= {0, 1}
  assert (result.run_dir / 'report.html').exists()
  games = past.games[-1]
  resumed = distributed.run_distributed(
    _make_experiment(max_num_actor_steps=600),
    1,
    run_dir=tmp_path / 'run',
    resume=True,
  )
  assert resumed.counts.actor_steps == 600
  assert history.read(resumed.run_dir).games[-1] > games


@pytest.mark.parametrize(
  ('options', 'settings', 'message'),
  [
    ({'num_environments': 3, 'population': None}, {}, r'population \(None\)'),
    ({'environment_factory': _make_duel}, {},
     r'game \(teams \(0, 1\)\) .*num_players=2 or another game'),
    ({}, {'inference_server': True}, r'inference_server \(True\) must be Fa'),
    ({}, {'num_devices': 2}, r'num_devices \(2\) must be 1 for a population'),
  ],
)  # fmt: skip
def test_what_a_population_cannot_do_is_refused(options, settings, message):
  with pytest.raises(ValueError, match=message):
    program.prepare(
      _make_experiment(**options), 1, None, distributed.Settings(**settings)
    )


def test_a_population_is_not_evaluated():
  with pytest.raises(ValueError, match=r'eval_every \(10\) must be None'):
    program.prepare(_make_experiment(), 1, 10, distributed.Settings())


def test_there_is_a_replay_server_for_each_member(tmp_path):
  prepared = program.prepare(
    _make_experiment(replay_port=None), 1, None, distributed.Settings()
  )
  assert prepared.environment_spec.observations.shape == (2,)
  made = program.make_distributed_experiment(prepared, 3, run_dir=tmp_path)
  assert {label: len(group) for label, group in made.groups.items()} == {
    'counter': 1, 'replay': 1, 'learner': 1, 'actor': 3,
  }  # fmt: skip
  assert len(made.groups['replay'][0].addresses) == 2


def test_results_go_through_a_courier():
  result = arena_lib.Result(
    1, np.array([0, 1]), np.array([1.0, -1.0]), np.ones((2, 3)), 7
  )
  place, *rest = result
  made = population.make_result(
    [place, *[np.asarray(x).tolist() for x in rest]]
  )
  np.testing.assert_array_equal(made.returns, result.returns)
  np.testing.assert_array_equal(made.seats, result.seats)
  assert made.place == 1 and made.length == 7


class _Records:
  """A population to which results are told."""

  def __init__(self):
    self.places = []
    self.num_rounds = 0

  def record(self, results, ends_round):
    self.places += [result.place for result in results]
    self.num_rounds += ends_round


class _LosesReplies:
  """Carries calls out, but every second reply does not come."""

  def __init__(self, node):
    self._node = node
    self._num_calls = 0

  def report_results(self, *args):
    self._num_calls += 1
    recorded = self._node.report_results(*args)
    if self._num_calls % 2:
      raise RuntimeError('deadline exceeded')
    return recorded


def test_results_are_recorded_once(tmp_path):
  settings = distributed.Settings()
  experiment = _make_experiment()
  node = population.PopulationLearner(
    experiment, str(tmp_path), settings, [], None
  )
  loop = arenas.ArenaLoop(
    experiment,
    0,
    settings,
    processes.Remote(None, 'counter'),
    threading.Event(),
    processes.Remote(_LosesReplies(node), 'learner'),
  )
  results = [
    arena_lib.Result(
      place, np.array([0, 1]), np.ones(2), np.ones((2, 3)), length=7
    )
    for place in range(6)
  ]
  loop._tell(rounds.Tick(8, [], results[:1], False))  # No learner is there yet.
  records = node._learner = _Records()
  for index in range(1, 6):
    loop._tell(rounds.Tick(8, [], results[index : index + 1], index == 3))
  for _ in range(4):
    loop._tell(rounds.Tick(8, [], [], False))
  assert records.places == list(range(6))
  assert records.num_rounds == 1


def test_the_last_steps_are_of_whole_games():
  experiment = _make_experiment()
  made = arena_lib.make_games(experiment, range(2))
  guarded = environments.GuardedEnvironment(arena_lib.Arena(made, experiment))
  assert guarded.num_environments == 8
  guarded.reset()
  guarded.step(np.zeros(8, np.int32))
  guarded.limit = 5  # Of four players each: one game.
  with pytest.raises(environments.BudgetMet):
    guarded.step(np.zeros(8, np.int32))
  steps = made.state.state.players.num_steps
  np.testing.assert_array_equal(steps[:, 0], [2, 1])
