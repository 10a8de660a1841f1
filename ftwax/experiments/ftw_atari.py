"""A single FTW agent on an Atari game, Pong by default.

Run `uv run experiments/ftw_atari.py --core=rpth_dnc --game=breakout`. Without a
population, hyperparameters do not evolve: they are fixed to values in the
middle of the paper's ranges. The reward is that of the game.
"""

import functools

import dm_env
from absl import flags

from ftwax.agents import ftw
from ftwax.environments import atari
from ftwax.networks.dnc import interfaces
from ftwax.runtime import experiment, launch

launch.define_flags(
  max_num_actor_steps=10_000_000, num_environments=8, eval_every=0
)
_GAME = flags.DEFINE_string('game', 'pong', 'Name of the game.')
_CORE = flags.DEFINE_enum('core', 'rpth_dnc', ftw.CORES, 'The recurrent core.')
_LINKAGE = flags.DEFINE_enum(
  'linkage',
  'sparse',
  ['exact', 'sparse', 'none'],
  "Temporal links between the DNC's memory slots.",
)
_AUXILIARY = flags.DEFINE_bool(
  'auxiliary', True, 'Whether to train pixel control and reward prediction.'
)


def build_experiment() -> experiment.ExperimentConfig:
  """Returns the experiment described by the flags."""
  config = ftw.FTWConfig.paper(
    core=_CORE.value,
    memory=interfaces.MemoryConfig(linkage=_LINKAGE.value),
    use_pixel_control=_AUXILIARY.value,
    use_reward_prediction=_AUXILIARY.value,
    crop_size=(80, 80),
    delta_encode=True,
  ).fix(
    learning_rate=3e-4,
    entropy_cost=3e-3,
    max_abs_reward=1.0,
    pixel_control_cost=0.03,
    reward_prediction_cost=0.3,
    kl_posterior_prior_cost=0.03,
    kl_prior_fixed_cost=3e-3,
    slow_period=10,
    fast_to_slow_gradient_scale=0.3,
  )
  return experiment.ExperimentConfig(
    name=f'ftw_{_CORE.value}_{_GAME.value}',
    agent=config,
    environment=functools.partial(make_environment, _GAME.value),
    **launch.experiment_options(),
  )


def make_environment(game: str, seed: int) -> dm_env.Environment:
  """Returns a game with 84x84 color observations."""
  return atari.make(game, seed=seed, config=atari.AtariConfig(grayscale=False))


if __name__ == '__main__':
  launch.run(build_experiment)
