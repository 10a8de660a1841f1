"""Population based training compared with random search, on catch.

Eight IMPALA agents learn catch, with learning rates and entropy costs drawn
from ranges of several decades. In the population, the worst members copy the
best and perturb their hyperparameters (truncation selection of Jaderberg et
al., 2017, arXiv:1711.09846). In random search, the same eight agents train
independently for the same number of steps. A table shows the best, median and
mean return of the members, averaged over the last episodes.

Run `uv run research/pbt_catch.py`. It runs all seeds in turn, each in its
own directory below `runs/pbt_catch`.
"""

import dataclasses
import functools
import math
import pathlib

import numpy as np

import ftwax
from ftwax import hyperparameters, types
from ftwax.agents import impala
from ftwax.agents.actor_critic import optimization
from ftwax.cli import flags, launch
from ftwax.environments import catch
from ftwax.population import exploring, population_config, selection
from ftwax.reporting import history
from ftwax.runtime import run_records


@dataclasses.dataclass(frozen=True)
class Options:
  """Flags of this experiment."""

  seed: tuple[int, ...] = flags.flag((0, 1, 2), 'Seeds, with one run each.')
  max_num_actor_steps: int = flags.flag(
    1_000_000, 'Environment steps, summed over members.'
  )
  num_members: int = flags.flag(8, 'Members of the population.')
  run_dir: str = flags.flag('runs/pbt_catch', 'Parent directory of the runs.')


_GAMES_PER_MEMBER = 8
_NUM_RETURNS = 200  # Fitness is the mean of these.

# A wide board, where random policies rarely catch.
ENVIRONMENT = functools.partial(catch.make, rows=10, columns=9)


def make_experiment(
  options: Options, seed: int, exploits: bool
) -> ftwax.ExperimentConfig:
  """Returns the experiment of the population or of random search."""
  config = impala.IMPALAConfig.atari_paper(
    core='feed_forward',
    sequence_length=9,
    batch_size=8,
    optimizer=optimization.RMSProp(1e-3),
    max_abs_reward=math.inf,
  )
  config = config.replace(
    learning_rate=hyperparameters.LogUniform(1e-6, 1e-1),
    entropy_cost=hyperparameters.LogUniform(1e-4, 1.0),
  )
  return ftwax.ExperimentConfig(
    name='pbt_catch' if exploits else 'random_search_catch',
    agent=config,
    environment=ENVIRONMENT,
    max_num_actor_steps=options.max_num_actor_steps,
    num_environments=_GAMES_PER_MEMBER * options.num_members,
    seed=seed,
    steps_per_round=450,
    population=population_config.PopulationConfig(
      num_members=options.num_members,
      exploits=exploits,
      burn_in_games=2 * _NUM_RETURNS,
      num_returns=_NUM_RETURNS,
      select=selection.Truncation(0.25),
      explore=exploring.Perturb(1.0),
    ),
  )


def run(
  options: Options, seed: int, exploits: bool
) -> tuple[types.NumpyArray, run_records.Counts]:
  """Runs one seed; returns members' last mean returns [N] and the counts."""
  name = 'population' if exploits else 'random_search'
  directory = pathlib.Path(options.run_dir) / f'{name}_{seed}'
  directory.parent.mkdir(parents=True, exist_ok=True)
  result = ftwax.run(
    make_experiment(options, seed, exploits),
    runtime='device',
    run_dir=directory,
  )
  return history.read(result.run_dir).mean_returns[-1], result.counts


def main(options: Options) -> None:
  """Runs both methods with each seed and prints the table."""
  rows = []
  for seed in options.seed:
    for name, exploits in (('random search', False), ('population', True)):
      returns, counts = run(options, seed, exploits)
      numbers = returns.max(), np.median(returns), returns.mean()
      columns = '  '.join(f'{number:6.3f}' for number in numbers)
      rows.append(f'{name:14}  {seed:4}  {columns}  {counts.seconds:7.1f}')
  print(f'{"":14}  seed    best  median    mean  seconds')
  print('\n'.join(rows))


if __name__ == '__main__':
  launch.main(__file__)
