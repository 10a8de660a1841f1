"""Runs an experiment on many processes, with Ray or with Launchpad."""

import functools
import pathlib
import sys
from collections.abc import Sequence

import jax

from ftwax.runtime import evaluation, prepare, recorded, runs
from ftwax.runtime import experiment as experiment_lib
from ftwax.runtime.distributed import engine as engine_lib
from ftwax.runtime.distributed import runner
from ftwax.runtime.distributed import settings as settings_lib

# Where Ray's newest versions do not install, Launchpad runs the nodes.
LAUNCHPAD_PYTHON = (3, 10)


def run_experiment(
  experiment: experiment_lib.ExperimentConfig,
  eval_every: int | str | None = None,
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
    eval_every: see `runs.run_experiment`.
    num_eval_episodes: minimum number of episodes of each member in an
      evaluation.
    run_dir: directory of the run; by default a new one in `runs/<name>`.
    resume: whether to continue from the newest checkpoint.
    devices: must be None, since the devices belong to the learner's process;
      see `settings.num_devices`.
    settings: numbers of nodes, and limits.

  Returns:
    The result of the run.

  Raises:
    ConnectionError: if the cluster cannot be joined.
    KeyboardInterrupt: on Ctrl-C or SIGTERM, after saving a checkpoint.
    NodeFailedError: if a node raised an error, or died too often.
    RunDirectoryError: if the directory is in use or belongs to another config.
    ValueError: see `prepare.prepare` and `runner.check`.
  """
  if devices is not None:
    raise ValueError(
      f"devices ({list(devices)}) must be None with runtime='distributed';"
      ' choose settings=Settings(num_devices=...).'
    )
  period = evaluation.make_period(eval_every)
  settings = settings or settings_lib.Settings()
  # Errors of parts and settings come before a run directory is made.
  parts = prepare.prepare(experiment)
  runner.check(parts, settings)
  print(prepare.describe_replay(parts, is_local=False), end='', flush=True)
  if sys.version_info[:2] == LAUNCHPAD_PYTHON:
    # Before the directory is made, since the extra acme may not be there.
    from ftwax.runtime.distributed import launchpad_program

    recorded.check_reverb(parts)
    directory = runs.open_run_directory(experiment, run_dir, resume)
    return launchpad_program.run_experiment(
      experiment, parts, directory, eval_every, num_eval_episodes, settings
    )
  directory = runs.open_run_directory(experiment, run_dir, resume)
  recorded.pin(parts, directory, resume)
  start_engine = functools.partial(_start_ray, settings, directory)
  return runner.run_with(
    start_engine,
    parts,
    directory,
    resume,
    period,
    num_eval_episodes,
    settings,
  )


def _start_ray(
  settings: settings_lib.Settings, directory: pathlib.Path
) -> engine_lib.Engine:
  from ftwax.runtime.distributed import ray_engine

  return ray_engine.RayEngine(settings, directory)
