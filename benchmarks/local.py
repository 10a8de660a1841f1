"""Speed of PPO in the local runtime beside Stable-Baselines3's.

    uv run --with stable-baselines3 benchmarks/local.py

Both learn CartPole from eight of Gymnasium's environments with T = 32, ten
epochs of two minibatches and layers of 64 and 64, in turn in one process, torch
with one thread. The first environment tells the time of the processor at two of
its steps, so that imports and compilation are not counted.
"""

import argparse
import statistics
import tempfile
import time

import common
import gymnasium
import stable_baselines3
import torch

import ftwax
from ftwax.agents import ppo

_NUM_ENVIRONMENTS = 8

# Steps of the first environment before the measurement, more than the first
# update takes.
_WARMUP = 250


class Clock(gymnasium.Wrapper):
  """CartPole, which notes the time of the processor at each step."""

  def __init__(self, times):
    """Stores the list of times."""
    super().__init__(gymnasium.make('CartPole-v1'))
    self._times = times

  def step(self, action):
    """Steps the environment."""
    self._times.append(time.process_time())
    return self.env.step(action)


def run_ours(make, num_steps):
  """Trains our agent."""
  experiment = ftwax.ExperimentConfig(
    name='ppo_cartpole',
    agent=ppo.PPOConfig(
      core='feed_forward',
      skip_connection=False,
      vector_hidden_sizes=(64,),
      hidden_size=64,
      sequence_length=32,
      batch_size=_NUM_ENVIRONMENTS,
      num_epochs=10,
      num_minibatches=2,
    ),
    environment=lambda seed: make(),
    max_num_actor_steps=num_steps,
    num_environments=_NUM_ENVIRONMENTS,
    checkpointing=None,
  )
  with tempfile.TemporaryDirectory() as directory:
    ftwax.run(experiment, run_dir=f'{directory}/run')


def run_theirs(make, num_steps):
  """Trains the agent of Stable-Baselines3."""
  vector = stable_baselines3.common.vec_env.DummyVecEnv(
    [make] * _NUM_ENVIRONMENTS
  )
  agent = stable_baselines3.PPO(
    'MlpPolicy', vector, n_steps=32, batch_size=128, n_epochs=10, device='cpu'
  )
  agent.learn(num_steps)


def measure(run, num_steps):
  """Returns the steps of all environments in a second of the processor."""
  clocks = []

  def make():
    clocks.append([])
    return Clock(clocks[-1])

  run(make, num_steps)
  # Some environments are made for their specs alone.
  times = next(each for each in clocks if len(each) > _WARMUP)[_WARMUP:]
  return _NUM_ENVIRONMENTS * (len(times) - 1) / (times[-1] - times[0])


def main():
  """Prints the table."""
  parser = argparse.ArgumentParser()
  parser.add_argument('--num_steps', type=int, default=20_000)
  parser.add_argument('--rounds', type=int, default=3)
  args = parser.parse_args()
  torch.set_num_threads(1)
  pairs = [
    [measure(run, args.num_steps) for run in (run_ours, run_theirs)]
    for _ in range(args.rounds)
  ]
  ratios = [ours / theirs for ours, theirs in pairs]
  ours, theirs = map(statistics.median, zip(*pairs, strict=True))
  common.print_table(
    'PPO on CartPole, 8 environments of Gymnasium, learning included, steps in'
    ' a second of the processor',
    ['local runtime', 'Stable-Baselines3', 'versions', 'ratio'],
    [
      [
        f'{ours:,.0f}',
        f'{theirs:,.0f}',
        f'{stable_baselines3.__version__}, torch {torch.__version__}',
        f'{statistics.median(ratios):.2f} ({min(ratios):.2f} to'
        f' {max(ratios):.2f})',
      ]
    ],
  )


if __name__ == '__main__':
  main()
