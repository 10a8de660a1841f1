"""Distributed runs of populations."""

import os
import signal
import threading
import time

import cloudpickle
import exchanging_population
import jax
import numpy as np
import population_helpers
import psutil
import pytest

from ftwax.population import population_config
from ftwax.records import loggers
from ftwax.reporting import history
from ftwax.runtime import distributed, evaluation, runs
from ftwax.runtime.distributed import (
  actor_loop,
  environments,
  learner_node,
  processes,
  program,
  results_format,
)
from ftwax.runtime.local import game_loop


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
      2, burn_in_games=0, win_probability_threshold=0.5001
    ),
    'steps_per_round': 6,
    'max_num_actor_steps': 403,
    **options,
  }
  return population_helpers.make_experiment(**options)


@pytest.mark.slow
@pytest.mark.usefixtures('helpers_by_value')
def test_a_run_of_processes_leaves_its_records(tmp_path):
  result = distributed.run_experiment(
    _make_experiment(),
    eval_every=200,
    num_eval_episodes=8,
    run_dir=tmp_path / 'run',
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
  evaluation = loggers.read_jsonl(
    loggers.log_path(result.run_dir, 'evaluation')
  )
  assert len(evaluation) == 2
  assert len(evaluation[-1]['member_returns']) == 2
  resumed = distributed.run_experiment(
    _make_experiment(max_num_actor_steps=600),
    run_dir=tmp_path / 'run',
    resume=True,
    settings=distributed.Settings(num_actors=1),
  )
  assert resumed.counts.actor_steps == 600
  assert history.read(resumed.run_dir).games[-1] > games


@pytest.mark.slow
@pytest.mark.usefixtures('helpers_by_value')
def test_members_act_by_a_server_and_learn_on_two_devices(tmp_path):
  result = distributed.run_experiment(
    _make_experiment(
      num_environments=4,
      population=population_config.PopulationConfig(4, burn_in_games=0),
    ),
    run_dir=tmp_path / 'run',
    settings=distributed.Settings(inference_server=True, num_devices=2),
  )
  assert result.counts.actor_steps == 403
  assert result.counts.learner_steps >= 2
  assert (result.run_dir / 'output' / 'inference.txt').exists()
  assert len(history.read(result.run_dir).ratings[-1]) == 4


class _Killer(threading.Thread):
  """Kills a learner that has exchanged members, and ends the run after that.

  Attributes:
    num_rows: that the other learner logged until the killed one was back.
  """

  def __init__(self, directory):
    super().__init__()
    self._directory = directory
    self.num_rows = 0
    self.error = None

  def run(self):
    try:
      self._wait(
        lambda: any(
          map(exchanging_population.crosses_learners, self._read_copies())
        )
      )
      (process,) = self._processes()
      num_before = len(self._read_log())
      process.kill()
      self._wait(
        lambda: 1 in [row['learner'] for row in self._after(num_before)]
      )
      rows = [row['learner'] for row in self._after(num_before)]
      self.num_rows = rows.index(1)
      num_copies = len(self._read_copies())
      self._wait(lambda: len(self._read_copies()) > num_copies)
    except Exception as error:
      self.error = error
    os.kill(os.getpid(), signal.SIGTERM)

  def _wait(self, is_so):
    deadline = time.monotonic() + 120.0
    while not is_so():
      if time.monotonic() > deadline:
        raise TimeoutError
      time.sleep(0.1)

  def _processes(self):
    return [
      child
      for child in psutil.Process().children()
      if os.readlink(f'/proc/{child.pid}/fd/1').endswith('learner-1.txt')
    ]

  def _after(self, num_before):
    return self._read_log()[num_before:]

  def _read_log(self):
    path = loggers.log_path(self._directory, 'learner')
    return loggers.read_jsonl(path) if path.exists() else []

  def _read_copies(self):
    return exchanging_population.read_copies(self._directory)


@pytest.mark.slow
@pytest.mark.usefixtures('helpers_by_value')
def test_members_of_two_learners_evolve_and_survive_the_loss_of_one(tmp_path):
  killer = _Killer(tmp_path / 'run')
  killer.start()
  with pytest.raises(KeyboardInterrupt):
    distributed.run_experiment(
      exchanging_population.build(),
      run_dir=tmp_path / 'run',
      settings=distributed.Settings(num_learners=2),
    )
  killer.join()
  assert killer.error is None
  assert killer.num_rows >= 2
  # What they saved is one checkpoint, which a local run goes on from.
  metadata = exchanging_population.check_lineage(tmp_path / 'run')
  steps = metadata['counts']['actor_steps']
  result = runs.run_experiment(
    exchanging_population.build().replace(max_num_actor_steps=steps + 40),
    run_dir=tmp_path / 'run',
    resume=True,
  )
  assert result.counts.actor_steps >= steps + 40


def test_games_that_cannot_be_shared_out_are_refused():
  experiment = _make_experiment(
    num_environments=1,
    population=population_config.PopulationConfig(8),
  )
  with pytest.raises(ValueError, match=r'num_environments \(1 games of 4'):
    program.prepare(experiment, None, distributed.Settings())


def test_there_is_a_replay_server_for_each_member(tmp_path):
  prepared = program.prepare(
    _make_experiment(replay_port=None), None, distributed.Settings()
  )
  assert prepared.game_spec.environment.observations.shape == (2,)
  made = program.make_distributed_experiment(prepared, run_dir=tmp_path)
  assert {label: len(group) for label, group in made.groups.items()} == {
    'counter': 1, 'replay': 1, 'learner': 1, 'actor': 2,
  }  # fmt: skip
  assert len(made.groups['replay'][0].addresses) == 2


def _make_results(num_results):
  return [
    evaluation.GameResult(
      place,
      np.array([0, 1, 0, 1], np.int32),
      np.array([1.0, -1.0], np.float32),
      np.ones((4, 3), np.float32),
      length=7,
    )
    for place in range(num_results)
  ]


def test_results_are_packed_into_arrays():
  results = _make_results(3)
  for made, result in zip(
    results_format.unpack(results_format.pack(results)), results, strict=True
  ):
    jax.tree.map(np.testing.assert_array_equal, made, result)
  assert results_format.unpack(results_format.pack([])) == []


class _Records:
  """Records results in the place of a coordinator."""

  def __init__(self):
    self.places = []

  def record(self, results):
    self.places += [result.place for result in results]


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


def test_results_are_recorded_once(tmp_path, monkeypatch):
  monkeypatch.setattr(actor_loop, '_REPORT_STEPS', 1)
  settings = distributed.Settings()
  experiment = _make_experiment()
  node = learner_node.Learner(experiment, str(tmp_path), settings, [], None)
  loop = actor_loop.ActorLoop(
    experiment,
    0,
    settings,
    processes.Remote(None, 'counter'),
    processes.Remote(_LosesReplies(node), 'learner'),
    experiment.make_seating(),
    threading.Event(),
  )
  results = _make_results(6)

  def report(some, ends_round=False):
    loop._report_results(game_loop.Tick(8, some, 0 if ends_round else 1))

  report(results[:1])  # No learner is there yet.
  records = node._coordinator = _Records()
  for index in range(1, 6):
    report(results[index : index + 1], index == 3)
  assert node._is_round_over
  node._is_round_over = False
  for _ in range(4):
    report([])
  assert records.places == list(range(6))
  assert not node._is_round_over


def test_the_last_steps_are_of_whole_games():
  experiment = _make_experiment()
  guarded = environments.make_environment(
    experiment, experiment.make_seating(), (0,), 'test'
  )
  assert guarded.num_environments == 8
  guarded.arena.seat(np.tile([0, 1], (2, 2)))
  guarded.reset()
  guarded.step(np.zeros(8, np.int32))
  guarded.limit = 5  # Of four players each: one game.
  with pytest.raises(environments.BudgetMet):
    guarded.step(np.zeros(8, np.int32))
  steps = guarded.arena.state.players.num_steps
  np.testing.assert_array_equal(steps[:, 0], [2, 1])
