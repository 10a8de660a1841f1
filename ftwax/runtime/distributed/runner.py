"""Runs a distributed experiment to its end and cleans up."""

import contextlib
import functools
import json
import pathlib
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import launchpad as lp
from absl import logging

from ftwax.records import files, loggers, run_directory
from ftwax.runtime import (
  evaluation,
  generations,
  live_page,
  parts,
  prepare,
  run_records,
  runs,
  signals,
)
from ftwax.runtime import experiment as experiment_lib
from ftwax.runtime.distributed import (
  forkserver,
  local_launcher,
  node_commands,
  processes,
  program,
  shares,
  supervision,
  table,
  temporary,
)
from ftwax.runtime.distributed import settings as settings_lib

_POLL_S = 0.2
_STATUS_TIMEOUT_S = 2.0

# Seconds between two tables: on a terminal, and in a file.
_TABLE_PERIODS_S = (1.0, 10.0)

# Seconds until a counter that did not answer, e.g. because it is still
# starting, is called again.
_RETRY_S = 1.0


def run_experiment(
  experiment: experiment_lib.ExperimentConfig,
  eval_every: int | None = None,
  num_eval_episodes: int = 10,
  *,
  run_dir: str | pathlib.Path | None = None,
  resume: bool = False,
  devices: Sequence[jax.Device] | None = None,
  settings: settings_lib.Settings | None = None,
) -> runs.RunResult:
  """Trains in separate processes; see `runs.run_experiment`.

  Args:
    experiment: an agent or a population, and its task.
    eval_every: number of actor steps between evaluations; None for no
      evaluation.
    num_eval_episodes: minimum number of episodes of each member in an
      evaluation.
    run_dir: directory of the run; by default a new one in `runs/<name>`.
    resume: whether to continue from the newest checkpoint.
    devices: must be None, since the devices belong to the learner's process;
      see `settings.num_devices`.
    settings: processes, restart limits, timeouts and periods.

  Returns:
    The result of the run.

  Raises:
    KeyboardInterrupt: on Ctrl-C or SIGTERM, after saving a checkpoint.
    NodeFailedError: if a node failed fatally or died too often.
    RunDirectoryError: if the directory is in use or belongs to another config.
    ValueError: see `program.make_distributed_experiment`.
  """
  if devices is not None:
    raise ValueError(
      f"devices ({list(devices)}) must be None with runtime='distributed';"
      ' choose settings=Settings(num_devices=...).'
    )
  settings = settings or settings_lib.Settings()
  # Checked before there is a directory, so that a mistake leaves none.
  prepared = program.prepare(experiment, eval_every, settings)
  directory = runs.open_run_directory(experiment, run_dir, resume)
  with contextlib.ExitStack() as stack:
    check_interrupts = stack.enter_context(signals.deferred_interrupts())
    stack.enter_context(run_directory.lock(directory))
    if experiment.watch:
      live_page.start(directory)
    parts.collect(prepare.prepare(prepared), directory)
    made = program.make_distributed_experiment(
      prepared,
      eval_every,
      num_eval_episodes,
      run_dir=directory,
      settings=settings,
    )
    with signals.answered_in_time(functools.partial(_tell, directory)):
      # Waits for the imports of nodes, which take a while.
      supervisor, counter_address = _start(
        stack, made, directory, settings, prepared
      )
    display = _Display(experiment, counter_address, supervisor, directory)
    collect = functools.partial(
      parts.collect, prepare.prepare(prepared), directory
    )
    _supervise(supervisor, display, directory, check_interrupts, collect)
    collect()
  generations.write_report(directory)
  result = _read_result(prepared, directory)
  display.show_end(result)
  return result


def _start(
  stack: contextlib.ExitStack,
  made: lp.Program,
  directory: pathlib.Path,
  settings: settings_lib.Settings,
  experiment: experiment_lib.ExperimentConfig,
) -> tuple[supervision.Supervisor, str]:
  """Starts a program's nodes; `stack` stops them and cleans up.

  Returns:
    The supervisor and the counter's address.
  """
  output_dir = directory / 'output'
  output_dir.mkdir(exist_ok=True)
  temporary_dir = stack.enter_context(temporary.directory())
  launcher: local_launcher.Launcher
  if settings.cluster == settings_lib.LOCAL:
    server = forkserver.Forkserver(
      output_dir / 'forkserver.txt',
      node_commands.make_import_environment(temporary_dir),
    )
    launcher = local_launcher.LocalLauncher(stack.enter_context(server))
    commands = node_commands.make_commands(made, temporary_dir)
  else:
    # Ray is an optional dependency and slow to import.
    from ftwax.runtime.cluster import ray_launcher

    cluster = ray_launcher.RayLauncher(settings, experiment.expose, directory)
    launcher = stack.enter_context(cluster)
    commands = node_commands.make_commands(
      made, temporary_dir, cluster.pick_port
    )
    cluster.place(commands.list)
  if experiment.expose:
    ports = sorted(port for made in commands.list for port in made.ports)
    logging.warning(
      'Reverb and Courier listen on ports %s of all interfaces, without'
      ' authentication: anyone who can reach them can run code as you.',
      ', '.join(map(str, ports)),
    )
  supervisor = stack.enter_context(
    supervision.Supervisor(
      commands.list,
      output_dir,
      settings,
      launcher,
      shares.dependents(settings, experiment.population.num_members),
    )
  )
  return supervisor, commands.addresses['counter']


def _supervise(
  supervisor: supervision.Supervisor,
  display: '_Display',
  directory: pathlib.Path,
  check_interrupts: Callable[[], None],
  collect: Callable[[], None],
) -> None:
  """Waits until all nodes have ended; stops them on interrupts and errors.

  Collects the checkpoints of stopped nodes.
  """
  with display:
    try:
      while not supervisor.poll():
        check_interrupts()
        display.release_waiting()
        display.show()
        time.sleep(_POLL_S)
    except KeyboardInterrupt:
      supervisor.stop()
      collect()
      _tell(directory)
      raise
    except Exception:
      supervisor.stop()
      collect()
      print(run_records.describe_saved(directory), flush=True)
      raise


def _tell(directory: pathlib.Path) -> None:
  print('Interrupted.', run_records.describe_saved(directory), flush=True)


def _read_result(
  experiment: experiment_lib.ExperimentConfig, directory: pathlib.Path
) -> runs.RunResult:
  """Returns the result of a run, read from its last checkpoint."""
  population, metadata = parts.restore(
    directory / 'checkpoints',
    parts.make_template(prepare.prepare(experiment)),
    run_records.POPULATION,
  )
  returns: Sequence[float] = metadata['returns']
  mean_return = sum(returns) / len(returns) if returns else float('nan')
  return runs.RunResult(
    directory,
    run_records.Counts(**metadata['counts']),
    mean_return,
    population.members,
  )


class _Display:
  """Shows the status of the run periodically. A context manager."""

  def __init__(
    self,
    experiment: experiment_lib.ExperimentConfig,
    counter_address: str,
    supervisor: supervision.Supervisor,
    directory: pathlib.Path,
  ):
    self._directory = directory
    self._evaluations = loggers.log_path(directory, 'evaluation')
    self._num_evaluations = len(self._read_evaluations())  # Before this start.
    self._max_steps = experiment.max_num_actor_steps
    self._supervisor = supervisor
    self._counter = processes.Remote(
      lp.CourierClient(
        counter_address,
        call_timeout=_STATUS_TIMEOUT_S,
        wait_for_ready=False,
      ),
      'counter',
    )
    self._released: set[str] = set()
    self._live: Any = None
    if sys.stdout.isatty():
      from rich import live  # Only needed on a terminal.

      self._live = live.Live(auto_refresh=False)
    self._period_s = _TABLE_PERIODS_S[0 if self._live else 1]
    self._start_time = time.monotonic()
    self._next_time = 0.0
    self._last: tuple[float, int, int] | None = None

  def __enter__(self) -> '_Display':
    if self._live:
      self._live.start()
    return self

  def __exit__(self, *exception: Any) -> None:
    del exception
    if self._live:
      self._live.stop()

  def release_waiting(self) -> None:
    """Tells the counter to release actors that wait for a host."""
    waiting = {n for n in self._supervisor.waiting if n.startswith('actor/')}
    for name in waiting - self._released:
      index = int(name.partition('/')[2])
      if self._counter.try_call('release_actor', index):
        self._released.add(name)
    self._released &= waiting

  def show(self) -> None:
    """Shows a table if one is due."""
    now = time.monotonic()
    if now < self._next_time:
      return
    status = self._counter.try_call('status')
    if status is None:
      self._next_time = now + _RETRY_S
      return
    self._next_time = now + self._period_s
    counts = status['counts']
    steps, updates = counts['actor_steps'], counts['learner_steps']
    speeds = (0.0, 0.0)
    if self._last is not None:
      seconds = now - self._last[0]
      speeds = (
        (steps - self._last[1]) / seconds,
        (updates - self._last[2]) / seconds,
      )
    self._last = now, steps, updates
    self._show_evaluations()
    nodes = self._supervisor.restarts, self._supervisor.waiting
    with contextlib.suppress(OSError):  # A full disk is reported elsewhere.
      files.write_atomically(
        self._directory / run_directory.NODES_FILE,
        json.dumps(table.describe_nodes(status, *nodes)),
      )
    text = table.format_status(status, self._max_steps, speeds, *nodes)
    if self._live:
      from rich import text as rich_text

      self._live.update(rich_text.Text(text), refresh=True)
    else:
      print(text, flush=True)

  def show_end(self, result: runs.RunResult) -> None:
    """Shows the result of the run, however short it was."""
    self._show_evaluations()
    seconds = time.monotonic() - self._start_time
    print(table.format_end(result, self._max_steps, seconds), flush=True)

  def _show_evaluations(self) -> None:
    """Prints evaluations logged since the last call."""
    rows = self._read_evaluations()[self._num_evaluations :]
    self._num_evaluations += len(rows)
    for row in rows:
      line = evaluation.describe(row, row['actor_steps'])
      if self._live:
        self._live.console.print(line)
      else:
        print(line, flush=True)

  def _read_evaluations(self) -> list[dict[str, Any]]:
    path = self._evaluations
    return loggers.read_jsonl(path) if path.exists() else []
