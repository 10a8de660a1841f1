"""Configures JAX for a run in one process: its devices, memory and cache."""

import math
import os
import pathlib
from collections.abc import Sequence
from typing import Any

import jax

from ftwax.runtime.device import freed_memory


def prepare(runtime: str, num_devices: int) -> None:
  """Configures JAX before its first use.

  Args:
    runtime: name of the runtime.
    num_devices: number of devices that share the work.
  """
  if runtime == 'device':
    freed_memory.keep()
    _keep_compiled_functions()
  if num_devices > 1 and runtime != 'distributed':
    _split_cpu(num_devices)


def choose(
  num_devices: int, is_given: bool, num_members: int
) -> Sequence[Any] | None:
  """Returns the devices that share the work; None for one.

  Of a number that is only a default, as many as exist and share the members
  evenly.
  """
  if num_devices == 1:
    return None
  devices = jax.devices()
  if not is_given:
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
  cache = os.environ.get('XDG_CACHE_HOME') or pathlib.Path.home() / '.cache'
  path = pathlib.Path(cache) / 'ftwax' / 'jax'
  jax.config.update('jax_compilation_cache_dir', str(path))
