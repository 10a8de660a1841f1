"""What every runtime does around acting and learning.

A runtime makes a `Run`: it trains, evaluates and says what is to be saved. The
rest stands here once: the run's directory, counts, logs, checkpoints, progress,
interrupts, and the choice of the runtime.
"""

import contextlib
import importlib
import pathlib
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np

from ftwax import types
from ftwax.records import checkpoints, loggers, progress, run_directory
from ftwax.runtime import experiment as experiment_lib
from ftwax.runtime import signals

# Episodes that the mean return in the progress bar and the result is over.
WINDOW = 100

# What a run that is resumed may be told anew, since it changes no result.
_MAY_DIFFER = (
  'max_num_actor_steps',
  'replay_port',
  'checkpointing.save_every_seconds',
  'checkpointing.max_to_keep',
)

# Seconds between two updates of the progress bar.
_DISPLAY_PERIOD_S = 0.25

# Seconds between two rows in the log of the learner.
_LEARNER_LOG_PERIOD_S = 1.0

# Modules with a `run_experiment`, imported only when they are asked for: the
# local one loads TensorFlow.
_RUNTIMES = {
  'local': 'ftwax.runtime.host.local',
  'device': 'ftwax.runtime.device.run',
}
RUNTIMES = tuple(_RUNTIMES)


class Counts(NamedTuple):
  """How far a run is; part of its checkpoints.

  Attributes:
    actor_steps: actions in all training environments together.
    episodes: training episodes that ended.
    learner_steps: updates.
    seconds: of training, earlier sessions included.
  """

  actor_steps: int = 0
  episodes: int = 0
  learner_steps: int = 0
  seconds: float = 0.0


class RunResult(NamedTuple):
  """What a run came to.

  Attributes:
    run_dir: the run's directory.
    counts: how far it went.
    mean_return: over the last 100 training episodes; NaN before the first.
    state: the learner's.
  """

  run_dir: pathlib.Path
  counts: Counts
  mean_return: float
  state: types.TrainingState


class Run(Protocol):
  """What a runtime makes of an experiment."""

  @property
  def training_state(self) -> types.TrainingState:
    """The learner's state."""

  def train(self) -> Iterator[Any]:
    """Trains to the end; yields wherever it may be interrupted."""

  def evaluate(self, num_episodes: int) -> None:
    """Runs and logs at least `num_episodes` episodes of the newest policy."""

  def snapshot(self) -> Any:
    """Returns the pytree that a checkpoint holds."""


class MakeRun(Protocol):
  """Makes a run, restored by `records` if there is something to restore."""

  def __call__(
    self,
    experiment: experiment_lib.ExperimentConfig,
    records: 'Records',
    resume: bool,
    stack: contextlib.ExitStack,
  ) -> Run:
    """Makes a run; `stack` closes its parts, the last one first."""


def run_experiment(
  experiment: experiment_lib.ExperimentConfig,
  eval_every: int | None = None,
  num_eval_episodes: int = 10,
  *,
  runtime: str = 'local',
  run_dir: str | pathlib.Path | None = None,
  resume: bool = False,
  devices: Sequence[jax.Device] | None = None,
) -> RunResult:
  """Trains for `experiment.max_num_actor_steps`; evaluates, logs and saves.

  Args:
    experiment: what to run.
    eval_every: actor steps between evaluations; None for none.
    num_eval_episodes: episodes of an evaluation, at the least.
    runtime: 'local' for environments in Python and a Reverb server, 'device'
      for environments in JAX, compiled together with the agent.
    run_dir: directory of the run; by default a new one in `runs/<name>`.
    resume: goes on from the newest checkpoint in `run_dir`, by default that
      of the newest run of this name.
    devices: over which the work is spread; see the runtime's own. JAX's first
      one by default.

  Returns:
    What the run came to.

  Raises:
    KeyboardInterrupt: on Ctrl-C or SIGTERM, after a checkpoint is saved.
    RunDirectoryError: the directory is in use, or of another config.
    ValueError: there is no such runtime, or it cannot run the experiment.
  """
  if runtime not in _RUNTIMES:
    raise ValueError(
      f'runtime ({runtime!r}) must be one of {RUNTIMES}; choose one.'
    )
  module = importlib.import_module(_RUNTIMES[runtime])
  return module.run_experiment(
    experiment,
    eval_every,
    num_eval_episodes,
    run_dir=run_dir,
    resume=resume,
    devices=devices,
  )


def execute(
  make_run: MakeRun,
  experiment: experiment_lib.ExperimentConfig,
  eval_every: int | None,
  num_eval_episodes: int,
  run_dir: str | pathlib.Path | None,
  resume: bool,
) -> RunResult:
  """Does what `run_experiment` tells, with the run that a runtime makes."""
  directory = open_run_directory(experiment, run_dir, resume)
  with contextlib.ExitStack() as stack:
    stack.enter_context(run_directory.lock(directory))
    records = Records(experiment, directory, stack)
    run = make_run(experiment, records, resume, stack)
    with signals.deferred_interrupts() as check_interrupts:
      try:
        next_evaluation = records.counts.actor_steps + (eval_every or 0)
        for _ in run.train():
          check_interrupts()
          if eval_every and records.counts.actor_steps >= next_evaluation:
            run.evaluate(num_eval_episodes)
            next_evaluation += eval_every
      except KeyboardInterrupt:
        records.save(run.snapshot())
        print(
          f'Interrupted and saved at {records.counts.actor_steps} steps. To go'
          f' on, run the same command with --resume --run_dir={directory}'
        )
        raise
      except Exception:
        records.save(run.snapshot())  # A broken environment costs no training.
        raise
    records.save(run.snapshot())
  from ftwax.reporting import curves  # Matplotlib: not before --help.

  if curves.can_plot(directory):
    curves.plot_curves(directory)
  return RunResult(
    directory, records.counts, records.mean_return, run.training_state
  )


class Records:
  """How far a run is, and all that it writes into its directory."""

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
    self._started_at = self._saved_at = time.monotonic()
    self._seconds_before = 0.0
    self._checkpointer: checkpoints.Checkpointer | None = None
    config = experiment.checkpointing
    if config is not None:
      self._checkpointer = checkpoints.Checkpointer(
        directory / 'checkpoints',
        config.max_to_keep,
        must_be_finite=lambda state: training_state(state).params,
      )
      stack.callback(self._checkpointer.close)

  @property
  def mean_return(self) -> float:
    """Mean return of the last training episodes."""
    return float(np.mean(self._returns)) if self._returns else float('nan')

  @property
  def done(self) -> bool:
    """Whether all steps are taken."""
    return self.counts.actor_steps >= self._experiment.max_num_actor_steps

  def open_logger(self, label: str) -> Any:
    """Returns the logger of a part of the run."""
    logger = self._make_logger(label, 'actor_steps', None)
    self._stack.callback(logger.close)
    return logger

  def open_learner_logger(
    self,
    label: str = 'learner',
    steps_key: str | None = 'learner_steps',
    instance: int | None = None,
  ) -> Any:
    """Returns a logger that is seldom written to.

    The values of an update are waited for when they are written.
    """
    logger = loggers.TimeFilter(
      self._make_logger(label, steps_key, instance), _LEARNER_LOG_PERIOD_S
    )
    self._stack.callback(logger.close)
    return logger

  @contextlib.contextmanager
  def training(self) -> Iterator[Callable[[], None]]:
    """Runs the clock of `counts` and shows progress.

    A context manager.

    Yields:
      A function that shows how far the run is.
    """
    self._started_at = time.monotonic()
    self._seconds_before = self.counts.seconds
    next_time = 0.0
    with progress.Progress(
      self._experiment.max_num_actor_steps,
      label=self._experiment.name,
      initial_steps=self.counts.actor_steps,
    ) as display:

      def show():
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

  def evaluation_row(
    self,
    returns: np.ndarray | Sequence[float],
    lengths: np.ndarray | Sequence[int],
  ) -> dict[str, Any]:
    """Returns what the log of evaluations gets of an evaluation's episodes."""
    return {
      'episode_return': np.mean(returns),
      'episode_return_std': np.std(returns),
      'episode_length': np.mean(lengths),
      'num_episodes': len(returns),
      **self.counts._asdict(),
    }

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

  def restore(self, template: Any) -> Any:
    """Goes on from the newest checkpoint.

    Args:
      template: see `checkpoints.Checkpointer.restore`.

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
    state, metadata = self._checkpointer.restore(template)
    self.counts = Counts(**metadata['counts'])
    self._returns.extend(metadata['returns'])
    return state

  def _start_to_save(self, checkpointer, state):
    checkpointer.save(
      self.counts.actor_steps,
      state,
      {'counts': self.counts._asdict(), 'returns': list(self._returns)},
    )
    self._saved_at = time.monotonic()


def training_state(snapshot: Any) -> types.TrainingState:
  """Returns the learner's part of a snapshot, which may be all of it."""
  return getattr(snapshot, 'training', snapshot)


def open_run_directory(
  experiment: experiment_lib.ExperimentConfig,
  run_dir: str | pathlib.Path | None,
  resume: bool,
) -> pathlib.Path:
  """Makes the directory of a run, or opens that of one to be resumed.

  Args:
    experiment: what is run.
    run_dir: directory of the run; by default one in `runs/<name>`.
    resume: opens an existing one, by default the newest of this name.

  Raises:
    RunDirectoryError: there is none to resume, or it is of another config.
  """
  if not resume:
    if run_dir is None:
      return run_directory.create(
        'runs', experiment.name, experiment.seed, experiment
      )
    return run_directory.create_at(run_dir, experiment)
  run_dir = run_dir or run_directory.newest('runs', experiment.name)
  if run_dir is None:
    raise run_directory.RunDirectoryError(
      f'runs/{experiment.name} must hold a run to resume, and holds none; give'
      ' its directory, or start a new run.'
    )
  return run_directory.open_existing(
    run_dir, experiment, may_differ=_MAY_DIFFER
  )
