"""Runs experiments: the part that all runtimes share.

A runtime makes a `Run`, which trains, evaluates and returns the state to save.
Everything else is here: the choice of the runtime, the run directory,
evaluations, interrupts and reports.
"""

from __future__ import annotations

import contextlib
import importlib
import pathlib
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import jax
import numpy as np

from ftwax import compilation, types
from ftwax.agents.actor_critic import auxiliary, faults
from ftwax.environments import environment_faults
from ftwax.records import checkpoints, game_files, run_directory, trackers
from ftwax.runtime import devices as devices_lib
from ftwax.runtime import (
  evaluation,
  generations,
  initial_state,
  live_page,
  prepare,
  recorded,
  run_records,
  signals,
)
from ftwax.runtime import experiment as experiment_lib

if TYPE_CHECKING:
  from ftwax.runtime.distributed import settings as settings_lib

# Fields of a task that say where its frozen policy is.
_OF_FROZEN = ('run', 'member', 'step')

# Fields that may change when a run is resumed.
_MAY_DIFFER = (
  'max_num_actor_steps',
  'init_from',
  # The same games elsewhere; see `recorded.pin`.
  'demonstrations',
  'replay',
  'expose',
  'stepping.processes',
  'stepping.timeout_s',
  'stepping.on_error',
  'checkpointing.save_every_seconds',
  'checkpointing.max_to_keep',
  'watch',
  'loggers',
  *(f'loggers.{index}' for index in range(len(trackers.TRACKERS))),
)

# Modules of the runtimes, imported on demand.
_RUNTIMES = {
  'local': 'ftwax.runtime.local.run',
  'device': 'ftwax.runtime.device.run',
  'distributed': 'ftwax.runtime.distributed.run',
}
AUTO = 'auto'
RUNTIMES = (AUTO, *_RUNTIMES)

# Unsupported pairs of runtime and replay.
_NO_REPLAYS = (
  ('device', 'reverb'),
  ('device', 'functional'),
  ('distributed', 'functional'),
)


class RunResult(NamedTuple):
  """The result of a run.

  Attributes:
    run_dir: directory of the run.
    counts: progress at the end.
    mean_return: mean over the last training episodes, see
      `records.recent_episodes`; NaN without any.
    state: state of the learner, leaves [N, ...] for N members.
    num_recent: number of episodes in that mean.
  """

  run_dir: pathlib.Path
  counts: run_records.Counts
  mean_return: float
  state: types.TrainingState
  num_recent: int = 0

  def __repr__(self) -> str:
    """Returns a line without the arrays of the state."""
    return (
      f'RunResult({self.counts.actor_steps:,} steps, mean return'
      f' {self.mean_return:.3g}, {str(self.run_dir)!r})'
    )


class Run(Protocol):
  """A run of an experiment; this process counts, logs and saves.

  One that does not evaluate by itself has `evaluate(num_episodes) -> Outcome`:
  plays at least so many episodes with each member.
  """

  # Whether a running computation consumes the state, so that `snapshot` cannot
  # return it in the meantime.
  gives_state_away: bool

  @property
  def training_state(self) -> types.TrainingState:
    """The learner's state, leaves [N, ...]."""

  def train(self) -> Iterator[Any]:
    """Trains to the end; yields wherever it may be interrupted."""

  def snapshot(self) -> Any:
    """Returns the contents of a checkpoint, a pytree."""


class MakeRun(Protocol):
  """Makes a new run, or restores one from `records`."""

  def __call__(
    self,
    parts: prepare.Prepared,
    records: run_records.RunRecords,
    resume: bool,
    stack: contextlib.ExitStack,
  ) -> Run:
    """Makes a run; `stack` closes its parts in reverse order."""


@compilation.usual_settings()
def run_experiment(
  experiment: experiment_lib.ExperimentConfig,
  eval_every: int | str | None = None,
  num_eval_episodes: int = 10,
  *,
  runtime: str = AUTO,
  run_dir: str | pathlib.Path | None = None,
  resume: bool = False,
  devices: Sequence[jax.Device] | None = None,
  settings: settings_lib.Settings | None = None,
) -> RunResult:
  """Trains for `experiment.max_num_actor_steps`; evaluates, logs and saves.

  Args:
    experiment: an agent or a population, and its task.
    eval_every: number of actor steps between evaluations, or of training
      episodes, as in '100 episodes'; None for no evaluation.
    num_eval_episodes: minimum number of episodes of each member in an
      evaluation.
    runtime: `auto` for `device` where environment and options allow it, else
      `local`; `local` for Python or JAX environments and the replay in this
      process; `device` for JAX environments compiled together with the agent;
      `distributed` for many processes.
    run_dir: directory of the run; by default a new one in `runs/<name>`.
    resume: whether to continue from the newest checkpoint in `run_dir`, by
      default that of the newest run of this name.
    devices: devices that share the work: members, or rows of batches and
      environments. Defaults to the first JAX device.
    settings: processes, limits and periods of a distributed run.

  Returns:
    The result of the run.

  Raises:
    KeyboardInterrupt: on a signal that ends a run, after saving a checkpoint;
      see `signals.deferred_interrupts`.
    ImportError: if `experiment.watch` is set and the extra `web` is not
      installed.
    RunDirectoryError: if the directory is in use or belongs to another config.
    ValueError: if there is no such runtime, it cannot run the experiment, or it
      takes no settings.
  """
  _check_runtime(runtime, experiment)
  period = evaluation.make_period(eval_every)
  types.check_type('num_eval_episodes', num_eval_episodes, int)
  if num_eval_episodes < 1:
    raise ValueError(
      f'num_eval_episodes ({num_eval_episodes}) must be at least 1; choose 10.'
    )
  if experiment.held_out and period is None:
    raise ValueError(
      f'eval_every ({eval_every}) must be set with held_out'
      f' ({", ".join(experiment.held_out)}), whom only evaluations meet; choose'
      f' {max(experiment.max_num_actor_steps // 10, 1)}.'
    )
  if experiment.offline and period and period.unit != 'steps':
    raise ValueError(
      f'eval_every ({eval_every}) must count steps offline, where no episodes'
      ' are trained in; choose a number.'
    )
  if not resume:
    initial_state.check(experiment.init_from)
  if experiment.watch:
    live_page.check()
  if runtime == 'distributed':
    module = importlib.import_module(_RUNTIMES[runtime])
    return module.run_experiment(
      experiment,
      eval_every,
      num_eval_episodes,
      run_dir=run_dir,
      resume=resume,
      devices=devices,
      settings=settings,
    )
  if settings is not None:
    raise ValueError(
      f'settings ({settings}) must be None with runtime={runtime!r}; leave them'
      " out, or choose runtime='distributed'."
    )
  devices_lib.keep_compiled_functions()
  # Errors of parts and devices come before a run directory is made.
  directory = (
    open_run_directory(experiment, run_dir, resume) if resume else None
  )
  parts = prepare.prepare(experiment)
  recorded.check(parts)
  if experiment.offline:
    make_run = _prepare_offline(runtime, parts, devices)
  elif runtime == AUTO:
    make_run = _choose(experiment, parts, devices, directory)
  else:
    make_run = _prepare_run(runtime, parts, devices)
  lines = f'{prepare.describe_replay(parts)}{prepare.describe_inputs(parts)}'
  print(lines, flush=True)
  directory = directory or open_run_directory(experiment, run_dir, resume)
  recorded.pin(parts, directory, resume)
  return execute(make_run, parts, directory, resume, period, num_eval_episodes)


def _check_runtime(
  runtime: str, experiment: experiment_lib.ExperimentConfig
) -> None:
  """Raises a ValueError if there is no such runtime, or not for this."""
  if runtime not in RUNTIMES:
    raise ValueError(
      f'runtime ({runtime!r}) must be one of {RUNTIMES}; choose one.'
    )
  if (runtime, experiment.replay) in _NO_REPLAYS:
    raise ValueError(
      f'replay ({experiment.replay!r}) must be None with runtime={runtime!r},'
      " which has its own replay; leave it out, or choose runtime='local'."
    )
  if runtime == 'distributed' and experiment.offline:
    raise ValueError(
      "offline (True) must be False with runtime='distributed', which is for"
      " games; choose runtime='device' or 'local'."
    )
  if runtime == 'device' and experiment.stepping.processes:
    raise ValueError(
      f'stepping.processes ({experiment.stepping.processes}) must be 0 for'
      " runtime='device', which compiles environments with the agent;"
      " leave it out, or choose runtime='local'."
    )


def _choose(
  experiment: experiment_lib.ExperimentConfig,
  parts: prepare.Prepared,
  devices: Sequence[jax.Device] | None,
  directory: pathlib.Path | None,
) -> MakeRun:
  """Prepares the device runtime where it fits, else the local one; says why.

  A directory is that of a run that is resumed.
  """
  reason = ''
  if parts.game is None or parts.evaluation_game is None:
    reason = 'the environment is in Python'
  elif experiment.replay:
    reason = 'replay is set'
  elif experiment.stepping.processes:
    reason = 'stepping.processes is set'
  if directory is not None and not reason:
    saved = checkpoints.newest_metadata(directory / 'checkpoints')
    if saved.get('state') == run_records.RunState.__name__:
      reason = 'the run that is resumed was not compiled'
  if any(one.sees_steps for one in experiment.observers):
    reason = reason or 'an observer sees single steps'
  if not reason:
    try:
      make_run = _prepare_run('device', parts, devices)
      print('Runtime: device, compiled with the environment.', flush=True)
      return make_run
    except ValueError as error:
      reason = str(error)
  print(f'Runtime: local, since {reason.removesuffix(".")}.', flush=True)
  return _prepare_run('local', parts, devices)


def _prepare_offline(
  runtime: str, parts: prepare.Prepared, devices: Sequence[jax.Device] | None
) -> MakeRun:
  """Prepares a run without training environments; says what it does."""
  # On demand, as runtimes are.
  offline = importlib.import_module('ftwax.runtime.offline')
  is_compiled = runtime == 'device'
  if runtime == AUTO:
    is_compiled = parts.evaluation_game is not None
  make_run: MakeRun = offline.prepare_run(parts, devices, is_compiled)
  where = 'compiled' if is_compiled else 'in Python'
  print(
    f'Offline: learns from {parts.experiment.demonstrations} alone, and is'
    f' evaluated in games {where}.',
    flush=True,
  )
  return make_run


def _prepare_run(
  runtime: str, parts: prepare.Prepared, devices: Sequence[jax.Device] | None
) -> MakeRun:
  module = importlib.import_module(_RUNTIMES[runtime])
  return module.prepare_run(parts, devices)


def execute(
  make_run: MakeRun,
  parts: prepare.Prepared,
  directory: pathlib.Path,
  resume: bool,
  period: evaluation.Period | None,
  num_eval_episodes: int,
) -> RunResult:
  """Trains, evaluates, logs and saves in this process; see `run_experiment`."""
  with contextlib.ExitStack() as stack:
    stack.enter_context(run_directory.lock(directory))
    if parts.experiment.watch:
      live_page.start(directory)
    records = run_records.RunRecords(parts, directory, stack)
    game_files.write(directory, parts.spec)

    run: Run | None = None

    def save_in_time() -> None:
      if run is not None:
        records.save_in_time(None if run.gives_state_away else run.snapshot)
      print(f'\nInterrupted. {run_records.describe_saved(directory)}')

    answer = stack.enter_context(signals.answered_in_time(save_in_time))
    check_interrupts = stack.enter_context(signals.deferred_interrupts())
    try:
      if resume and not records.can_resume:
        records.drop_later_rows()
      run = make_run(parts, records, resume and records.can_resume, stack)
      _train(
        run,
        parts.experiment.observers,
        records,
        period,
        num_eval_episodes,
        check_interrupts,
      )
      records.save(run.snapshot())
    except BaseException as caught:
      # Saving may outlast the grace period of a signal.
      answer()
      error = _after_signal(caught, check_interrupts)
      if run is not None:
        records.save_at_error(run.snapshot)
      what = 'Interrupted.'
      if not isinstance(error, KeyboardInterrupt):
        what = f'Stopped by an error; see {records.write_error(error)}.'
      print(what, run_records.describe_saved(directory), flush=True)
      if error is caught:
        raise
      raise error from caught
  generations.write_report(directory)
  skipped = int(np.max(run.training_state.skipped))
  if told := faults.describe_skipped(skipped, records.counts.learner_steps):
    print(told, flush=True)
  return RunResult(
    directory,
    records.counts,
    records.mean_return,
    run.training_state,
    len(records.recent_returns),
  )


def _after_signal(
  error: BaseException, check_interrupts: Callable[[], None]
) -> BaseException:
  """Returns the error of a run, or that of a signal that has ended it.

  A signal to all processes of a job may have ended a simulator.
  """
  if isinstance(error, environment_faults.EnvironmentFault):
    try:
      check_interrupts()
    except KeyboardInterrupt as interrupt:
      return interrupt
  return error


def _train(
  run: Any,
  observers: Sequence[experiment_lib.Observer],
  records: run_records.RunRecords,
  period: evaluation.Period | None,
  num_eval_episodes: int,
  check_interrupts: Callable[[], None],
) -> None:
  """Trains and evaluates, to the end or until an observer ends the run."""
  check_interrupts()
  due = period.next_due(records.counts) if period else 0
  for _ in run.train():
    if period and period.count(records.counts) >= due:
      outcome = run.evaluate(num_eval_episodes)
      due = period.next_due(records.counts)
      if report_evaluation(
        outcome, records.counts, observers, records, run.snapshot
      ):
        break
    # Only now, since a resumed run does not make up for a missed evaluation.
    check_interrupts()


def report_evaluation(
  outcome: evaluation.Outcome,
  counts: run_records.Counts,
  observers: Sequence[experiment_lib.Observer],
  records: run_records.RunRecords,
  snapshot: Callable[[], Any],
) -> bool:
  """Logs and prints an evaluation; returns whether an observer ends the run.

  Args:
    outcome: the games of the evaluation.
    counts: progress of the run when it was evaluated.
    observers: see the row.
    records: records of the run.
    snapshot: returns the contents of a checkpoint of the present moment.
  """
  row = {**evaluation.make_row(outcome), **counts._asdict()}
  records.evaluation_logger.write(row)
  records.course.see_evaluation(row)
  print(evaluation.describe(row, counts.actor_steps), flush=True)
  records.warn_of_health()
  view = experiment_lib.RunView(
    records.directory, records.counts._asdict(), snapshot
  )
  # All of them see the row, even if one ends the run.
  ends = [one.observe_evaluation(row, view) for one in observers]
  return any(ends)


def open_run_directory(
  experiment: experiment_lib.ExperimentConfig,
  run_dir: str | pathlib.Path | None,
  resume: bool,
) -> pathlib.Path:
  """Creates the directory of a run, or opens that of a run to resume.

  Args:
    experiment: the experiment to run.
    run_dir: directory of the run; by default one in `runs/<name>`.
    resume: whether to open an existing one, by default the newest of this name.

  Raises:
    RunDirectoryError: if there is none to resume or it belongs to another
      config.
  """
  if not resume:
    if run_dir is None:
      return run_directory.create(
        'runs', experiment.name, experiment.seed, experiment
      )
    return run_directory.create_at(run_dir, experiment)
  if run_dir is None:
    run_dir = run_directory.newest('runs', experiment.name)
  if run_dir is None:
    raise run_directory.RunDirectoryError(
      f'runs/{experiment.name} must contain a run to resume, and contains none;'
      ' give its directory, or start a new run.'
    )
  # The same frozen policies elsewhere; see `recorded.pin`.
  of_frozen = [
    f'agent.tasks.{index}.{name}'
    for index, task in enumerate(experiment.agent.all_tasks)
    if task.source == auxiliary.FROZEN
    for name in _OF_FROZEN
  ]
  return run_directory.open_existing(
    run_dir, experiment, may_differ=(*_MAY_DIFFER, *of_frozen)
  )
