# /// script
# requires-python = "==3.11.*"
# dependencies = [
#   "gymnasium==0.29.1",
#   "numpy<2",
#   "tensorboard",
#   "torch==2.4.1",
#   "tyro>=0.5.10",
# ]
#
# [tool.uv]
# exclude-newer = "2026-11-14T00:00:00Z"
# ///
"""The rival: CleanRL's `ppo.py` on CartPole, as it is.

Trains twice with the settings of `benchmarks/local.py`. Steps and seconds of
the processor are those of the longer run less those of the shorter, so that
imports are not counted.
"""

import argparse
import json
import os
import pathlib
import resource
import subprocess
import sys
import tempfile

SETTINGS = (
  '--env-id=CartPole-v1 --no-cuda --num-envs=8 --num-steps=32'
  ' --num-minibatches=2 --update-epochs=10'
)


def run(cleanrl, num_steps):
  """Trains, and returns the seconds of the processor."""
  before = processor_seconds()
  with tempfile.TemporaryDirectory() as directory:
    subprocess.run(
      [
        *(sys.executable, cleanrl / 'cleanrl' / 'ppo.py'),
        *SETTINGS.split(),
        f'--total-timesteps={num_steps}',
      ],
      cwd=directory,
      env={**os.environ, 'OMP_NUM_THREADS': '1'},
      stdout=subprocess.DEVNULL,
      check=True,
    )
  return processor_seconds() - before


def processor_seconds():
  used = resource.getrusage(resource.RUSAGE_CHILDREN)
  return used.ru_utime + used.ru_stime


def main():
  parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
  parser.add_argument('--cleanrl', type=pathlib.Path, required=True)
  parser.add_argument('--num_steps', type=int, default=20_480)
  args = parser.parse_args()
  cleanrl = args.cleanrl.resolve()
  seconds = run(cleanrl, 2 * args.num_steps) - run(cleanrl, args.num_steps)
  print(json.dumps({'steps_per_second': args.num_steps / seconds}))


if __name__ == '__main__':
  main()
