"""Prints versions, devices and what is missing, for bug reports.

The exit status is 1 if a required package is missing or has another version, or
JAX finds no device.
"""

import dataclasses
import importlib.metadata
import os
import pathlib
import platform
import sys
from collections.abc import Iterator

from ftwax import extras, import_guard, version


@dataclasses.dataclass(frozen=True)
class Options:
  """`ftwax doctor` has no flags."""


def run(options: Options) -> int:
  """Prints the block."""
  del options
  print(f'ftwax {version.__version__} in {pathlib.Path(__file__).parents[1]}')
  print(f'python {platform.python_version()}, {sys.executable}')
  print(f'machine {platform.platform()}, {os.cpu_count()} cores')
  for name, value in sorted(os.environ.items()):
    if name.startswith(('JAX_', 'XLA_', 'CUDA_VISIBLE')):
      print(f'{name}={value}')
  faults = [*_check_packages(), *_check_devices()]
  for fault in faults:
    print(f'FAULT {fault}')
  print(f'{len(faults)} failed.' if faults else 'All checks passed.')
  return int(bool(faults))


def _check_packages() -> Iterator[str]:
  """Prints the packages that ftwax requires; yields the faults."""
  with import_guard.guarded():
    from packaging import requirements

  for text in importlib.metadata.requires('ftwax') or ():
    required = requirements.Requirement(text)
    if required.marker and not required.marker.evaluate({'extra': ''}):
      continue
    try:
      found = importlib.metadata.version(required.name)
    except importlib.metadata.PackageNotFoundError:
      found = ''
    print(f'{required.name} {found or "is not installed"}')
    if not found or not required.specifier.contains(found, prereleases=True):
      yield f'{required} is required; run {extras.install("")}'


def _check_devices() -> Iterator[str]:
  """Prints the devices of JAX; yields why there are none."""
  try:
    with import_guard.guarded():
      import jax

    float(jax.numpy.ones(2).sum())
    print(f'devices {", ".join(map(str, jax.devices()))}')
  except Exception as error:  # noqa: BLE001 Any error is a finding.
    yield f'JAX cannot compute: {type(error).__name__}: {error}'
