"""The learner node: updates, evolves, serves variables and saves checkpoints.

It holds all members, rates them, seats them in games and evolves them between
updates, so a single checkpoint holds everything.
"""

import contextlib
import functools
import pathlib
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax

from ftwax import types
from ftwax.records import checkpoints, log_values, loggers
from ftwax.runtime import experiment as experiment_lib
from ftwax.runtime import game_files, generations, prepare, run_records
from ftwax.runtime.distributed import (
  node_learner,
  patient_iterator,
  peers,
  processes,
  results_format,
  shares,
)
from ftwax.runtime.distributed import settings as settings_lib

# Seconds between two reports to the counter.
_REPORT_S = 0.5
_LOG_PERIOD_S = 1.0


class Learner:
  """Learns until all steps are taken; actors and evaluators call it."""

  def __init__(
    self,
    experiment: experiment_lib.ExperimentConfig,
    directory: str,
    settings: settings_lib.Settings,
    replay_addresses: Sequence[str],
    counter_client: Any,
    index: int = 0,
    coordinator_address: Sequence[str] = (),
  ):
    """Stores the arguments; `run` makes the learner.

    Args:
      experiment: an agent or a population, and its task.
      directory: directory of the run; continues from its newest checkpoint.
      settings: settings of the run.
      replay_addresses: addresses of the learner's replay servers, one for each
        of its members.
      counter_client: client of the counter.
      index: index of the learner.
      coordinator_address: address at which this learner, as the first of
        several that update as one, coordinates them; empty for a single
        learner.
    """
    self._name = shares.node_names('learner', settings.num_learners)[index]
    self._index = index
    self._experiment = experiment
    self._directory = pathlib.Path(directory)
    self._settings = settings
    self._replay_addresses = replay_addresses
    self._coordinator_address = coordinator_address
    self._counter = processes.Remote(counter_client, 'counter')
    self._learner: Any = None  # A NodeLearner, set by `run`.
    self._coordinator: Any = None
    self._checkpointer: checkpoints.Checkpointer | None = None
    self._save_lock = threading.Lock()
    self._lock = threading.Lock()  # Guards the coordinator.
    self._is_round_over = False
    self._replies = processes.Replies()
    self._rows: list[tuple[str, dict[str, Any]]] = []
    # Number and rows of a report, kept until it is acknowledged.
    self._reported_rows: tuple[Any, ...] = ()
    self._loggers: list[loggers.TimeFilter] = []
    self._status: dict[str, Any] = {
      'counts': run_records.Counts()._asdict(),
      'returns': [],
      'done': False,
      'leave': False,
    }
    self._evaluations: list[Sequence[Any]] = []  # Each a row and the counts.
    self._num_observed = 0  # Evaluations shown to observers.
    self._ends = False  # Whether an observer ends the run.
    self._report_time = 0.0
    self._stop = threading.Event()

  def variables(
    self, known_steps: int, written_at: float = 0.0
  ) -> list[types.NumpyArray] | None:
    """Returns variables; None until the learner is made.

    See `NodeLearner.variables`.
    """
    if self._checkpointer is None:
      return None
    return self._learner.variables(known_steps, written_at)

  def draw_seats(self) -> types.NumpyArray | None:
    """Returns the player on each seat of an arena; None if not ready."""
    if self._coordinator is None:
      return None
    with self._lock:
      seats: types.NumpyArray = self._coordinator.draw_seats(
        self._learner.whole_state.internal_rewards
      )
    return seats

  def report_results(
    self,
    number: Sequence[Any],
    results: Sequence[types.NumpyArray],
    ends_round: bool,
  ) -> bool:
    """Records the results of games.

    Args:
      number: number of the call; see `processes.Replies`.
      results: see `results_format.pack`.
      ends_round: whether a round of the arena is over.

    Returns:
      Whether they were recorded; False until the learner is made.
    """
    if self._coordinator is None:
      return False
    self._replies.answer(
      number, functools.partial(self._record, results, ends_round)
    )
    return True

  def run(self) -> None:
    """Learns and saves; ends when no node needs the learner any more."""
    with (
      processes.node(self._name, self._save_last) as self._stop,
      contextlib.ExitStack() as stack,
    ):
      if self._coordinator_address:
        peers.join(self._coordinator_address, 0, self._settings)
      self._checkpointer = checkpointer = self._make(stack)
      self._report()
      self._learn(checkpointer)
      self._end_round()  # Includes the results since the last round.
      for logger in self._loggers:
        logger.close()  # Writes the last row.
      self._report()
      self._save(checkpointer, self._learner.state, waits=True)
      if self._coordinator_address:
        peers.leave()
      while not (self._stop.is_set() or self._status['leave']):
        self._stop.wait(_REPORT_S)
        self._report()
        self._observe_evaluations()
      self._counter.try_call('finish', self._name)

  def _make(self, stack: contextlib.ExitStack) -> checkpoints.Checkpointer:
    """Makes the learner and restores the newest checkpoint, if any."""
    from ftwax.runtime.local import coordinator as coordinator_lib

    experiment = self._experiment
    made = prepare.prepare(experiment)
    game_files.write(self._directory, made.spec)
    key, population_key = jax.random.split(jax.random.PRNGKey(experiment.seed))
    self._learner = learner = node_learner.NodeLearner(
      experiment,
      self._settings,
      key,
      self._replay_addresses,
      self._make_logger,
      self._stop,
      self._on_idle,
    )
    stack.callback(learner.close)
    config = experiment.checkpointing or checkpoints.CheckpointingConfig()
    checkpointer = stack.enter_context(
      checkpoints.Checkpointer(
        self._directory / 'checkpoints',
        config.max_to_keep,
        must_be_finite=lambda state: state.training.params,
      )
    )
    self._evolution = generations.Evolution(made, self._directory)
    population = generations.make_population(
      made, learner.state, population_key
    )
    if checkpointer.steps():
      population, metadata = checkpointer.restore(
        population, run_records.check_metadata, run_records.POPULATION
      )
      learner.restore(population.members)
      self._evolution.resume(population)
      self._status.update(metadata)
    else:
      population = self._evolution.begin(population)
      learner.restore(population.members)
    self._coordinator = coordinator_lib.Coordinator(population, made)
    return checkpointer

  def _learn(self, checkpointer: checkpoints.Checkpointer) -> None:
    config = self._experiment.checkpointing
    saved_at = time.monotonic()
    try:
      while True:
        self._learner.step()
        self._evolve_if_due()
        now = time.monotonic()
        if now - self._report_time >= _REPORT_S:
          self._report()
          self._observe_evaluations()
        if config and now - saved_at >= config.save_every_seconds:
          self._save(checkpointer, self._learner.state)
          saved_at = now
    except patient_iterator.Ended:
      pass
    except Exception:
      # Do not lose what was learned.
      self._save(checkpointer, self._learner.whole_state, waits=True)
      raise

  def _on_idle(self) -> bool:
    """Reports; returns whether all steps had been taken before this report."""
    # The status before this report: the last trajectories may arrive later than
    # the news that all steps are taken, so wait once more after it.
    done: bool = self._status['done']
    self._report()
    return done

  def _record(
    self, results: Sequence[types.NumpyArray], ends_round: bool
  ) -> None:
    with self._lock:
      self._coordinator.record(results_format.unpack(results))
      self._is_round_over |= ends_round

  def _evolve_if_due(self) -> None:
    """Evolves if a round is over; called between two updates."""
    if self._is_round_over:
      self._end_round()

  def _end_round(self) -> None:
    """Logs a round and evolves the members; called between two updates."""
    with self._lock:
      self._is_round_over = False
      rows = self._coordinator.end_round(
        self._evolution,
        self._learner,
        run_records.Counts(**self._status['counts']),
      )
    for row in rows:
      self._rows.append((generations.LABEL, log_values.to_plain(row)))

  def _report(self) -> None:
    """Reports progress to the counter, if it is reachable."""
    if not self._reported_rows:
      self._reported_rows = self._counter.make_number(), list(self._rows)
      # Cleared in place, since loggers hold its `append`.
      self._rows.clear()
    base = {name: self._status[name] for name in ('counts', 'returns')}
    status = self._counter.try_call(
      'report_learner',
      self._learner.num_steps,
      base,
      *self._reported_rows,
      self._index,
      len(self._evaluations),
      self._ends,
    )
    self._report_time = time.monotonic()
    if status is not None:
      self._evaluations.extend(status.pop('evaluations'))
      self._status = status
      self._reported_rows = ()

  def _observe_evaluations(self) -> None:
    """Passes new evaluations to the observers, on the first learner only."""
    if self._index > 0:
      return
    for row, counts in self._evaluations[self._num_observed :]:
      view = experiment_lib.RunView(
        self._directory, counts, self._snapshot_whole
      )
      self._ends |= self._experiment.observe_evaluation(row, view)
      self._num_observed += 1

  def _snapshot_whole(self) -> Any:
    """Returns the contents of a checkpoint of the run."""
    return self._snapshot(self._learner.state)

  def _save(
    self,
    checkpointer: checkpoints.Checkpointer,
    state: types.TrainingState,
    waits: bool = False,
  ) -> None:
    counts = {
      **self._status['counts'],
      'learner_steps': self._learner.num_steps,
    }
    with self._save_lock:
      run_records.save(
        checkpointer, self._snapshot(state), counts, self._status['returns']
      )
      if waits:
        checkpointer.wait()

  def _snapshot(self, state: types.TrainingState) -> Any:
    """Returns the contents of a checkpoint."""
    with self._lock:
      population = self._coordinator.population(state)
    return run_records.RunState(population)

  def _save_last(self) -> None:
    """Saves while `run` is stuck in a call that does not return."""
    if self._checkpointer is not None and self._learner.num_steps:
      self._save(self._checkpointer, self._learner.whole_state, waits=True)

  def _make_logger(
    self, label: str, steps_key: str | None = None, instance: int | None = None
  ) -> loggers.Logger:
    del steps_key, instance
    logger = loggers.TimeFilter(_Rows(label, self._rows.append), _LOG_PERIOD_S)
    self._loggers.append(logger)
    return logger


class _Rows:
  """Logger that keeps rows until they are reported."""

  def __init__(self, label: str, append: Callable[[Any], None]):
    self._label = label
    self._append = append

  def write(self, values: log_values.LoggingData) -> None:
    """Keeps a row of plain numbers."""
    self._append((self._label, log_values.to_plain(values)))

  def close(self) -> None:
    """Does nothing."""
