"""The learner's node: updates, offers variables, saves checkpoints."""

import contextlib
import functools
import pathlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import numpy as np

from ftwax import types
from ftwax.records import checkpoints, log_values, loggers
from ftwax.runtime import experiment as experiment_lib
from ftwax.runtime import sharding
from ftwax.runtime.distributed import actor_loop, counter, processes
from ftwax.runtime.distributed import settings as settings_lib
from ftwax.runtime.host import experiment_environments

# Seconds between two reports to the counter, and the time to notice that the
# run is to end while no batch comes.
_REPORT_S = 0.5
POLL_S = 0.5
_LOG_PERIOD_S = 1.0

# Seconds without a batch after which it is plain that none is on its way, and
# those that an actor waits for the learner at the most.
_IDLE_S = 0.05
_MAX_WAIT_S = 5.0


class _Ended(Exception):  # noqa: N818 It is no error.
  """No batch will come."""


class Learner:
  """Learns until all steps are taken; `variables` is called by courier."""

  def __init__(
    self,
    experiment: experiment_lib.ExperimentConfig,
    directory: str,
    settings: settings_lib.Settings,
    replay_addresses: Sequence[str],
    counter_client: Any,
  ):
    """Prepares a learner, which `run` makes.

    Args:
      experiment: what runs.
      directory: of the run; the newest checkpoint in it is gone on from.
      settings: of the run.
      replay_addresses: of the replay servers, one but for a population.
      counter_client: of the counter.
    """
    self._experiment = experiment
    self._directory = pathlib.Path(directory)
    self._settings = settings
    self._replay_addresses = replay_addresses
    self._counter = processes.Remote(counter_client, 'counter')
    self._learner: Any = None
    self._batches: PatientIterator | None = None
    self._offered: tuple[int, list[np.ndarray]] | None = None
    self._rows: list[tuple[str, dict[str, Any]]] = []
    # A ticket and rows that were reported, until it is sure that they came.
    self._told_rows: tuple[Any, ...] = ()
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
  ) -> list[np.ndarray] | None:
    """Returns the leaves of the actors' variables.

    Args:
      known_steps: learner steps of those that the caller has.
      written_at: when the trajectories were written that are to be learned from
        before; see `PatientIterator.wait_until_learned`.

    Returns:
      The leaves, none if the caller has them; None if there is no learner yet.
    """
    learner = self._learner
    if learner is None or self._batches is None:
      return None
    self._batches.wait_until_learned(written_at)
    state = learner.state
    steps = int(np.max(state.steps))  # Of members, the same.
    if steps == known_steps:
      return []
    if self._offered is None or self._offered[0] != steps:
      leaves = jax.tree.leaves(types.actor_variables(state))
      self._offered = steps, [np.asarray(leaf) for leaf in leaves]
    return self._offered[1]

  def run(self) -> None:
    """Learns, saves, and ends when nobody needs the learner."""
    with (
      processes.node(counter.LEARNER) as self._stop,
      contextlib.ExitStack() as stack,
    ):
      checkpointer = self._make(stack)
      self._report()
      self._learn(checkpointer)
      self._close_loggers()
      self._report()
      self._save(checkpointer)
      checkpointer.wait()
      while not (self._stop.is_set() or self._status['leave']):
        self._stop.wait(POLL_S)
        self._report()
      self._counter.try_call('finish', counter.LEARNER)

  def _make(self, stack) -> checkpoints.Checkpointer:
    """Makes the learner, restored if there is something to restore."""
    learner = self._make_learner(stack)
    config = self._experiment.checkpointing or checkpoints.CheckpointingConfig()
    checkpointer = stack.enter_context(
      checkpoints.Checkpointer(
        self._directory / 'checkpoints',
        config.max_to_keep,
        must_be_finite=lambda state: run_records.training_state(state).params,
      )
    )
    if checkpointer.steps():
      state, metadata = checkpointer.restore(learner.save())
      learner.restore(state)
      self._status.update(metadata)
    self._learner = learner
    return checkpointer

  def _make_learner(self, stack) -> Any:
    """Makes the learner; `stack` closes what it learns from."""
    experiment = self._experiment
    spec = experiment_environments.read_spec(experiment)
    network = experiment.network_factory(spec)
    builder = actor_loop.with_timeout(experiment.builder, POLL_S)
    client = processes.connect_to_replay(
      self._replay_addresses[0], self._settings.replay_start_s
    )
    dataset = builder.make_dataset_iterator(
      client, spec, builder.make_policy(network, spec)
    )
    stack.callback(dataset.close)
    return builder.make_learner(
      jax.random.PRNGKey(experiment.seed),
      network,
      self._take_over(dataset),
      self._make_logger,
      spec,
      functools.partial(sharding.place_learner_core, self._make_mesh()),
    )

  def _take_over(self, dataset) -> 'PatientIterator':
    """Returns the batches of a dataset, from which the learner is to learn."""
    self._batches = PatientIterator(
      dataset, self._settings.stall_timeout_s, self._on_idle
    )
    return self._batches

  def _make_mesh(self):
    wanted, devices = self._settings.num_devices, jax.devices()
    try:
      if wanted > len(devices):
        raise ValueError(
          f'num_devices ({wanted}) must not be more than the learner has,'
          f' {len(devices)} ({devices[0].platform}); choose {len(devices)}.'
        )
      mesh = sharding.make_mesh(devices[:wanted])
      batch_size = self._experiment.builder.config.batch_size
      sharding.check_divides(mesh, batch_size=batch_size)
    except ValueError as error:
      raise processes.FatalError(str(error)) from error
    return mesh

  def _learn(self, checkpointer):
    from ftwax.agents.actor_critic import faults
    from ftwax.replay.reverb import tables

    fatal = (tables.ReplayTimeoutError, faults.NonFiniteGradientError)
    config = self._experiment.checkpointing
    saved_at = time.monotonic()
    try:
      while not self._stop.is_set():
        self._learner.step()
        now = time.monotonic()
        if now - self._report_time >= _REPORT_S:
          self._report()
        if config and now - saved_at >= config.save_every_seconds:
          self._save(checkpointer)
          saved_at = now
    except _Ended:
      pass
    except Exception as error:
      self._save(checkpointer)  # What was learned is not lost.
      checkpointer.wait()
      if isinstance(error, fatal):
        told = f'{type(error).__name__}: {error}'
        raise processes.FatalError(told) from error
      raise

  def _on_idle(self):
    """Called while no batch comes."""
    done = self._status['done']
    self._report()
    if done or self._stop.is_set():
      raise _Ended

  def _report(self):
    """Tells the counter how far learning is, if it can be reached."""
    if not self._told_rows:
      self._told_rows = self._counter.make_ticket(), list(self._rows)
      self._rows.clear()
    base = {name: self._status[name] for name in ('counts', 'returns')}
    status = self._counter.try_call(
      'report_learner', self._learner.num_steps, base, *self._told_rows
    )
    self._report_time = time.monotonic()
    if status is not None:
      self._status = status
      self._told_rows = ()

  def _save(self, checkpointer):
    counts = {
      **self._status['counts'],
      'learner_steps': self._learner.num_steps,
    }
    checkpointer.save(
      counts['actor_steps'],
      self._learner.save(),
      {'counts': counts, 'returns': list(self._status['returns'])},
    )

  def _make_logger(self, label, steps_key=None, instance=None):
    del steps_key, instance
    logger = loggers.TimeFilter(_Rows(label, self._rows.append), _LOG_PERIOD_S)
    self._loggers.append(logger)
    return logger

  def _close_loggers(self):
    for logger in self._loggers:
      logger.close()  # It writes the last row.


class PatientIterator(Iterator[Any]):
  """Waits for a batch in short spells, between which others have their turn.

  It knows how far learning is: who asks for a batch has learned from the last.
  """

  def __init__(
    self,
    dataset: Iterator[Any],
    timeout_s: float,
    on_idle: Callable[[], None],
  ):
    """Wraps a dataset.

    Args:
      dataset: raises ReplayTimeoutError after a spell, and may be asked again.
      timeout_s: after which that error is let through.
      on_idle: called after each spell.
    """
    self._dataset = dataset
    self._timeout_s = timeout_s
    self._on_idle = on_idle
    # When the newest trajectories of the batch given last were written, and of
    # the last one that was learned from.
    self._given = self._learned = 0.0
    self._idle_since: float | None = None
    self._changed = threading.Condition()

  def wait_until_learned(self, written_at: float) -> None:
    """Waits until trajectories have been learned from, or can not be now.

    Which is so while they are too few for a batch.

    Args:
      written_at: when they were written, as they themselves tell.
    """
    start = time.monotonic()
    with self._changed:
      while self._learned < written_at:
        now = time.monotonic()
        idle_s = now - max(start, self._idle_since or now)
        if idle_s >= _IDLE_S or now - start >= _MAX_WAIT_S:
          break
        self._changed.wait(_IDLE_S)

  def __next__(self) -> Any:
    """Returns the next batch."""
    with self._changed:
      self._learned, self._idle_since = self._given, time.monotonic()
      self._changed.notify_all()
    sample = self._wait()
    with self._changed:
      # The newest of a batch, and of members the one that is behind.
      self._given = float(np.min(np.max(sample.written_at, axis=-1)))
      self._idle_since = None
    return sample

  def _wait(self):
    from ftwax.replay.reverb import tables

    start = time.monotonic()
    while True:
      try:
        return next(self._dataset)
      except tables.ReplayTimeoutError as error:
        if time.monotonic() - start > self._timeout_s:
          raise tables.ReplayTimeoutError(
            f'{error} (No batch came for {self._timeout_s:g} s.)'
          ) from error
        self._on_idle()


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
