"""A population of FTW agents on games of PettingZoo and Melting Pot.

Run

    uv run --with pettingzoo --with pygame-ce experiments/population_games.py

for PettingZoo's knights against archers, who compete for zombies, or add
`--game=rock_paper_scissors`. `--game=paintball` is Melting Pot's
`paintball__capture_the_flag`, two against two on a small map that depends on
the seed; agents receive its events as a vector reward. See the docstring of
`ftwax.environments.meltingpot_adapter` for how to install Melting Pot.
"""

import functools

from absl import flags

from ftwax.agents import ftw
from ftwax.environments import games
from ftwax.population import population_config
from ftwax.runtime import experiment, launch

launch.define_flags(
  max_num_actor_steps=100_000, num_environments=4, eval_every=0
)
_NUM_MEMBERS = flags.DEFINE_integer(
  'num_members', 2, 'Members of the population.'
)
_CORE = flags.DEFINE_enum('core', 'rpth', ftw.CORES, 'The recurrent core.')
_SEQUENCE_LENGTH = flags.DEFINE_integer(
  'sequence_length', 20, 'Steps per trajectory.'
)
_GAME_LENGTH = flags.DEFINE_integer(
  'game_length',
  100,
  'Maximum number of steps per game.',
)
_BURN_IN = flags.DEFINE_integer(
  'burn_in_games',
  50,
  'Games a member plays between chances to copy another member.',
)


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


def make_paintball(seed: int, game_length: int) -> games.GameEnvironment:
  """Returns Melting Pot's capture the flag on a map drawn from the seed."""
  from ftwax.environments import meltingpot_paintball

  return meltingpot_paintball.make_paintball(
    seed,
    num_steps=game_length,
    ascii_map=meltingpot_paintball.draw_map(seed),
  )


# Factories of the games.
_GAMES = {
  'knights_archers_zombies': make_zombies,
  'rock_paper_scissors': make_rock_paper_scissors,
  'paintball': make_paintball,
}
_GAME = flags.DEFINE_enum(
  'game', 'knights_archers_zombies', list(_GAMES), 'The game.'
)


def make_config() -> ftw.FTWConfig:
  """Returns the agent's config, small enough for two members on two cores."""
  config = ftw.FTWConfig.paper(
    core=_CORE.value,
    use_pixel_control=False,
    use_reward_prediction=False,
    sequence_length=_SEQUENCE_LENGTH.value,
    batch_size=8,
  ).with_size(64)
  return config.fix(pixel_control_cost=0.0, reward_prediction_cost=0.0)


def build_experiment() -> experiment.ExperimentConfig:
  """Returns the experiment described by the flags."""
  make_game = _GAMES[_GAME.value]
  config = make_config()
  return experiment.ExperimentConfig(
    name=_GAME.value,
    agent=config,
    environment=functools.partial(make_game, game_length=_GAME_LENGTH.value),
    population=population_config.PopulationConfig(
      num_members=_NUM_MEMBERS.value,
      burn_in_games=_BURN_IN.value,
    ),
    steps_per_round=_GAME_LENGTH.value,
    **launch.experiment_options(),
  )


if __name__ == '__main__':
  launch.run(build_experiment)
