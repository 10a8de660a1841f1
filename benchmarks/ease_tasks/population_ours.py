from mpe2 import simple_tag_v3

import ftwax
from ftwax import population
from ftwax.agents import ppo
from ftwax.environments import pettingzoo_adapter


def make_game(seed):
  env = simple_tag_v3.parallel_env()
  return pettingzoo_adapter.PettingZooGame(env, teams=(0, 0, 0, 1), seed=seed)


experiment = ftwax.ExperimentConfig(
  ppo.PPOConfig(core='feed_forward'),
  make_game,
  10_000,
  num_environments=8,
  population=population.PopulationConfig(num_members=2),
  opponents={'random': population.uniform_player},
)
ftwax.run(experiment, eval_every=10_000)
