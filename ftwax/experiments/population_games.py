"""A population of agents on games of PettingZoo.

Run

    uv run --with pettingzoo --with pygame-ce experiments/population_games.py

for PettingZoo's knights against archers, who compete for zombies, or add
`--game=rock_paper_scissors`.
"""

import dataclasses
import functools

import ftwax
from ftwax import registry
from ftwax.agents import ftw
from ftwax.cli import flags, launch
from ftwax.environments import games
from ftwax.networks import cores
from ftwax.population import population_config


@dataclasses.dataclass(frozen=True)
class Options(launch.Options):
  """Flags of this experiment."""

  num_environments: int = 4
  num_members: int = flags.flag(2, 'Members of the population.')
  core: str = flags.flag('rpth', 'The recurrent core.', tuple(cores.NAMED))
  sequence_length: int = flags.flag(20, 'Steps per trajectory.')
  game_length: int = flags.flag(100, 'Maximum number of steps per game.')
  burn_in_games: int = flags.flag(
    50, 'Games a member plays between chances to copy another member.'
  )
  game: str = flags.flag(
    'knights_archers_zombies',
    'The game.',
    ['knights_archers_zombies', 'rock_paper_scissors'],
  )


@registry.register('population_games.zombies')
def make_zombies(seed: int, game_length: int) -> games.GameEnvironment:
  """Returns archers against knights; the team that kills more zombies wins."""
  from pettingzoo.butterfly import knights_archers_zombies_v11

  from ftwax.environments import pettingzoo_adapter

  return pettingzoo_adapter.PettingZooGame(
    knights_archers_zombies_v11.parallel_env(
      render_mode='rgb_array', max_cycles=game_length
    ),
    (0, 0, 1, 1),
    seed,
  )


@registry.register('population_games.rock_paper_scissors')
def make_rock_paper_scissors(
  seed: int, game_length: int
) -> games.GameEnvironment:
  """Returns `game_length` rounds of rock, paper, scissors."""
  from pettingzoo.classic import rps_v2

  from ftwax.environments import pettingzoo_adapter

  return pettingzoo_adapter.PettingZooGame(
    rps_v2.parallel_env(render_mode='rgb_array', max_cycles=game_length),
    seed=seed,
  )


# Factories of the games.
_GAMES = {
  'knights_archers_zombies': make_zombies,
  'rock_paper_scissors': make_rock_paper_scissors,
}


def build(options: Options) -> ftwax.ExperimentConfig:
  """Returns the experiment, small enough for two members on two cores."""
  config = ftw.FTWConfig(
    tasks=(),
    sequence_length=options.sequence_length,
    batch_size=8,
  )
  assert isinstance(config.core, cores.RPTH)
  config = config.replace(core=ftw.named_core(options.core, config.core))
  return ftwax.ExperimentConfig(
    name=options.game,
    agent=config.with_size(64),
    environment=functools.partial(
      _GAMES[options.game], game_length=options.game_length
    ),
    population=population_config.PopulationConfig(
      num_members=options.num_members, burn_in_games=options.burn_in_games
    ),
    steps_per_round=options.game_length,
    **options.fields(),
  )


if __name__ == '__main__':
  launch.main(__file__)
