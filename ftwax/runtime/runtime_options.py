"""Options of the runtimes, set by the flags of `launch`."""

import math
import os
import pathlib
from collections.abc import Sequence
from typing import Any

from absl import flags

from ftwax.replay import replay_options
from ftwax.runtime import experiment as experiment_lib
from ftwax.runtime import runs
from ftwax.runtime.device import freed_memory

FLAGS = flags.FLAGS


def define(runtime: str, num_devices: int) -> None:
  """Defines the flags.

  Args:
    runtime: default of `--runtime`.
    num_devices: default of `--num_devices`.
  """
  flags.DEFINE_enum('runtime', runtime, runs.RUNTIMES, 'Where to run it.')
  flags.DEFINE_integer(
    'num_actors', None, 'Actor processes, with --runtime=distributed.'
  )
  flags.DEFINE_bool(
    'inference_server',
    None,
    'Select all actions in one server process, with --runtime=distributed.',
  )
  flags.DEFINE_integer(
    'num_learners', None, 'Learner processes, with --runtime=distributed.'
  )
  flags.DEFINE_string(
    'cluster',
    None,
    'Ray cluster to run on (auto or ray://HOST:PORT), with'
    ' --runtime=distributed.',
  )
  flags.DEFINE_multi_string(
    'resources', [], 'Ray resources of a node, e.g. learner.GPU=1.'
  )
  flags.DEFINE_integer(
    'num_devices', num_devices, 'Devices, or CPU cores, that share the work.'
  )
  flags.DEFINE_integer(
    'environment_processes',
    experiment_lib.ExperimentConfig.environment_processes,
    'Processes that step environments; 0 for none.',
  )
  flags.DEFINE_enum(
    'replay', None, replay_options.KINDS, 'For --runtime=local.'
  )
  flags.DEFINE_integer(
    'replay_port', None, 'Port of Reverb; by default any free one.'
  )
  flags.DEFINE_bool('expose', False, 'Accept connections from other machines.')


def prepare() -> None:
  """Configures JAX before its first use."""
  if FLAGS.runtime == 'device':
    freed_memory.keep()
    _keep_compiled_functions()
  if FLAGS.num_devices > 1 and FLAGS.runtime != 'distributed':
    _split_cpu(FLAGS.num_devices)


def make(num_members: int) -> dict[str, Any]:
  """Returns the runtime-specific options that are set by flags.

  Args:
    num_members: size of the population, whose members may share devices.
  """
  own: dict[str, Any] = {
    name: FLAGS[name].value
    for name in ('num_actors', 'num_learners', 'inference_server', 'cluster')
    if FLAGS[name].value is not None
  }
  if FLAGS.resources:
    own['resources'] = _read_resources(FLAGS.resources)
  if FLAGS.runtime != 'distributed':
    for name, value in own.items():
      raise ValueError(
        f'--{name} ({value}) needs --runtime=distributed, and the runtime is'
        f' {FLAGS.runtime}; leave it out, or choose --runtime=distributed.'
      )
    return {'devices': _devices(num_members)}
  from ftwax.runtime.distributed import settings  # Slow import.

  if FLAGS['num_devices'].present:
    own['num_devices'] = FLAGS.num_devices
  return {'settings': settings.Settings(**own)}


def _read_resources(texts: Sequence[str]) -> dict[str, dict[str, float]]:
  """Parses the resources of nodes from texts such as 'learner.GPU=1'."""
  resources: dict[str, dict[str, float]] = {}
  for text in texts:
    name, _, value = text.partition('=')
    label, _, resource = name.partition('.')
    try:
      resources.setdefault(label, {})[resource] = float(value)
    except ValueError:
      resource = ''
    if not (label and resource):
      raise ValueError(
        f'resources ({text}) must be LABEL.RESOURCE=NUMBER; choose e.g.'
        ' learner.GPU=1.'
      )
  return resources


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
  """Splits the CPU into this many devices, at most one for each core.

  Does not affect accelerators, and keeps a number set in the user's XLA_FLAGS.
  """
  import jax

  if 'xla_force_host_platform_device_count' in os.environ.get('XLA_FLAGS', ''):
    return
  num_cores = os.cpu_count() or 1
  jax.config.update('jax_num_cpu_devices', min(num_devices, num_cores))


def _keep_compiled_functions() -> None:
  """Enables JAX's compilation cache in the user's cache directory.

  This speeds up later starts. `JAX_COMPILATION_CACHE_DIR` selects another
  directory, and `JAX_ENABLE_COMPILATION_CACHE=false` disables the cache.
  """
  if 'JAX_COMPILATION_CACHE_DIR' in os.environ:
    return
  import jax

  cache = os.environ.get('XDG_CACHE_HOME') or pathlib.Path.home() / '.cache'
  path = pathlib.Path(cache) / 'ftwax' / 'jax'
  jax.config.update('jax_compilation_cache_dir', str(path))
