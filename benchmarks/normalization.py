"""PPO on Pendulum-v1 with and without its normalizers.

    uv run benchmarks/normalization.py --seeds 0 1 2

Observations are the cosine and sine of an angle in [-1, 1] and a velocity in
[-8, 8]. Rewards lie between -16.3 and 0, so discounted returns are large
compared with the initial outputs of a value head, near 0. The lines differ only
in the two options. Scores are mean returns of greedy evaluations: -1200 for
chance, about -150 for the best policies.
"""

import argparse
import pathlib
import tempfile
import time

import common
import numpy as np

import ftwax
from ftwax.agents import ppo
from ftwax.records import loggers
from ftwax.runtime import experiment

_LINES = {
  'neither': {},
  'observations': {'normalize_observations': True},
  'returns': {'normalize_returns': True},
  'both': {'normalize_observations': True, 'normalize_returns': True},
}


def make_environment(seed):
  """Returns Gymnasium's pendulum."""
  import gymnasium

  from ftwax.environments import gymnasium_adapter

  return gymnasium_adapter.GymnasiumEnvironment(
    gymnasium.make('Pendulum-v1'), seed
  )


def make_experiment(options, seed, num_steps, learning_rate):
  """Returns the experiment of one run."""
  config = ppo.PPOConfig(
    core='feed_forward',
    skip_connection=False,
    vector_hidden_sizes=(64,),
    sequence_length=64,
    batch_size=16,
    num_epochs=10,
    num_minibatches=8,
    **options,
  ).replace(
    learning_rate=learning_rate,
    discount=0.9,
    gae_lambda=0.95,
    entropy_cost=0.0,
  )
  return experiment.ExperimentConfig(
    name='pendulum',
    agent=config,
    environment=make_environment,
    max_num_actor_steps=num_steps,
    num_environments=16,
    seed=seed,
    checkpointing=None,
  )


def measure(config, directory):
  """Returns the mean returns of a run's evaluations, and its seconds."""
  start = time.perf_counter()
  ftwax.run(
    config,
    run_dir=directory,
    eval_every=config.max_num_actor_steps // 3,
    num_eval_episodes=20,
  )
  rows = loggers.read_jsonl(loggers.log_path(directory, 'evaluation'))
  returns = [float(np.mean(row['episode_return'])) for row in rows]
  return returns, time.perf_counter() - start


def main():
  """Prints the table."""
  parser = argparse.ArgumentParser()
  parser.add_argument('--seeds', type=int, nargs='*', default=[0, 1, 2])
  parser.add_argument('--steps', type=int, default=100_000)
  parser.add_argument('--learning_rate', type=float, default=1e-3)
  parser.add_argument('--lines', nargs='*', default=list(_LINES))
  args = parser.parse_args()
  print(common.machine_line())
  rows = []
  for name in args.lines:
    finals = []
    for seed in args.seeds:
      config = make_experiment(
        _LINES[name], seed, args.steps, args.learning_rate
      )
      with tempfile.TemporaryDirectory() as directory:
        returns, seconds = measure(config, pathlib.Path(directory) / 'run')
      finals.append(returns[-1])
      told = ' '.join(f'{value:.0f}' for value in returns)
      print(f'{name} seed {seed}: {told} in {seconds:.0f} s', flush=True)
    mean = f'{np.mean(finals):.0f}'
    rows.append([name, *(f'{final:.0f}' for final in finals), mean])
  common.print_table(
    f'Pendulum-v1 after {args.steps:,} steps: greedy return of 20 episodes',
    ['normalized', *(f'seed {seed}' for seed in args.seeds), 'mean'],
    rows,
  )


if __name__ == '__main__':
  main()
