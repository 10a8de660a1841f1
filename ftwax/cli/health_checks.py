"""The checks of `ftwax doctor`; each returns findings."""

import importlib.metadata
import os
import pathlib
import platform
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

OK, NOTE, FAULT = 'ok', 'note', 'FAULT'

# Modules that are only available on Python 3.10, and slow to import.
_REVERB_HALF = ('tensorflow', 'reverb', 'launchpad')
_LAST_REVERB_PYTHON = (3, 10)

_IMPORT_TIMEOUT_S = 120.0

# Free bytes below which a run cannot save, and below which it soon may not.
_DISK_FAULT, _DISK_NOTE = 100 * 2**20, 2 * 2**30
_SHARED_MEMORY_NOTE = 256 * 2**20

_INSTALL = 'uv sync, or pip install -c constraints.txt -e .'


class Finding(NamedTuple):
  """A line of the doctor's output.

  Attributes:
    level: `ok`, `note` or `FAULT`.
    subject: a word or two.
    text: the finding and, for a fault, its remedy.
  """

  level: str
  subject: str
  text: str


def check_python() -> Iterator[Finding]:
  """Checks the version of Python."""
  text = f'{platform.python_version()}, {sys.executable}'
  if sys.version_info[:2] > _LAST_REVERB_PYTHON:
    yield Finding(NOTE, 'python', f'{text}; Reverb and Launchpad need 3.10')
  else:
    yield Finding(OK, 'python', text)


def check_packages(
  requirements: Sequence[str] | None = None,
  pins: Mapping[str, str] | None = None,
) -> Iterator[Finding]:
  """Checks the installed packages.

  Args:
    requirements: requirement specifiers; by default those of ftwax.
    pins: tested versions by package; by default those of `constraints.txt`, in
      a clone.
  """
  try:
    import packaging.requirements
  except ImportError:
    yield Finding(FAULT, 'packaging', f'is not installed; run {_INSTALL}')
    return
  for text in _requirements() if requirements is None else requirements:
    requirement = packaging.requirements.Requirement(text)
    if requirement.marker and not requirement.marker.evaluate({'extra': ''}):
      continue
    version = _installed(requirement.name)
    if version is None:
      yield Finding(
        FAULT, requirement.name, f'is not installed; run {_INSTALL}'
      )
    elif not requirement.specifier.contains(version, prereleases=True):
      yield Finding(
        FAULT,
        requirement.name,
        f'{version} is not {requirement.specifier}; run uv sync, or pip install'
        f" '{requirement.name}{requirement.specifier}'",
      )
  pins = read_pins() if pins is None else pins
  found = {name: _installed(name) for name in pins}
  others = [
    f'{name} {version} ({pins[name]})'
    for name, version in found.items()
    if version is not None and version != pins[name]
  ]
  if others:
    yield Finding(
      NOTE, 'versions', f'differ from constraints.txt: {", ".join(others)}'
    )
  elif pins:
    yield Finding(OK, 'versions', f'all {len(pins)} as in constraints.txt')


def read_pins() -> dict[str, str]:
  """Returns the versions of `constraints.txt`; empty outside a clone."""
  path = pathlib.Path(__file__).parents[2] / 'constraints.txt'
  if not path.exists():
    return {}
  from packaging import requirements

  lines = path.read_text('utf-8').splitlines()
  pins = [
    requirements.Requirement(line) for line in lines if not line.startswith('#')
  ]
  return {
    pin.name: str(pin.specifier).removeprefix('==')
    for pin in pins
    if pin.marker is None or pin.marker.evaluate()
  }


def check_imports(modules: Sequence[str] = _REVERB_HALF) -> Iterator[Finding]:
  """Imports modules that fail on some machines, each in its own process."""
  if sys.version_info[:2] > _LAST_REVERB_PYTHON:
    return
  for module in modules:
    try:
      result = subprocess.run(
        [
          sys.executable,
          '-c',
          f'import sys; sys.path[:] = {sys.path}; import {module}',
        ],
        capture_output=True,
        text=True,
        timeout=_IMPORT_TIMEOUT_S,
        check=False,
      )
    except subprocess.TimeoutExpired:
      yield Finding(FAULT, module, 'takes over two minutes to import')
      continue
    if result.returncode == 0:
      yield Finding(OK, module, 'imports')
      continue
    lines = result.stderr.splitlines()  # Messages may have several lines.
    errors = [line for line in lines if re.match(r'[\w.]+(Error|Exit)\b', line)]
    last = (errors or [f'it ended with status {result.returncode}'])[-1]
    yield Finding(FAULT, module, f'does not import ({last}); run {_INSTALL}')


def check_devices() -> Iterator[Finding]:
  """Checks that JAX finds a device and computes on it."""
  try:
    import jax

    devices = jax.devices()
    float(jax.numpy.ones(2).sum())
  except Exception as error:  # noqa: BLE001 Any error is a finding.
    yield Finding(FAULT, 'jax', f'{type(error).__name__}: {error}')
    return
  kinds = ', '.join(f'{device.device_kind}' for device in devices)
  yield Finding(OK, 'jax', f'{jax.__version__}, {devices[0].platform}: {kinds}')


def check_disk(paths: Sequence[str] | None = None) -> Iterator[Finding]:
  """Checks the free space where runs and temporary files are written."""
  for path in paths or (os.getcwd(), tempfile.gettempdir()):
    free = shutil.disk_usage(path).free
    text = f'{_readable(free)} free in {path}'
    if free < _DISK_FAULT:
      yield Finding(
        FAULT, 'disk', f'{text}; delete old runs, or choose --run_dir elsewhere'
      )
    else:
      yield Finding(NOTE if free < _DISK_NOTE else OK, 'disk', text)


def check_shared_memory(path: str = '/dev/shm') -> Iterator[Finding]:
  """Checks the shared memory in which environment processes step."""
  if not os.path.isdir(path):
    yield Finding(NOTE, 'shared memory', f'there is no {path}')
    return
  free = shutil.disk_usage(path).free
  text = f'{_readable(free)} free'
  if free < _SHARED_MEMORY_NOTE:
    text += '; start a container with --shm-size=1g'
  level = NOTE if free < _SHARED_MEMORY_NOTE else OK
  yield Finding(level, 'shared memory', text)


def check_ports(ports: Sequence[int] = ()) -> Iterator[Finding]:
  """Checks that the given ports are free, or by default that any port is."""
  for port in ports or (0,):
    with socket.socket() as bound:
      try:
        bound.bind(('', port))
      except OSError as error:
        yield Finding(
          FAULT,
          'port',
          f'{port}: {error.strerror}; choose another, or 0 for any',
        )
      else:
        yield Finding(OK, 'port', f'{bound.getsockname()[1]} is free')


def check_machine() -> Iterator[Finding]:
  """Reports the machine and the environment variables that JAX reads."""
  cores = (
    len(os.sched_getaffinity(0))
    if hasattr(os, 'sched_getaffinity')
    else (os.cpu_count())
  )
  yield Finding(OK, 'machine', f'{platform.platform()}, {cores} cores')
  for name, value in sorted(os.environ.items()):
    if name.startswith(('JAX_', 'XLA_', 'CUDA_VISIBLE')):
      yield Finding(OK, name, value)


def _requirements() -> Sequence[str]:
  try:
    return importlib.metadata.requires('ftwax') or ()
  except importlib.metadata.PackageNotFoundError:
    return ()


def _installed(name: str) -> str | None:
  try:
    return importlib.metadata.version(name)
  except importlib.metadata.PackageNotFoundError:
    return None


def _readable(num_bytes: float) -> str:
  return f'{num_bytes / 2**30:.1f} GiB'
