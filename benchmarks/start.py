"""What users wait for: the time to a first update, and steps/s after it.

    uv run benchmarks/start.py

Each experiment runs three times in processes of their own: until its first
update, which compiles; the same with the functions that the first run kept; and
for longer. Times are seconds of the processor of the whole process, imports
included. That of the longer run less the second's is its speed.
"""

import argparse
import os
import pathlib
import resource
import subprocess
import sys
import tempfile

import common

_ROOT = pathlib.Path(__file__).parents[1]

# Experiments by command: the steps of the first update, and of the longer run.
_EXPERIMENTS = {
  'ppo_cartpole.py': (512, 40_000),
  'catch.py --runtime=device': (320, 200_000),
  'atari.py': (640, 5_000),
  # With an evaluation and a tournament.
  'capture_the_flag.py --num_devices=1 --games_per_pair=2': (8_192, 200_000),
}


def run(command: str, num_steps: int, directory: str) -> float:
  """Returns the seconds of the processor of a run and its children.

  Args:
    command: an experiment and its flags.
    num_steps: actor steps of the run.
    directory: where compiled functions are kept.
  """
  name, *flags = command.split()
  before = _processor_seconds()
  with tempfile.TemporaryDirectory() as run_dir:
    subprocess.run(
      [
        sys.executable,
        str(_ROOT / 'experiments' / name),
        *flags,
        f'--max_num_actor_steps={num_steps}',
        f'--eval_every={num_steps if "flag" in name else 0}',
        f'--run_dir={run_dir}/run',
      ],
      env={**os.environ, 'XDG_CACHE_HOME': directory},
      stdout=subprocess.DEVNULL,
      check=True,
    )
  return _processor_seconds() - before


def _processor_seconds() -> float:
  used = resource.getrusage(resource.RUSAGE_CHILDREN)
  return used.ru_utime + used.ru_stime


def main() -> None:
  """Prints the table."""
  parser = argparse.ArgumentParser(description=__doc__.partition('\n')[0])
  parser.add_argument('--experiments', nargs='*', default=[*_EXPERIMENTS])
  arguments = parser.parse_args()
  os.environ.pop('JAX_COMPILATION_CACHE_DIR', None)
  rows = []
  for command in arguments.experiments:
    first, more = _EXPERIMENTS[command]
    with tempfile.TemporaryDirectory() as directory:
      compiled = run(command, first, directory)
      kept = run(command, first, directory)
      speed = (more - first) / (run(command, more, directory) - kept)
    rows.append(
      [
        f'`{command}`',
        f'{first:,}',
        f'{compiled:.1f}',
        f'{kept:.1f}',
        f'{speed:,.0f}',
      ]
    )
  common.print_table(
    'Seconds of the processor until the first update, imports included',
    ['experiment', 'steps', 'nothing kept', 'kept functions', 'steps/s after'],
    rows,
  )


if __name__ == '__main__':
  main()
