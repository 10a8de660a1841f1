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

It has the settings of `benchmarks/local.py`.
"""

import argparse
import pathlib

import two_runs

SETTINGS = (
  '--env-id=CartPole-v1 --no-cuda --num-envs=8 --num-steps=32'
  ' --num-minibatches=2 --update-epochs=10'
)


def main():
  parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
  parser.add_argument('--cleanrl', type=pathlib.Path, required=True)
  parser.add_argument('--num_steps', type=int, default=20_480)
  args = parser.parse_args()
  script = args.cleanrl.resolve() / 'cleanrl' / 'ppo.py'
  two_runs.print_speed(
    lambda steps: [script, *SETTINGS.split(), f'--total-timesteps={steps}'],
    args.num_steps,
  )


if __name__ == '__main__':
  main()
