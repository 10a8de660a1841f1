"""Configures JAX for a run in one process: its devices, memory and cache."""

import contextlib
import hashlib
import math
import os
import pathlib
import platform
import stat
from collections.abc import Sequence
from typing import Any

import jax
from absl import logging

from ftwax.runtime.device import freed_memory

# Bytes that the cache of compiled functions may hold, and seconds of compiling
# from which on a function is kept: a start has a hundred small ones, which take
# longer to compile than to read.
_MAX_CACHE_BYTES = 2**30
_MIN_COMPILE_SECONDS = 0.0


def prepare(runtime: str, num_devices: int) -> None:
  """Configures JAX before its first use.

  Args:
    runtime: name of the runtime.
    num_devices: number of devices that share the work.
  """
  if runtime in ('auto', 'device'):
    freed_memory.keep(min(num_devices, os.cpu_count() or 1))
  keep_compiled_functions()
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


def keep_compiled_functions() -> None:
  """Keeps compiled functions in the user's cache directory, for later starts.

  JAX's own settings have precedence: `JAX_COMPILATION_CACHE_DIR` selects
  another directory, and `JAX_ENABLE_COMPILATION_CACHE=false` keeps nothing.
  Programs that this one starts use the same directory. What was used least
  recently is deleted beyond a gigabyte. Where the directory cannot be written,
  or others could write there, nothing is kept: it is machine code.
  """
  config: Any = jax.config
  if (
    config.jax_compilation_cache_dir or not config.jax_enable_compilation_cache
  ):
    return
  cache = os.environ.get('XDG_CACHE_HOME') or '~/.cache'
  path = pathlib.Path(cache).expanduser() / 'ftwax' / 'jax' / _cpu_name()
  try:
    for folder in (path.parents[1], path.parent, path):
      folder.parent.mkdir(parents=True, exist_ok=True)
      with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
      if folder != path and _is_own(folder.lstat()):
        folder.chmod(0o700)  # Of earlier versions.
      _check_own(folder)
    _delete_beyond(path, _MAX_CACHE_BYTES)
  except PermissionError as error:
    logging.warning('Compiled functions are not kept: %s', error)
    return
  except (OSError, RuntimeError):  # No such directory; no home.
    return
  for name, value in {
    'jax_compilation_cache_dir': str(path),
    'jax_persistent_cache_min_compile_time_secs': _MIN_COMPILE_SECONDS,
  }.items():
    if name.upper() not in os.environ:
      os.environ[name.upper()] = str(value)
      config.update(name, value)


def _check_own(folder: pathlib.Path) -> None:
  """Raises a PermissionError if others may write to a folder, or own it."""
  status = folder.lstat()
  is_own = stat.S_ISDIR(status.st_mode) and _is_own(status)
  # Windows has no such bits: a home is its user's.
  is_open = hasattr(os, 'getuid') and status.st_mode & 0o022
  if not is_own or is_open:
    raise PermissionError(
      f'{folder} must be a directory of this user that nobody else can write;'
      f' run chmod go-w {folder}, or set JAX_COMPILATION_CACHE_DIR.'
    )


def _is_own(status: os.stat_result) -> bool:
  return not hasattr(os, 'getuid') or status.st_uid == os.getuid()


def _cpu_name() -> str:
  """Returns a name of the CPU's instructions, which JAX's keys do not hold.

  Machines may share a home directory, and machine code for another CPU may
  crash.
  """
  info = pathlib.Path('/proc/cpuinfo')
  text = info.read_text('utf-8') if info.exists() else platform.processor()
  rows = [row for row in text.splitlines() if row[:5] in ('flags', 'Featu')]
  digest = hashlib.sha256((rows or [text])[0].encode()).hexdigest()
  return f'{platform.machine()}-{digest[:12]}'


def _delete_beyond(path: pathlib.Path, max_bytes: int) -> None:
  """Deletes the files of a directory that were read least recently."""
  read = sorted(
    ((file, file.stat()) for file in path.iterdir() if file.is_file()),
    key=lambda pair: -pair[1].st_atime,
  )
  total = 0
  for file, status in read:
    total += status.st_size
    if total > max_bytes:
      file.unlink(missing_ok=True)


def _split_cpu(num_devices: int) -> None:
  """Splits the CPU into this many devices, at most one for each core.

  Does not affect accelerators, and keeps a number set in the user's XLA_FLAGS.
  """
  if 'xla_force_host_platform_device_count' in os.environ.get('XLA_FLAGS', ''):
    return
  num_cores = os.cpu_count() or 1
  jax.config.update('jax_num_cpu_devices', min(num_devices, num_cores))
