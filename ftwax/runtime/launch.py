"""The command line that all experiments share.

An experiment file calls `define_flags` and `run`, beside flags of its own.
"""

import math
import os
import pathlib
import traceback
from collections.abc import Callable, Sequence
from typing import Any

from absl import app, flags, logging

from ftwax.records import checkpoints, run_directory
from ftwax.replay import replay_options
from ftwax.runtime import comparison, run_records, runs
from ftwax.runtime import experiment as experiment_lib

FLAGS = flags.FLAGS

# What goes wrong because of the user's values, data, disk or ports. Its
# message says it all; anything else is a fault of the program.
_EXPECTED = (
  ValueError,
  OSError,
  ArithmeticError,
  ImportError,
  run_directory.RunDirectoryError,
  checkpoints.CheckpointError,
)

_EXIT_INTERRUPTED = 130  # 128 + SIGINT, as shells have it.


def define_flags(
  max_num_actor_steps: int,
  num_environments: int,
  eval_every: int,
  runtime: str = 'local',
  num_devices: int = 1,
) -> None:
  """Defines the flags that all experiments have.

  Args:
    max_num_actor_steps: default of `--max_num_actor_steps`.
    num_environments: default of `--num_environments`.
    eval_every: default of `--eval_every`.
    runtime: default of `--runtime`.
    num_devices: default of `--num_devices` in one process; fewer are used where
      there are fewer, or where members cannot be shared out evenly.
  """
  flags.DEFINE_integer(
    'max_num_actor_steps',
    max_num_actor_steps,
    'Actions in all environments together, after which the run ends.',
  )
  flags.DEFINE_integer(
    'num_environments', num_environments, 'Environments acted in at a time.'
  )
  flags.DEFINE_integer(
    'environment_processes',
    experiment_lib.ExperimentConfig.environment_processes,
    'Processes that step the environments of one actor at the same time; 0 for'
    ' that of the actor.',
  )
  flags.DEFINE_integer(
    'eval_every', eval_every, 'Actor steps between evaluations; 0 for none.'
  )
  flags.DEFINE_enum(
    'runtime',
    runtime,
    runs.RUNTIMES,
    'local: one process. device: compiled together with an environment in JAX.'
    ' distributed: many processes (docs/distributed.md).',
  )
  flags.DEFINE_integer(
    'num_actors',
    None,
    'Processes that act, each in --num_environments; of --runtime=distributed.',
  )
  flags.DEFINE_integer(
    'num_devices',
    num_devices,
    'Devices over which the work is spread; on a CPU, cores that each are one.',
  )
  flags.DEFINE_bool(
    'inference_server',
    None,
    'One process applies the network for all actors; of --runtime=distributed.',
  )
  flags.DEFINE_integer('num_eval_episodes', 20, 'Episodes of an evaluation.')
  flags.DEFINE_integer('seed', 0, 'Seed of parameters, actors, environments.')
  flags.DEFINE_enum(
    'replay',
    None,
    replay_options.KINDS,
    'What --runtime=local keeps trajectories in: a Reverb server, or functions'
    ' in this process; by default Reverb where it is installed.',
  )
  flags.DEFINE_integer(
    'replay_port', None, 'Port of the Reverb server; any free one by default.'
  )
  flags.DEFINE_float(
    'save_every_seconds',
    checkpoints.CheckpointingConfig.save_every_seconds,
    'Seconds between checkpoints.',
  )
  flags.DEFINE_string(
    'run_dir', None, 'Directory of the run; by default a new one in runs/.'
  )
  flags.DEFINE_bool('resume', False, 'Go on with --run_dir or the newest run.')


def experiment_options(seed: int | None = None) -> dict[str, Any]:
  """Returns the fields of an `ExperimentConfig` that flags set.

  Args:
    seed: in place of the flag's, as variants need it; None for the flag's.
  """
  names = (
    'max_num_actor_steps',
    'num_environments',
    'environment_processes',
    'seed',
    'replay',
    'replay_port',
  )
  options = {name: FLAGS[name].value for name in names}
  if seed is not None:
    options['seed'] = seed
  checkpointing = checkpoints.CheckpointingConfig(FLAGS.save_every_seconds)
  return {**options, 'checkpointing': checkpointing}


def run(
  build_experiment: Callable[[], experiment_lib.ExperimentConfig],
  finish: Callable[[Any, runs.RunResult], None] | None = None,
  make_variants: Callable[[], comparison.Variants] | None = None,
) -> None:
  """Parses the command line, runs the experiment and exits.

  The exit status is 0, 1 after an error, whose message is printed, or 130
  after Ctrl-C, SIGTERM or SIGHUP.

  Args:
    build_experiment: makes the experiment, once flags are parsed.
    finish: does what is left, given the experiment and what its run came to.
    make_variants: makes what `--compare` compares, once flags are parsed;
      without it there is no such flag.
  """
  if make_variants is not None:
    flags.DEFINE_integer(
      'compare',
      0,
      'Runs each variant with so many seeds and prints a table, in place of one'
      ' run.',
    )

  def main(argv: Sequence[str]) -> None:
    if len(argv) > 1:
      raise app.UsageError(f'unknown arguments {argv[1:]}; all are flags.')
    if not FLAGS['verbosity'].present:
      logging.set_verbosity(logging.WARNING)
    if FLAGS.runtime == 'device':
      _keep_compiled_functions()
    if FLAGS.num_devices > 1 and FLAGS.runtime != 'distributed':
      _split_cpu(FLAGS.num_devices)
    try:
      if make_variants is not None and FLAGS.compare:
        seeds = range(FLAGS.seed, FLAGS.seed + FLAGS.compare)
        comparison.compare(
          make_variants(), seeds, FLAGS.runtime, **_runtime_options(1)
        )
        return
      experiment = build_experiment()
      result = _run(experiment)
      if finish is not None:
        finish(experiment, result)
    except KeyboardInterrupt:
      raise SystemExit(_EXIT_INTERRUPTED) from None
    except _EXPECTED as error:
      logging.vlog(1, traceback.format_exc())
      raise SystemExit(
        f'{type(error).__name__}: {error}\n(-v=1 prints where it was raised.)'
      ) from None

  app.run(main)


def _run(experiment: experiment_lib.ExperimentConfig) -> runs.RunResult:
  result = runs.run_experiment(
    experiment,
    FLAGS.eval_every or None,
    FLAGS.num_eval_episodes,
    runtime=FLAGS.runtime,
    run_dir=FLAGS.run_dir,
    resume=FLAGS.resume,
    **_runtime_options(experiment.population.num_members),
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


def _runtime_options(num_members: int) -> dict[str, Any]:
  """Returns what one runtime alone is given by flags.

  Args:
    num_members: of the population, who may share devices.
  """
  own: dict[str, Any] = {
    name: FLAGS[name].value
    for name in ('num_actors', 'inference_server')
    if FLAGS[name].value is not None
  }
  if FLAGS.runtime != 'distributed':
    for name, value in own.items():
      raise ValueError(
        f'--{name} ({value}) must go with --runtime=distributed, and the'
        f' runtime is {FLAGS.runtime}; leave it out, or choose that runtime.'
      )
    return {'devices': _devices(num_members)}
  from ftwax.runtime.distributed import settings  # Not before --help.

  if FLAGS['num_devices'].present:
    own['num_devices'] = FLAGS.num_devices
  return {'settings': settings.Settings(**own)}


def _devices(num_members: int) -> Sequence[Any] | None:
  """Returns the devices of `--num_devices`; None for one."""
  num_devices = FLAGS.num_devices
  if num_devices == 1:
    return None
  import jax

  devices = jax.devices()
  if not FLAGS['num_devices'].present:
    num_devices = math.gcd(min(num_devices, len(devices)), num_members)
  if not 1 <= num_devices <= len(devices):
    raise ValueError(
      f'num_devices ({num_devices}) must be from 1 to {len(devices)}, the'
      f' devices that JAX sees; choose {len(devices)}.'
    )
  return devices[:num_devices]


def _split_cpu(num_devices: int) -> None:
  """Makes as many devices of the CPU, up to one for each core.

  Accelerators are not concerned, and neither is a number that the user's
  XLA_FLAGS name.
  """
  import jax

  if 'xla_force_host_platform_device_count' in os.environ.get('XLA_FLAGS', ''):
    return
  num_cores = os.cpu_count() or 1
  jax.config.update('jax_num_cpu_devices', min(num_devices, num_cores))


def _keep_compiled_functions() -> None:
  """Keeps compiled functions in the user's cache, unless JAX has another.

  The second start is quicker then. `JAX_COMPILATION_CACHE_DIR` says where
  else, and `JAX_ENABLE_COMPILATION_CACHE=false` not to.
  """
  if 'JAX_COMPILATION_CACHE_DIR' in os.environ:
    return
  import jax

  cache = os.environ.get('XDG_CACHE_HOME') or pathlib.Path.home() / '.cache'
  path = pathlib.Path(cache) / 'ftwax' / 'jax'
  jax.config.update('jax_compilation_cache_dir', str(path))
