"""An agent learns a game of pgx for two by playing against itself.

    uv run --with pgx experiments/pgx_games.py --game=connect_four

Afterwards, `ftwax exploit RUN` trains agents that beat it, and tells by how
much.
"""

import dataclasses
import functools

import ftwax
from ftwax.agents import ppo
from ftwax.cli import flags, launch
from ftwax.environments import pgx_adapter
from ftwax.population import population_config

_POKER = 'kuhn_poker', 'leduc_holdem'
_GAMES = (*_POKER, 'tic_tac_toe', 'connect_four')


@dataclasses.dataclass(frozen=True)
class Options(launch.Options):
  """Flags of this experiment."""

  max_num_actor_steps: int = 4_000_000
  num_environments: int = 128
  eval_every: int = 1_000_000
  num_eval_episodes: int = 200
  runtime: str = 'device'
  num_members: int = flags.flag(1, 'Members of the population.')
  game: str = flags.flag('kuhn_poker', 'The game.', _GAMES)


def build(options: Options) -> ftwax.ExperimentConfig:
  """Returns the experiment."""
  config = ppo.PPOConfig(
    sequence_length=16,
    batch_size=2 * options.num_environments // options.num_members,
    num_epochs=2,
    num_minibatches=4,
    discount=1.0,
    entropy_cost=0.03,
  )
  config = options.configure(config).decayed_over(
    options.max_num_actor_steps, options.num_members
  )
  return ftwax.ExperimentConfig(
    name=options.game,
    agent=config,
    environment=functools.partial(pgx_adapter.make, options.game),
    population=population_config.PopulationConfig(
      options.num_members, exploits=options.num_members > 1
    ),
    # To bluff takes chance.
    evaluation=ftwax.Evaluation(greedy=options.game not in _POKER),
    **options.fields(),
  )


if __name__ == '__main__':
  launch.main(__file__)
