"""Checks that ftwax can run here, and prints a block for bug reports.

Checks Python, packages, imports, devices, disk, shared memory and ports. The
exit status is 1 if a check fails.
"""

import dataclasses
import pathlib

from ftwax import version
from ftwax.cli import flags, health_checks


@dataclasses.dataclass(frozen=True)
class Options:
  """Flags of `ftwax doctor`."""

  port: tuple[int, ...] = flags.flag(
    (), 'A port to check, such as that of --replay_port; may be repeated.'
  )


def run(options: Options) -> int:
  """Prints the findings."""
  folder = pathlib.Path(__file__).parents[1]
  print(f'ftwax {version.__version__} in {folder}')
  num_faults = 0
  for findings in (
    health_checks.check_machine(),
    health_checks.check_python(),
    health_checks.check_packages(),
    health_checks.check_imports(),
    health_checks.check_devices(),
    health_checks.check_disk(),
    health_checks.check_shared_memory(),
    health_checks.check_ports(options.port),
  ):
    for level, subject, text in findings:
      num_faults += level == health_checks.FAULT
      print(f'{level:5}  {subject:16}  {text}', flush=True)
  print(f'{num_faults} failed.' if num_faults else 'All checks passed.')
  return int(num_faults > 0)
