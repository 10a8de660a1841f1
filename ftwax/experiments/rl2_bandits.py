"""RL2 learns to explore and exploit two-armed bandits with unknown arms.

Run `uv run experiments/rl2_bandits.py`; `--help` lists the flags. A trial has
ten pulls. The returns of the optimal player and of Thompson sampling are
printed for comparison.
"""

import dataclasses
import functools
from typing import Any

import ftwax
from ftwax.agents import rl2
from ftwax.agents.actor_critic import optimization
from ftwax.cli import flags, launch
from ftwax.environments import bandits


@dataclasses.dataclass(frozen=True)
class Options(launch.Options):
  """Flags of this experiment."""

  max_num_actor_steps: int = 3_000_000
  num_environments: int = 128
  eval_every: int = 1_000_000
  num_eval_episodes: int = 10_000
  runtime: str = 'device'
  num_pulls: int = flags.flag(10, 'Pulls in a trial.')


def build(options: Options) -> ftwax.ExperimentConfig:
  """Returns the experiment."""
  config = rl2.RL2Config(
    sequence_length=2 * (options.num_pulls + 1),
    batch_size=options.num_environments,
    decay=optimization.LinearDecay(names=('learning_rate', 'entropy_cost')),
  )
  config = options.configure(config).decayed_over(options.max_num_actor_steps)
  return ftwax.ExperimentConfig(
    name='rl2_bandits',
    agent=config,
    environment=functools.partial(bandits.make, options.num_pulls),
    **options.fields(),
  )


def finish(experiment: Any, result: Any, options: Options) -> None:
  """Prints the returns of other players."""
  del experiment, result
  num_pulls = options.num_pulls
  print(
    f'Of {num_pulls} pulls, an optimal player wins'
    f' {bandits.best_return(num_pulls):.3f}, Thompson sampling'
    f' {bandits.thompson_return(num_pulls, 100_000, seed=0):.3f}, chance'
    f' {num_pulls / 2:.3f}.'
  )


if __name__ == '__main__':
  launch.main(__file__)
