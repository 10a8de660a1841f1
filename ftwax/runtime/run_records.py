"""Counts, logs and checkpoints of a run, the same in every runtime."""

import contextlib
import functools
import pathlib
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from absl import logging

from ftwax import types
from ftwax.population import state as state_lib
from ftwax.records import checkpoints, files, loggers, progress
from ftwax.runtime import experiment as experiment_lib

# Episodes that the mean return in the progress bar and the result is over.
WINDOW = 100

# Seconds between two updates of the progress bar.
_DISPLAY_PERIOD_S = 0.25

# Seconds between two rows in the log of the learner.
_LEARNER_LOG_PERIOD_S = 1.0

# Seconds between two copies of the state, more where a copy would take more
# than so large a part of the time.
_COPY_PERIOD_S = 5.0
_COPY_SHARE = 0.02

# Seconds that a save under way has to end before the process does.
_LAST_SAVE_S = 60.0

ERROR_FILE = 'error.txt'


class Counts(NamedTuple):
  """Progress of a run, which its checkpoints hold.

  Attributes:
    actor_steps: actions in all training environments together.
    episodes: training episodes that ended.
    learner_steps: updates of each member.
    seconds: of training, earlier sessions included.
  """

  actor_steps: int = 0
  episodes: int = 0
  learner_steps: int = 0
  seconds: float = 0.0


class RunState(NamedTuple):
  """What a checkpoint of a run in Python holds, whatever its runtime.

  Attributes:
    population: the population.
    position: where a local run continues; see `host.position`. None where it
      starts its games anew.
  """

  population: state_lib.PopulationState
  position: Any = None

  @property
  def training(self) -> types.TrainingState:
    """The members, by the name that checkpoints have for what learns."""
    return self.population.members


# Where the parts are, as `Checkpointer.restore` takes it.
POPULATION, POSITION = '.population', '.position'


class RunRecords:
  """The counts of a run, and all that it writes into its directory."""

  def __init__(
    self,
    experiment: experiment_lib.ExperimentConfig,
    directory: pathlib.Path,
    stack: contextlib.ExitStack,
  ):
    """Opens the records; `stack` closes them."""
    self.counts = Counts()
    self.directory = directory
    self._make_logger = experiment.logger_factory or (
      loggers.make_logger_factory(
        directory, terminal=False, trackers=experiment.trackers
      )
    )
    self._experiment = experiment
    self._stack = stack
    self._returns: deque[float] = deque(maxlen=WINDOW)
    self._marked: tuple[Counts, list[float]] | None = None
    self.is_whole = False
    self._saved_at = time.monotonic()
    self._copy: _Copy | None = None
    self._next_copy_at = 0.0
    self._lock = threading.Lock()  # Of the checkpointer.
    self.start_clock()
    self._checkpointer: checkpoints.Checkpointer | None = None
    config = experiment.checkpointing
    if config is not None:
      self._checkpointer = checkpoints.Checkpointer(
        directory / 'checkpoints',
        config.max_to_keep,
        must_be_finite=lambda state: state.training.params,
      )
      stack.callback(self._checkpointer.close)

  @property
  def mean_return(self) -> float:
    """Mean return of the last training episodes."""
    return float(np.mean(self._returns)) if self._returns else float('nan')

  @functools.cached_property
  def evaluation_logger(self) -> loggers.Logger:
    """The logger of evaluations, opened when there is a first one."""
    return self.open_logger('evaluation')

  @property
  def done(self) -> bool:
    """Whether all steps are taken."""
    return self.counts.actor_steps >= self._experiment.max_num_actor_steps

  def open_logger(self, label: str) -> loggers.Logger:
    """Returns the logger of a part of the run."""
    logger = self._make_logger(label, 'actor_steps', None)
    self._stack.callback(logger.close)
    return logger

  def open_learner_logger(
    self,
    label: str = 'learner',
    steps_key: str | None = 'learner_steps',
    instance: int | None = None,
  ) -> loggers.Logger:
    """Returns a logger that is seldom written to.

    The values of an update are waited for when they are written.
    """
    logger = loggers.TimeFilter(
      self._make_logger(label, steps_key, instance), _LEARNER_LOG_PERIOD_S
    )
    self._stack.callback(logger.close)
    return logger

  @property
  def returns(self) -> list[float]:
    """Returns of the last training episodes."""
    return list(self._returns)

  def start_clock(self) -> None:
    """Adds the seconds from now on to those of `counts`."""
    self._started_at = time.monotonic()
    self._seconds_before = self.counts.seconds

  def continue_from(self, counts: Counts, returns: Sequence[float]) -> None:
    """Continues counting where a checkpoint was."""
    self.counts = counts
    self._returns.clear()
    self._returns.extend(returns)
    self.start_clock()

  @contextlib.contextmanager
  def training(self) -> Iterator[Callable[[], None]]:
    """Runs the clock of `counts` and shows progress.

    A context manager.

    Yields:
      A function that shows how far the run is.
    """
    self.start_clock()
    next_time = 0.0
    with progress.Progress(
      self._experiment.max_num_actor_steps,
      label=self._experiment.name,
      initial_steps=self.counts.actor_steps,
    ) as display:

      def show() -> None:
        nonlocal next_time
        if self.done or self.counts.seconds >= next_time:
          next_time = self.counts.seconds + _DISPLAY_PERIOD_S
          display.update(
            self.counts.actor_steps,
            mean_return=self.mean_return,
            learner_steps=self.counts.learner_steps,
          )

      yield show

  def advance(
    self, num_steps: int, returns: Sequence[float], learner_steps: int
  ) -> None:
    """Counts what was done since the last call.

    Args:
      num_steps: actions taken.
      returns: of the training episodes that ended.
      learner_steps: updates of the whole run.
    """
    self._returns.extend(returns)
    self.counts = Counts(
      actor_steps=self.counts.actor_steps + num_steps,
      episodes=self.counts.episodes + len(returns),
      learner_steps=learner_steps,
      seconds=self._seconds_before + time.monotonic() - self._started_at,
    )

  def mark(self) -> None:
    """Lets checkpoints be of this moment, until there is another call.

    Without one they are of the moment in which they are saved.
    """
    self._marked = self.counts, self.returns

  def save_if_due(
    self, snapshot: Callable[[], Any], keep_copies: bool = False
  ) -> None:
    """Starts to save a checkpoint if the last one is old enough.

    Args:
      snapshot: returns what to save.
      keep_copies: between checkpoints keeps a copy now and then, which is saved
        where the state itself cannot be: a computation that fails or is not
        over has taken it.
    """
    config, checkpointer = self._experiment.checkpointing, self._checkpointer
    if config is None or checkpointer is None:
      return
    now = time.monotonic()
    if now - self._saved_at >= config.save_every_seconds:
      with self._lock:
        self._start_to_save(checkpointer, self._describe(), snapshot())
    elif keep_copies and now >= self._next_copy_at:
      state = jax.tree.map(np.array, jax.device_get(snapshot()))
      self._copy = _Copy(self._describe(), state)
      end = time.monotonic()
      seconds = max(_COPY_PERIOD_S, (end - now) / _COPY_SHARE)
      self._next_copy_at = end + seconds

  def save(self, state: Any) -> None:
    """Saves a checkpoint and waits until it is on the disk."""
    if self._checkpointer is not None:
      with self._lock:
        self._start_to_save(self._checkpointer, self._describe(), state)
        self._checkpointer.wait()

  def save_at_error(self, snapshot: Callable[[], Any]) -> None:
    """Saves the state or, if that cannot be, the last copy of it.

    What keeps both from being saved is logged: something else came first.
    """
    try:
      self.save(snapshot())
    except Exception as error:  # noqa: BLE001 It must not hide the first one.
      logging.warning('The last state is not saved: %s', _first_line(error))
      self.save_copy()

  def save_in_time(self, snapshot: Callable[[], Any] | None) -> None:
    """Saves what can be saved now, while the main thread is busy elsewhere.

    Args:
      snapshot: returns the state; None where only a copy can be saved.
    """
    if snapshot is None:
      self.save_copy()
    elif self._lock.acquire(timeout=_LAST_SAVE_S):  # Else it is being saved.
      self._lock.release()
      self.save_at_error(snapshot)

  def save_copy(self) -> None:
    """Saves the last copy, if there is no newer checkpoint; any thread may."""
    if not self._lock.acquire(timeout=_LAST_SAVE_S):
      return
    try:
      copy, checkpointer = self._copy, self._checkpointer
      if copy is None or checkpointer is None:
        return
      saved = checkpointer.steps()
      if not saved or saved[-1] < copy.metadata['counts']['actor_steps']:
        self._start_to_save(checkpointer, copy.metadata, copy.state)
        checkpointer.wait()
    except Exception as error:  # noqa: BLE001 Likewise.
      logging.warning('The last copy is not saved: %s', _first_line(error))
    finally:
      self._lock.release()

  def write_error(self, error: BaseException) -> pathlib.Path:
    """Writes the whole traceback of an error; returns the file's path."""
    path = self.directory / ERROR_FILE
    text = ''.join(traceback.format_exception(error))
    try:
      files.write_atomically(path, text)
    except OSError as second:
      logging.warning('%s is not written: %s', path, second)
    return path

  @property
  def can_resume(self) -> bool:
    """Whether there is a checkpoint; a run without one starts again."""
    return self._checkpointer is None or bool(self._checkpointer.steps())

  def restore(self, template: Any, part: str | None = None) -> Any:
    """Goes on from the newest checkpoint.

    After it `is_whole` tells whether that is of a moment that was marked.

    Args:
      template: see `checkpoints.Checkpointer.restore`.
      part: likewise.

    Returns:
      What the snapshot was.

    Raises:
      ValueError: the run keeps no checkpoints.
    """
    if self._checkpointer is None:
      raise ValueError(
        'checkpointing (None) must be set to resume a run; use the'
        ' configuration that the run was started with.'
      )
    state, metadata = self._checkpointer.restore(template, check_metadata, part)
    self.continue_from(Counts(**metadata['counts']), metadata['returns'])
    self.is_whole = bool(metadata.get('is_whole', False))
    return state

  def _describe(self) -> dict[str, Any]:
    """Returns the metadata of a checkpoint of this moment."""
    counts, returns = self._marked or (self.counts, self.returns)
    return {
      'counts': counts._asdict(),
      'returns': returns,
      'is_whole': self._marked is not None,
    }

  def _start_to_save(
    self,
    checkpointer: checkpoints.Checkpointer,
    metadata: Mapping[str, Any],
    state: Any,
  ) -> None:
    checkpointer.save(metadata['counts']['actor_steps'], state, metadata)
    self._saved_at = time.monotonic()


def save(
  checkpointer: checkpoints.Checkpointer,
  state: Any,
  counts: Mapping[str, Any],
  returns: Sequence[float],
) -> None:
  """Starts to save a checkpoint of a run whose counts another process has.

  Args:
    checkpointer: saves.
    state: what a checkpoint holds.
    counts: see `Counts`; a little less than they were if that process has been
      restarted.
    returns: of the last training episodes.
  """
  step = max([counts['actor_steps'], *checkpointer.steps()])
  metadata = {'counts': dict(counts), 'returns': list(returns)}
  checkpointer.save(step, state, metadata)


class _Copy(NamedTuple):
  """A state on the host, and the metadata of its checkpoint."""

  metadata: Mapping[str, Any]
  state: Any


def describe_saved(directory: pathlib.Path) -> str:
  """Returns what of a run is saved, and how to go on from there."""
  steps = checkpoints.saved_steps(directory / 'checkpoints')
  again = f'run the same command with --resume --run_dir={directory}'
  if not steps:
    return f'Nothing is saved yet. To start again, {again}'
  return f'Saved at {steps[-1]} steps. To go on, {again}'


def _first_line(error: Exception) -> str:
  return f'{type(error).__name__}: {error}'.partition('\n')[0]


def check_metadata(metadata: Mapping[str, Any]) -> None:
  """Raises a KeyError, TypeError or ValueError if counts are damaged."""
  counts = Counts(**metadata['counts'])
  for value in (*counts, *metadata['returns']):
    float(value)
