"""Checks that ftwax can run here, and prints a block for bug reports.

Checks Python, packages, imports, devices, disk, shared memory and ports. The
exit status is 1 if a check fails.
"""

import argparse
import pathlib

from ftwax import version
from ftwax.cli import health_checks


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the arguments: ports to check."""
  parser.add_argument(
    '--port',
    type=int,
    action='append',
    default=[],
    help='a port to check, such as that of --replay_port; may be repeated',
  )


def run(arguments: argparse.Namespace) -> int:
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
    health_checks.check_ports(arguments.port),
  ):
    for level, subject, text in findings:
      num_faults += level == health_checks.FAULT
      print(f'{level:5}  {subject:16}  {text}', flush=True)
  print(f'{num_faults} failed.' if num_faults else 'All checks passed.')
  return int(num_faults > 0)
