"""The command line that all experiments share.

An experiment file calls `define_flags` and `run`, and may define more flags.
"""

import contextlib
import contextvars
import functools
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from absl import app, flags, logging

from ftwax.environments import environment_faults
from ftwax.records import checkpoints, run_directory
from ftwax.runtime import (
  command_flags,
  comparison,
  overrides,
  run_records,
  runs,
  runtime_options,
  signals,
)
from ftwax.runtime import experiment as experiment_lib

FLAGS = flags.FLAGS

# Errors caused by the user's values, data, disk or ports, for which the message
# suffices; any other error is a bug.
EXPECTED = (
  ValueError,
  OSError,
  ArithmeticError,
  ImportError,
  environment_faults.EnvironmentFault,
  run_directory.RunDirectoryError,
  checkpoints.CheckpointError,
)

# Receives experiments instead of running them; see `collected`.
_collect: contextvars.ContextVar[
  Callable[[experiment_lib.ExperimentConfig], None] | None
] = contextvars.ContextVar('collect', default=None)


def define_flags(
  max_num_actor_steps: int | None,
  num_environments: int | None,
  eval_every: int,
  runtime: str = 'local',
  num_devices: int = 1,
) -> None:
  """Defines the flags that all experiments share.

  Args:
    max_num_actor_steps: default of `--max_num_actor_steps`; None to keep the
      value of the experiment.
    num_environments: default of `--num_environments`; None likewise.
    eval_every: default of `--eval_every`.
    runtime: default of `--runtime`.
    num_devices: default of `--num_devices` in one process. Fewer devices are
      used if fewer exist or if they cannot share the members evenly.
  """
  _define_run_flags(max_num_actor_steps, num_environments, eval_every)
  runtime_options.define(runtime, num_devices)
  flags.DEFINE_string('config', None, 'TOML file of fields to change.')
  flags.DEFINE_multi_string(
    'set', [], 'Change a field, e.g. agent.batch_size=32.'
  )
  flags.DEFINE_bool('print_config', False, 'Print all fields as TOML and exit.')


# Flags that are fields of an `ExperimentConfig`.
_FIELDS = (
  'max_num_actor_steps',
  'num_environments',
  'environment_processes',
  'seed',
  'replay',
  'replay_port',
  'expose',
  'init_from',
  'watch',
)

# Flags by title of their group in the help.
_GROUPS: dict[str, tuple[str, ...]] = {
  'run': (
    'max_num_actor_steps',
    'num_environments',
    'seed',
    'eval_every',
    'num_eval_episodes',
    'run_dir',
    'resume',
    'init_from',
    'save_every_seconds',
    'watch',
  ),
  'runtime': (
    'runtime',
    'num_actors',
    'inference_server',
    'num_learners',
    'cluster',
    'resources',
    'num_devices',
    'environment_processes',
    'replay',
    'replay_port',
    'expose',
  ),
  'configuration (docs/cli.md)': ('set', 'config', 'print_config'),
}


def _define_run_flags(
  max_num_actor_steps: int | None,
  num_environments: int | None,
  eval_every: int,
) -> None:
  flags.DEFINE_integer(
    'max_num_actor_steps',
    max_num_actor_steps,
    'Environment steps of the whole run.',
  )
  flags.DEFINE_integer(
    'num_environments',
    num_environments,
    'Environments that each actor steps at a time.',
  )
  flags.DEFINE_integer('seed', 0, 'Random seed of the run.')
  flags.DEFINE_integer(
    'eval_every', eval_every, 'Steps between evaluations; 0 for none.'
  )
  flags.DEFINE_integer('num_eval_episodes', 20, 'Episodes per evaluation.')
  flags.DEFINE_string(
    'run_dir', None, 'Run directory; by default a new one in runs/.'
  )
  flags.DEFINE_bool('resume', False, 'Resume --run_dir, or the newest run.')
  flags.DEFINE_string(
    'init_from', None, 'Run directory to take initial parameters from.'
  )
  flags.DEFINE_float(
    'save_every_seconds',
    checkpoints.CheckpointingConfig.save_every_seconds,
    'Seconds between checkpoints.',
  )
  flags.DEFINE_bool('watch', False, 'Serve a web page that follows the run.')


def experiment_options(seed: int | None = None) -> dict[str, Any]:
  """Returns the fields of an `ExperimentConfig` that are set by flags.

  Args:
    seed: replaces the value of `--seed`, as variants need; None to keep it.
  """
  options = {name: FLAGS[name].value for name in _FIELDS}
  if seed is not None:
    options['seed'] = seed
  checkpointing = checkpoints.CheckpointingConfig(FLAGS.save_every_seconds)
  return {**options, 'checkpointing': checkpointing}


def configure(config: Any) -> Any:
  """Applies the changes of `--config` and `--set` to an agent's config.

  Only needed by experiments that compute something from the config: `run`
  always applies the changes to the result of `build_experiment`.
  """
  return overrides.change_agent_config(config, _changes())


def run(
  build_experiment: Callable[[], experiment_lib.ExperimentConfig],
  finish: Callable[[Any, runs.RunResult], None] | None = None,
  make_variants: Callable[[], comparison.Variants] | None = None,
  module: str = '__main__',
) -> None:
  """Parses the command line, runs the experiment and exits.

  The exit status is 0; 1 after an error, whose message is printed; 2 after an
  invalid flag; or 130 after Ctrl-C, SIGTERM or SIGHUP.

  Args:
    build_experiment: makes the experiment, after flags are parsed.
    finish: called with the experiment and the result of its run.
    make_variants: makes the variants of `--compare`, after flags are parsed;
      without it, there is no such flag.
    module: module of the experiment.
  """
  groups = dict(_GROUPS)
  if make_variants is not None:
    flags.DEFINE_integer(
      'compare',
      0,
      'Run every variant with this many seeds.',
      lower_bound=0,
    )
    groups['run'] = (*groups['run'], 'compare')

  def make_all() -> Iterator[experiment_lib.ExperimentConfig]:
    if make_variants is not None and FLAGS.compare:
      for seed in _seeds():
        for make in _change_variants(make_variants()).values():
          yield make(seed)
    else:
      yield overrides.change(build_experiment(), _changes())

  def execute(_: Any) -> None:
    _set_flags()
    collect = _collect.get()
    if collect is not None or FLAGS.print_config:
      for experiment in make_all():
        (collect or _print)(experiment)
      return
    runtime_options.prepare()
    if make_variants is not None and FLAGS.compare:
      _compare(_change_variants(make_variants()))
      return
    (experiment,) = make_all()
    result = _run(experiment)
    if finish is not None:
      finish(experiment, result)

  main(execute, groups, module)


def run_function(
  build: Callable[[], experiment_lib.ExperimentConfig],
) -> None:
  """Runs the experiment built by a user's function, with the shared flags.

  Flags that are not given keep the values of the function.
  """
  define_flags(None, None, eval_every=0)

  def build_experiment() -> experiment_lib.ExperimentConfig:
    made = build()
    options = experiment_options()
    if not FLAGS['save_every_seconds'].present:
      del options['checkpointing']
    return made.replace(
      **{
        name: value
        for name, value in options.items()
        if name == 'checkpointing' or FLAGS[name].present
      }
    )

  run(build_experiment, module=build.__module__)


def main(
  function: Callable[[Any], None],
  groups: Mapping[str, Sequence[str]] | None = None,
  module: str = '__main__',
  arguments: str = '',
) -> None:
  """Parses the command line, calls a function and exits; see `run`.

  Args:
    function: called with the command and the positional arguments.
    groups: names of flags besides those of the module; see `command_flags`.
    module: module of the experiment.
    arguments: names of required positional arguments, such as 'RUN'.
  """

  def guarded(argv: Sequence[str]) -> None:
    if not FLAGS['verbosity'].present:
      logging.set_verbosity(logging.WARNING)
    with errors_told():
      function(argv)

  description = (sys.modules[module].__doc__ or '').partition('\n')[0]
  parser = command_flags.make_parser(
    description, groups or {}, module, arguments
  )
  app.run(guarded, flags_parser=parser)


@contextlib.contextmanager
def errors_told() -> Iterator[None]:
  """Exits with a single message on errors that the user can fix.

  A context manager.

  Yields:
    Nothing.
  """
  try:
    yield
  except KeyboardInterrupt:
    raise SystemExit(signals.INTERRUPTED) from None
  except EXPECTED as error:
    logging.vlog(1, traceback.format_exc())
    raise SystemExit(
      f'{type(error).__name__}: {error}\n(-v=1 prints the traceback.)'
    ) from None


@contextlib.contextmanager
def collected() -> Iterator[list[experiment_lib.ExperimentConfig]]:
  """Makes `run` collect experiments instead of running them.

  A context manager.

  Yields:
    A list to which `run` appends the experiments that it makes.
  """
  made: list[experiment_lib.ExperimentConfig] = []
  token = _collect.set(made.append)
  try:
    yield made
  finally:
    _collect.reset(token)


def _print(experiment: experiment_lib.ExperimentConfig) -> None:
  print(overrides.describe(experiment))


def _seeds() -> Sequence[int]:
  """Returns the seeds of `--compare`."""
  return range(FLAGS.seed, FLAGS.seed + FLAGS.compare)


def _changes() -> overrides.Changes:
  """Returns the changes of `--config` and `--set` that are not flags."""
  changes = overrides.read(FLAGS.config, list(FLAGS['set'].value or ()))
  return {name: value for name, value in changes.items() if name not in _FIELDS}


def _set_flags() -> None:
  """Sets flags to the values of their fields in `--config` and `--set`.

  Values that an experiment computes from flags thus follow the changes. A flag
  on the command line overrides the file, and `--set` overrides the flag.
  """
  typed = overrides.read(None, list(FLAGS['set'].value or ()))
  for name, value in {**overrides.read(FLAGS.config, ()), **typed}.items():
    if name in _FIELDS and (name in typed or not FLAGS[name].present):
      FLAGS[name].value = overrides.convert_field(name, value)
      FLAGS[name].present += 1


def _change_variants(variants: comparison.Variants) -> comparison.Variants:
  """Returns variants with the changes of `--config` and `--set`."""

  def change(
    make: Callable[[int], experiment_lib.ExperimentConfig], seed: int
  ) -> experiment_lib.ExperimentConfig:
    return overrides.change(make(seed), _changes())

  return {
    name: functools.partial(change, make) for name, make in variants.items()
  }


def _compare(variants: comparison.Variants) -> None:
  for name in ('run_dir', 'resume'):
    if FLAGS[name].value:
      raise ValueError(
        f'--{name} ({FLAGS[name].value}) is for a single run, but'
        f' --compare={FLAGS.compare} starts several; leave one of the two out.'
      )
  # Without the flag nothing is evaluated: the curves are those of training.
  asked = FLAGS['eval_every'].present and FLAGS.eval_every
  comparison.compare(
    variants,
    _seeds(),
    FLAGS.runtime,
    eval_every=asked or None,
    num_eval_episodes=FLAGS.num_eval_episodes,
    **runtime_options.make(1),
  )


def _run(experiment: experiment_lib.ExperimentConfig) -> runs.RunResult:
  result = runs.run_experiment(
    experiment,
    FLAGS.eval_every or None,
    FLAGS.num_eval_episodes,
    runtime=FLAGS.runtime,
    run_dir=FLAGS.run_dir,
    resume=FLAGS.resume,
    **runtime_options.make(experiment.population.num_members),
  )
  counts = result.counts
  steps_per_second = counts.actor_steps / max(counts.seconds, 1e-9)
  print(
    f'{counts.actor_steps:,} steps and {counts.learner_steps:,} updates in'
    f' {counts.seconds:.0f} s ({steps_per_second:,.0f} steps/s): mean return'
    f' {result.mean_return:.3f} over the last {run_records.WINDOW} of'
    f' {counts.episodes:,} episodes. See {result.run_dir}'
  )
  return result
