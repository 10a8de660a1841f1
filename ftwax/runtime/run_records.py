"""Counts, logs and checkpoints of a run, the same in every runtime."""

import contextlib
import functools
import pathlib
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ftwax import types
from ftwax.population import state as state_lib
from ftwax.records import checkpoints, loggers, progress
from ftwax.runtime import experiment as experiment_lib

# Episodes that the mean return in the progress bar and the result is over.
WINDOW = 100

# Seconds between two updates of the progress bar.
_DISPLAY_PERIOD_S = 0.25

# Seconds between two rows in the log of the learner.
_LEARNER_LOG_PERIOD_S = 1.0


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
      loggers.make_logger_factory(directory, terminal=False)
    )
    self._experiment = experiment
    self._stack = stack
    self._returns: deque[float] = deque(maxlen=WINDOW)
    self._marked: tuple[Counts, list[float]] | None = None
    self.is_whole = False
    self._saved_at = time.monotonic()
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

  def save_if_due(self, snapshot: Callable[[], Any]) -> None:
    """Starts to save a checkpoint if the last one is old enough."""
    config = self._experiment.checkpointing
    if config is None or self._checkpointer is None:
      return
    if time.monotonic() - self._saved_at >= config.save_every_seconds:
      self._start_to_save(self._checkpointer, snapshot())

  def save(self, state: Any) -> None:
    """Saves a checkpoint and waits until it is on the disk."""
    if self._checkpointer is not None:
      self._start_to_save(self._checkpointer, state)
      self._checkpointer.wait()

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

  def _start_to_save(
    self, checkpointer: checkpoints.Checkpointer, state: Any
  ) -> None:
    counts, returns = self._marked or (self.counts, self.returns)
    checkpointer.save(
      counts.actor_steps,
      state,
      {
        'counts': counts._asdict(),
        'returns': returns,
        'is_whole': self._marked is not None,
      },
    )
    self._saved_at = time.monotonic()


def check_metadata(metadata: Mapping[str, Any]) -> None:
  """Raises a KeyError, TypeError or ValueError if counts are damaged."""
  counts = Counts(**metadata['counts'])
  for value in (*counts, *metadata['returns']):
    float(value)
