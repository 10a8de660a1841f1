"""Counts, logs and checkpoints of a run, for all runtimes."""

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

from ftwax import compilation, types
from ftwax.environments import curricula, environment_faults, episode_metrics
from ftwax.networks import cores
from ftwax.population import state as state_lib
from ftwax.records import (
  array_files,
  checkpoints,
  files,
  loggers,
  progress,
  recent_episodes,
  run_directory,
)
from ftwax.reporting import health
from ftwax.runtime import prepare

# Seconds between two updates of the progress bar.
_DISPLAY_PERIOD_S = 0.25

# Seconds between two rows of the learner's log.
_LEARNER_LOG_PERIOD_S = 1.0

# Minimum seconds between two copies of the state, and the maximum fraction of
# time spent on copying.
_COPY_PERIOD_S = 5.0
_COPY_SHARE = 0.02

# Seconds that a save in progress has to end before the process exits.
_LAST_SAVE_S = 60.0


class Counts(NamedTuple):
  """Progress of a run, saved in its checkpoints.

  Attributes:
    actor_steps: number of actions in all training environments.
    episodes: number of training episodes that have ended.
    learner_steps: number of updates of each member.
    seconds: duration of training, including earlier sessions.
  """

  actor_steps: int = 0
  episodes: int = 0
  learner_steps: int = 0
  seconds: float = 0.0


class RunState(NamedTuple):
  """Contents of a checkpoint of the local and distributed runtimes.

  Attributes:
    population: the population.
    position: where a local run continues; see `local.run.Position`. None if
      its games restart.
    replay: what agents that learn from a replay continue with if their games
      restart; else `()`.
  """

  population: state_lib.PopulationState
  position: Any = None
  replay: Any = ()

  @property
  def training(self) -> types.TrainingState:
    """The members, under the name that checkpoints use for training states."""
    return self.population.members


# Paths of the parts, for `Checkpointer.restore`.
POPULATION, POSITION, REPLAY = 'population', 'position', 'replay'


class RunRecords:
  """The counts of a run and the files in its directory."""

  def __init__(
    self,
    parts: prepare.Prepared,
    directory: pathlib.Path,
    stack: contextlib.ExitStack,
  ):
    """Opens the records; `stack` closes them."""
    self.counts = Counts()
    self.directory = directory
    own = parts.experiment.loggers
    self._make_logger = (
      own
      if callable(own)
      else loggers.make_logger_factory(directory, terminal=False, trackers=own)
    )
    self._parts = parts
    self._experiment = parts.experiment
    self._stack = stack
    # The steps of the run at their ends, and returns.
    self._episodes: deque[tuple[int, float]] = deque(
      maxlen=recent_episodes.MOST
    )
    # Of the last episodes, for the terminal.
    self._measured: deque[Mapping[str, float]] = deque(
      maxlen=recent_episodes.MOST
    )
    self.course = curricula.Course(parts.experiment.curriculum)
    self._expects_ends = not parts.experiment.offline
    self._told: set[tuple[str, int]] = set()
    self.is_whole = False
    self._restored: Counts | None = None
    self._saved_at = time.monotonic()
    self._copy: _Copy | None = None
    self._next_copy_at = 0.0
    self._lock = threading.Lock()  # Guards the checkpointer.
    self.start_clock()
    self._checkpointer: checkpoints.Checkpointer | None = None
    config = parts.experiment.checkpointing
    if config is not None:
      self._checkpointer = checkpoints.Checkpointer(
        directory / 'checkpoints',
        config.max_to_keep,
        must_be_finite=lambda state: state.training.params,
      )
      self._checkpointer.remove_leftovers()
      stack.callback(self._checkpointer.close)

  @property
  def recent_returns(self) -> types.Floats:
    """Returns of the last training episodes, [n]; see `recent_episodes`."""
    if not self._episodes:
      return np.zeros(0)
    steps, returns = np.array(self._episodes, np.float64).T
    recent = recent_episodes.count(steps, np.ones(len(steps)))
    return returns[-recent:]

  @property
  def mean_return(self) -> float:
    """Mean of `recent_returns`; NaN without any."""
    returns = self.recent_returns
    return float(np.mean(returns)) if len(returns) else float('nan')

  def measure(self, measured: Sequence[Mapping[str, float]]) -> None:
    """Keeps the metrics of episodes that ended, for the terminal."""
    self._measured.extend(measured)

  @property
  def headline_metric(self) -> dict[str, float]:
    """The metric that the terminal shows, over the last episodes, if any.

    It is the first one that the experiment names, or else success.
    """
    names = self._experiment.metrics
    means = episode_metrics.average(list(self._measured))
    chosen = names if isinstance(names, tuple) else ()
    for name in (*chosen, *episode_metrics.SUCCESS):
      label = episode_metrics.PREFIX + name
      if label in means:
        return {label: means[label]}
    return {}

  @functools.cached_property
  def evaluation_logger(self) -> loggers.Logger:
    """The logger of evaluations, opened on first use."""
    return self.open_logger('evaluation')

  @property
  def done(self) -> bool:
    """Whether all steps are taken."""
    return self.counts.actor_steps >= self._experiment.max_num_actor_steps

  def open_logger(
    self,
    label: str,
    steps_key: str | None = 'actor_steps',
    *,
    rarely: bool = False,
  ) -> loggers.Logger:
    """Returns the logger of a part of the run.

    Args:
      label: see `loggers.LoggerFactory`.
      steps_key: see `loggers.LoggerFactory`.
      rarely: whether to drop most rows, for those of a learner: writing a row
        blocks until the values of its update are computed.
    """
    logger = self._make_logger(label, steps_key, None)
    if rarely:
      logger = loggers.TimeFilter(logger, _LEARNER_LOG_PERIOD_S)
    self._stack.callback(logger.close)
    return logger

  def start_clock(self) -> None:
    """Restarts the clock, which adds to the seconds of `counts`."""
    self._started_at = time.monotonic()
    self._seconds_before = self.counts.seconds

  def continue_from(
    self, counts: Counts, episodes: Sequence[tuple[int, float]]
  ) -> None:
    """Continues with the counts of a checkpoint."""
    self.counts = counts
    self._episodes.clear()
    self._episodes.extend(episodes)
    self.start_clock()

  @contextlib.contextmanager
  def training(self) -> Iterator[Callable[[], None]]:
    """Runs the clock of `counts` and shows progress.

    A context manager.

    Yields:
      A function that updates the progress bar.
    """
    self.start_clock()
    next_time = 0.0
    label = self._experiment.name
    if self._experiment.offline:
      label = f'{label} (recorded games)'
    with progress.Progress(
      self._experiment.max_num_actor_steps,
      label=label,
      initial_steps=self.counts.actor_steps,
      num_compiled=compilation.num_compiled,
    ) as display:

      def show() -> None:
        nonlocal next_time
        if self.done or self.counts.seconds >= next_time:
          next_time = self.counts.seconds + _DISPLAY_PERIOD_S
          display.update(
            self.counts.actor_steps,
            mean_return=self.mean_return,
            **self.headline_metric,
            learner_steps=self.counts.learner_steps,
          )

      yield show

  def advance(
    self, num_steps: int, returns: Sequence[float], learner_steps: int
  ) -> None:
    """Counts the progress since the last call.

    Args:
      num_steps: number of actions taken.
      returns: returns of the training episodes that ended.
      learner_steps: number of updates of the whole run.
    """
    actor_steps = self.counts.actor_steps + num_steps
    self._episodes.extend((actor_steps, value) for value in returns)
    self.counts = Counts(
      actor_steps=actor_steps,
      episodes=self.counts.episodes + len(returns),
      learner_steps=learner_steps,
      seconds=self._seconds_before + time.monotonic() - self._started_at,
    )
    if self._expects_ends:
      self._watch_ends()

  def _watch_ends(self) -> None:
    """Warns once of games that never end, or are longer than a window."""
    parts, counts = self._parts, self.counts
    if counts.episodes < 1:
      num_rows = int(parts.seating.is_member.sum())
      environment_faults.warn_of_endless(
        parts.experiment.name, counts.actor_steps // num_rows
      )
    elif counts.episodes >= recent_episodes.MOST:
      self._expects_ends = False
      reach = cores.as_part(parts.experiment.agent.core).reach
      length = counts.actor_steps / counts.episodes
      if parts.spec.num_players == 1 and reach is not None and length > reach:
        logging.warning(
          'episodes of %s have %.0f steps on average, and gtrxl sees back'
          ' num_layers * window (%d) steps; raise them if the agent has to'
          ' remember for longer.',
          parts.experiment.name,
          length,
          reach,
        )

  def warn_of_health(self) -> None:
    """Warns of what is wrong with members, of each thing once."""
    try:
      found = health.read(self.directory)
    except (OSError, ValueError):
      return  # Logs may be a user's own.
    for one in found:
      if (one.kind, one.member) not in self._told:
        self._told.add((one.kind, one.member))
        logging.warning('%s: %s', self._experiment.name, one)

  def save_if_due(
    self, snapshot: Callable[[], types.ArrayTree], keep_copies: bool = False
  ) -> None:
    """Starts to save a checkpoint if one is due.

    Args:
      snapshot: returns the state to save.
      keep_copies: whether to copy the state periodically between checkpoints.
        The copy is saved if the state is unavailable because a failed or
        running computation has consumed it.
    """
    config = self._experiment.checkpointing
    checkpointer = self._checkpointer
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

  def save(self, state: types.ArrayTree) -> None:
    """Saves a checkpoint and waits until it is on disk.

    That from which a run was resumed is there already.
    """
    before = self._restored
    is_new = before is None or self.counts[:-1] != before[:-1]
    if self._checkpointer is not None and is_new:
      with self._lock:
        self._start_to_save(self._checkpointer, self._describe(), state)
        self._checkpointer.wait()

  def save_at_error(self, snapshot: Callable[[], types.ArrayTree]) -> None:
    """Saves the state or, if that is impossible, its last copy.

    Errors while saving are only logged, so that they do not hide the original
    error.
    """
    try:
      self.save(snapshot())
    except Exception as error:  # noqa: BLE001 Must not hide the original.
      logging.warning(
        'Could not save the last state: %s', files.first_line(error)
      )
      self.save_copy()

  def save_in_time(
    self, snapshot: Callable[[], types.ArrayTree] | None
  ) -> None:
    """Saves what can be saved now, while the main thread is busy.

    Args:
      snapshot: returns the state; None if only a copy can be saved.
    """
    if snapshot is None:
      self.save_copy()
    elif self._lock.acquire(timeout=_LAST_SAVE_S):  # Else a save is running.
      self._lock.release()
      self.save_at_error(snapshot)

  def save_copy(self) -> None:
    """Saves the last copy unless a newer checkpoint exists; thread-safe."""
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
    except Exception as error:  # noqa: BLE001 Must not hide the original.
      logging.warning(
        'Could not save the last copy: %s', files.first_line(error)
      )
    finally:
      self._lock.release()

  def write_error(self, error: BaseException) -> pathlib.Path:
    """Writes the full traceback of an error; returns the file's path."""
    path = self.directory / run_directory.ERROR_FILE
    text = ''.join(traceback.format_exception(error))
    try:
      files.write_atomically(path, text)
    except OSError as second:
      logging.warning('Could not write %s: %s', path, second)
    return path

  @property
  def can_resume(self) -> bool:
    """Whether there is a checkpoint; a run without one starts from scratch."""
    return self._checkpointer is None or bool(self._checkpointer.steps())

  def restore(
    self, template: array_files.Tree, part: str | None = None
  ) -> array_files.Tree:
    """Restores the newest checkpoint.

    Sets `is_whole` to whether the checkpoint has a position.

    Args:
      template: see `checkpoints.Checkpointer.restore`.
      part: see `checkpoints.Checkpointer.restore`.

    Returns:
      The state that was saved.

    Raises:
      ValueError: if the run keeps no checkpoints.
    """
    if self._checkpointer is None:
      raise ValueError(
        'checkpointing (None) must be set to resume a run; use the'
        ' configuration that the run was started with.'
      )
    state, metadata = self._checkpointer.restore(
      template, _check_metadata, part
    )
    counts, returns = Counts(**metadata['counts']), metadata['returns']
    # Of before the ends were saved: as if all had just ended.
    ends = metadata.get('ends', [counts.actor_steps] * len(returns))
    self.continue_from(counts, list(zip(ends, returns, strict=True)))
    self.course.restore(metadata.get('curriculum', {}))
    self.is_whole = bool(metadata.get('is_whole', False))
    self._restored = counts
    self.drop_later_rows()
    return state

  def drop_later_rows(self) -> None:
    """Drops rows of logs that the resumed run will write again."""
    for path in (self.directory / 'logs').glob('*.jsonl'):
      files.cut_rows(
        path,
        lambda row: (
          row.get('actor_steps', 0) > self.counts.actor_steps
          or row.get('learner_steps', 0) > self.counts.learner_steps
        ),
      )

  def _describe(self) -> dict[str, Any]:
    """Returns the metadata of a checkpoint saved now."""
    return {
      'counts': self.counts._asdict(),
      'ends': [end for end, _ in self._episodes],
      'returns': [value for _, value in self._episodes],
      'curriculum': self.course.save(),
    }

  def _start_to_save(
    self,
    checkpointer: checkpoints.Checkpointer,
    metadata: Mapping[str, Any],
    state: types.ArrayTree,
  ) -> None:
    metadata = {
      **metadata,
      'state': type(state).__name__,
      'is_whole': getattr(state, 'position', None) is not None,
    }
    checkpointer.save(metadata['counts']['actor_steps'], state, metadata)
    self._saved_at = time.monotonic()


class _Copy(NamedTuple):
  """A copy of the state on the host, and its checkpoint's metadata."""

  metadata: Mapping[str, Any]
  state: types.ArrayTree


def describe_saved(directory: pathlib.Path) -> str:
  """Describes what is saved of a run and how to continue it."""
  if not (directory / run_directory.CONFIG_FILE).exists():
    return f'{directory} was removed in the meantime, so nothing is saved.'
  steps = checkpoints.saved_steps(directory / 'checkpoints')
  again = (
    f'add --resume --run_dir={directory} to the command, or in Python'
    f' resume=True, run_dir={str(directory)!r} to ftwax.run'
  )
  if not steps:
    return f'Nothing is saved yet. To start again, {again}'
  return f'Saved at {steps[-1]} steps. To continue, {again}'


def _check_metadata(metadata: Mapping[str, Any]) -> None:
  """Raises a KeyError, TypeError or ValueError if metadata is damaged."""
  counts = Counts(**metadata['counts'])
  for value in (*counts, *metadata.get('ends', ()), *metadata['returns']):
    float(value)
  curricula.Course(()).restore(metadata.get('curriculum', {}))
