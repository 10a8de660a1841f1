"""A small population, for tests of all runtimes that run one."""

import functional_fakes
import run_helpers

from ftwax import hyperparameters
from ftwax.agents import impala
from ftwax.environments import functional
from ftwax.networks import cores, torsos
from ftwax.population import exploring, selection
from ftwax.population import population_config as config_lib

CONFIG = impala.IMPALAConfig(
  core=cores.FeedForward(8),
  torso=torsos.Torso(hidden_sizes=(8,)),
  sequence_length=3,
  batch_size=4,
)

POPULATION = config_lib.PopulationConfig(
  4,
  burn_in_games=0,
  select=selection.WinProbability(0.5001),
  explore=exploring.Perturb(0.5),
)


def make_game(seed: int) -> functional.FunctionalGame:
  """Returns a game of two against two that takes five steps."""
  del seed
  return functional_fakes.make_team_matching(episode_length=5)


def make_experiment(environment=make_game, config=CONFIG, **options):
  """Makes an experiment of four members, who copy each other readily."""
  config = config.replace(learning_rate=hyperparameters.LogUniform(5e-3, 2e-2))
  options = {
    'max_num_actor_steps': 400,
    'steps_per_round': 5,
    'population': POPULATION,
    **options,
  }
  return run_helpers.make_experiment(config, environment, **options)
