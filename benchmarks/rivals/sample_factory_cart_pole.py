# /// script
# requires-python = "==3.10.*"
# dependencies = ["sample-factory==2.1.1"]
#
# [tool.uv]
# exclude-newer = "2026-11-14T00:00:00Z"
# ///
"""The rival: sample-factory's APPO on CartPole, in one process.

Trains twice with the settings of `benchmarks/local.py`. Steps and seconds of
the processor are those of the longer run less those of the shorter, so that
imports are not counted.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile

SETTINGS = (
  '--env=CartPole-v1 --algo=APPO --device=cpu --serial_mode=True'
  ' --async_rl=False --num_workers=1 --num_envs_per_worker=8'
  ' --worker_num_splits=1 --rollout=32 --recurrence=1 --use_rnn=False'
  ' --batch_size=128 --num_batches_per_epoch=2 --num_epochs=10'
  ' --encoder_mlp_layers 64 64 --with_wandb=False'
)


def run(num_steps):
  """Trains, and returns the seconds of the processor."""
  before = processor_seconds()
  with tempfile.TemporaryDirectory() as directory:
    subprocess.run(
      [
        *(sys.executable, '-m', 'sf_examples.train_gym_env'),
        *SETTINGS.split(),
        f'--train_for_env_steps={num_steps}',
        f'--train_dir={directory}',
      ],
      env={**os.environ, 'OMP_NUM_THREADS': '1'},
      stdout=subprocess.DEVNULL,
      stderr=subprocess.DEVNULL,
      check=True,
    )
  return processor_seconds() - before


def processor_seconds():
  used = resource.getrusage(resource.RUSAGE_CHILDREN)
  return used.ru_utime + used.ru_stime


def main():
  parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
  parser.add_argument('--seconds', type=float, help='Unused.')
  parser.add_argument('--num_steps', type=int, default=20_480)
  num_steps = parser.parse_args().num_steps
  seconds = run(2 * num_steps) - run(num_steps)
  print(json.dumps({'steps_per_second': num_steps / seconds}))


if __name__ == '__main__':
  main()
