"""How tests run an experiment: by the command that a user types."""

import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[2]


def command(arguments, run_dir):
  script, *options = arguments
  # `experiments` is a link into the package, so no path leads out of it.
  folder = ROOT if '/' in script else ROOT / 'experiments'
  return [
    sys.executable,
    str(folder / script),
    f'--run_dir={run_dir}',
    *options,
  ]


def run(arguments, run_dir, timeout=300):
  return subprocess.run(
    command(arguments, run_dir),
    capture_output=True,
    text=True,
    timeout=timeout,
    check=False,
  )
