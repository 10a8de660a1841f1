# /// script
# requires-python = "==3.10.*"
# dependencies = ["sample-factory==2.1.1"]
#
# [tool.uv]
# exclude-newer = "2026-11-14T00:00:00Z"
# ///
"""The rival: sample-factory's APPO on CartPole, in one process.

It has the settings of `benchmarks/local.py`, and layers that its value shares.
"""

import argparse

import two_runs

SETTINGS = (
  '--env=CartPole-v1 --algo=APPO --device=cpu --serial_mode=True'
  ' --async_rl=False --num_workers=1 --num_envs_per_worker=8'
  ' --worker_num_splits=1 --rollout=32 --recurrence=1 --use_rnn=False'
  ' --batch_size=128 --num_batches_per_epoch=2 --num_epochs=10'
  ' --encoder_mlp_layers 64 64 --with_wandb=False'
)


def make_command(num_steps):
  """Returns the arguments of Python; runs are kept where it is started."""
  return [
    *('-m', 'sf_examples.train_gym_env'),
    *SETTINGS.split(),
    f'--train_for_env_steps={num_steps}',
    '--train_dir=.',
  ]


def main():
  parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
  parser.add_argument('--num_steps', type=int, default=20_480)
  two_runs.print_speed(make_command, parser.parse_args().num_steps)


if __name__ == '__main__':
  main()
