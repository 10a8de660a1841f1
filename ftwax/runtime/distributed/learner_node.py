"""The learner's node: updates, evolves, offers variables, saves checkpoints.

It holds all members, rates them, seats them at games and evolves them between
updates, so that one checkpoint holds everything.
"""

import contextlib
import functools
import pathlib
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from ftwax import types
from ftwax.records import checkpoints, game_files, log_values, loggers
from ftwax.runtime import experiment as experiment_lib
from ftwax.runtime import generations, run_records, sharding
from ftwax.runtime.distributed import (
  processes,
  results_format,
  shares,
)
from ftwax.runtime.distributed import settings as settings_lib

# Seconds between two reports to the counter, and the time to notice that the
# run is to end while no batch comes.
_REPORT_S = 0.5
_POLL_S = 0.5
_LOG_PERIOD_S = 1.0


class _Ended(Exception):  # noqa: N818 It is no error.
  """No batch will come."""


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
  ):
    """Prepares a learner, which `run` makes.

    Args:
      experiment: an agent or a population and its task.
      directory: of the run; the newest checkpoint in it is continued.
      settings: of the run.
      replay_addresses: of the learner's replay servers, one for each of its
        members.
      counter_client: of the counter.
      index: of the learner.
    """
    self._name = shares.node_names('learner', settings.num_learners)[index]
    self._experiment = experiment
    self._directory = pathlib.Path(directory)
    self._settings = settings
    self._replay_addresses = replay_addresses
    self._counter = processes.Remote(counter_client, 'counter')
    self._learner: Any = None
    self._coordinator: Any = None
    self._checkpointer: checkpoints.Checkpointer | None = None
    self._save_lock = threading.Lock()
    self._lock = threading.Lock()  # Of the coordinator.
    self._is_round_over = False
    self._batches: Any = None
    self._replies = processes.Replies()
    self._offered: tuple[int, list[types.NumpyArray]] | None = None
    self._rows: list[tuple[str, dict[str, Any]]] = []
    # The number of a report and its rows, until it is sure that they came.
    self._reported_rows: tuple[Any, ...] = ()
    self._loggers: list[loggers.TimeFilter] = []
    self._status: dict[str, Any] = {
      'counts': run_records.Counts()._asdict(),
      'returns': [],
      'done': False,
      'leave': False,
    }
    self._report_time = 0.0
    self._stop = threading.Event()

  def variables(
    self, known_steps: int, written_at: float = 0.0
  ) -> list[types.NumpyArray] | None:
    """Returns the leaves of the actors' variables, [N, ...].

    Args:
      known_steps: learner steps of those that the caller has.
      written_at: when the trajectories were written that are to be learned from
        before; see `PatientIterator.wait_until_learned`.

    Returns:
      The leaves, none if the caller has them; None if there is no learner yet.
    """
    if self._coordinator is None:
      return None
    self._batches.wait_until_learned(written_at)
    state = self._learner.state
    steps = int(np.max(state.steps))  # The same for all members.
    if steps == known_steps:
      return []
    if self._offered is None or self._offered[0] != steps:
      leaves = jax.tree.leaves(types.actor_variables(state))
      self._offered = steps, [np.asarray(leaf) for leaf in leaves]
    return self._offered[1]

  def draw_seats(self) -> types.NumpyArray | None:
    """Returns the player on each seat of an arena; None if not ready yet."""
    if self._coordinator is None:
      return None
    with self._lock:
      seats: types.NumpyArray = self._coordinator.draw_seats(
        self._learner.state.internal_rewards
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
      number: of the report; see `processes.Replies`.
      results: see `results_format.pack`.
      ends_round: whether a round of the arena is over.

    Returns:
      Whether they were recorded; not before there is a learner.
    """
    if self._coordinator is None:
      return False
    self._replies.answer(
      number, functools.partial(self._record, results, ends_round)
    )
    return True

  def run(self) -> None:
    """Learns, saves, and ends when nobody needs the learner."""
    with (
      processes.node(self._name, self._save_last) as self._stop,
      contextlib.ExitStack() as stack,
    ):
      if self._settings.num_learners > 1:
        raise processes.FatalError(
          f'num_learners ({self._settings.num_learners}) must be 1: several'
          ' learners are not built yet.'
        )
      self._checkpointer = checkpointer = self._make(stack)
      self._report()
      self._learn(checkpointer)
      self._end_round()  # The results since the last one.
      for logger in self._loggers:
        logger.close()  # It writes the last row.
      self._report()
      self._save(checkpointer, waits=True)
      while not (self._stop.is_set() or self._status['leave']):
        self._stop.wait(_POLL_S)
        self._report()
      self._counter.try_call('finish', self._name)

  def _make(self, stack: contextlib.ExitStack) -> checkpoints.Checkpointer:
    """Makes the learner, restored if there is something to restore."""
    from ftwax.runtime.host import coordinator as coordinator_lib

    experiment = self._experiment
    spec = experiment.read_game_spec()
    game_files.write(self._directory, spec)
    key, population_key = jax.random.split(jax.random.PRNGKey(experiment.seed))
    self._learner = learner = self._make_learner(stack, key)
    config = experiment.checkpointing or checkpoints.CheckpointingConfig()
    checkpointer = stack.enter_context(
      checkpoints.Checkpointer(
        self._directory / 'checkpoints',
        config.max_to_keep,
        must_be_finite=lambda state: state.training.params,
      )
    )
    self._evolution = generations.Evolution(
      experiment, spec.environment, self._directory
    )
    population = generations.make_population(
      experiment, spec, learner.state, population_key
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
    self._coordinator = coordinator_lib.Coordinator(
      population, experiment, spec
    )
    return checkpointer

  def _make_learner(self, stack: contextlib.ExitStack, key: types.Key) -> Any:
    """Makes the learner of all members; `stack` closes its datasets."""
    from ftwax.runtime.distributed import patient_iterator
    from ftwax.runtime.host import members

    experiment = self._experiment
    spec = experiment.read_game_spec().environment
    network = experiment.network_factory(spec)
    builder = experiment.builder
    builder = builder.replace(
      config=builder.config.replace(replay_timeout_s=_POLL_S)
    )
    policy = builder.make_policy(network, spec)
    mesh = self._make_mesh()
    datasets = [
      builder.make_dataset_iterator(
        processes.connect_to_replay(address, self._settings.replay_start_s),
        spec,
        policy,
      )
      for address in self._replay_addresses
    ]
    for dataset in datasets:
      stack.callback(dataset.close)
    self._batches = patient_iterator.PatientIterator(
      members.Batches(datasets),
      self._settings.stall_timeout_s,
      self._on_idle,
    )
    return members.make_learner(
      builder,
      key,
      network,
      spec,
      experiment.population.num_members,
      self._batches,
      self._make_logger,
      mesh,
    )

  def _make_mesh(self) -> jax.sharding.Mesh:
    from ftwax.runtime.host import members

    wanted, devices = self._settings.num_devices, jax.devices()
    try:
      if wanted > len(devices):
        raise ValueError(
          f'num_devices ({wanted}) must not be more than the learner has,'
          f' {len(devices)} ({devices[0].platform}); choose {len(devices)}.'
        )
      mesh = sharding.make_mesh(devices[:wanted])
      members.check_devices(
        mesh,
        self._experiment.population.num_members,
        self._experiment.builder.config.batch_size,
      )
    except ValueError as error:
      raise processes.FatalError(str(error)) from error
    return mesh

  def _learn(self, checkpointer: checkpoints.Checkpointer) -> None:
    from ftwax.agents.actor_critic import faults
    from ftwax.replay.reverb import tables

    fatal = (tables.ReplayTimeoutError, faults.NonFiniteGradientError)
    config = self._experiment.checkpointing
    saved_at = time.monotonic()
    try:
      while not self._stop.is_set():
        self._learner.step()
        if self._is_round_over:
          self._end_round()
        now = time.monotonic()
        if now - self._report_time >= _REPORT_S:
          self._report()
        if config and now - saved_at >= config.save_every_seconds:
          self._save(checkpointer)
          saved_at = now
    except _Ended:
      pass
    except Exception as error:
      self._save(checkpointer, waits=True)  # What was learned is not lost.
      if isinstance(error, fatal):
        reason = f'{type(error).__name__}: {error}'
        raise processes.FatalError(reason) from error
      raise

  def _on_idle(self) -> None:
    """Called while no batch comes."""
    done = self._status['done']
    self._report()
    if done or self._stop.is_set():
      raise _Ended

  def _record(
    self, results: Sequence[types.NumpyArray], ends_round: bool
  ) -> None:
    with self._lock:
      self._coordinator.record(results_format.unpack(results))
      self._is_round_over |= ends_round

  def _end_round(self) -> None:
    """Logs a round and evolves the members, between two updates."""
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
    """Reports progress to the counter, if it can be reached."""
    if not self._reported_rows:
      self._reported_rows = self._counter.make_number(), list(self._rows)
      self._rows.clear()
    base = {name: self._status[name] for name in ('counts', 'returns')}
    status = self._counter.try_call(
      'report_learner', self._learner.num_steps, base, *self._reported_rows
    )
    self._report_time = time.monotonic()
    if status is not None:
      self._status = status
      self._reported_rows = ()

  def _save(
    self, checkpointer: checkpoints.Checkpointer, waits: bool = False
  ) -> None:
    counts = {
      **self._status['counts'],
      'learner_steps': self._learner.num_steps,
    }
    with self._save_lock:
      with self._lock:
        population = self._coordinator.population(self._learner.save())
      checkpointer.save(
        counts['actor_steps'],
        run_records.RunState(population),
        {'counts': counts, 'returns': list(self._status['returns'])},
      )
      if waits:
        checkpointer.wait()

  def _save_last(self) -> None:
    """Saves while `run` is in a call that does not return."""
    if self._checkpointer is not None and self._learner.num_steps:
      self._save(self._checkpointer, waits=True)

  def _make_logger(
    self, label: str, steps_key: str | None = None, instance: int | None = None
  ) -> loggers.Logger:
    del steps_key, instance
    logger = loggers.TimeFilter(_Rows(label, self._rows.append), _LOG_PERIOD_S)
    self._loggers.append(logger)
    return logger


class _Rows:
  """Keeps rows until they are reported."""

  def __init__(self, label: str, append: Callable[[Any], None]):
    self._label = label
    self._append = append

  def write(self, values: log_values.LoggingData) -> None:
    """Keeps a row of plain numbers."""
    self._append((self._label, log_values.to_plain(values)))

  def close(self) -> None:
    """Does nothing."""
