"""A single FTW agent on an Atari game, Pong by default.

Run `uv run experiments/ftw_atari.py --core=rpth_dnc --game=breakout`. Without a
population, hyperparameters do not evolve: they are fixed to values in the
middle of the paper's ranges. The reward is that of the game.
"""

import dataclasses
import functools

import ftwax
from ftwax.agents import ftw
from ftwax.cli import flags, launch
from ftwax.environments import atari
from ftwax.networks.dnc import interfaces


@dataclasses.dataclass(frozen=True)
class Options(launch.Options):
  """Flags of this experiment."""

  max_num_actor_steps: int = 10_000_000
  game: str = flags.flag('pong', 'Name of the game.')
  core: str = flags.flag('rpth_dnc', 'The recurrent core.', ftw.CORES)
  linkage: str = flags.flag(
    'sparse',
    "Temporal links between the DNC's memory slots.",
    ['exact', 'sparse', 'none'],
  )
  auxiliary: bool = flags.flag(
    True, 'Whether to train pixel control and reward prediction.'
  )


def build(options: Options) -> ftwax.ExperimentConfig:
  """Returns the experiment."""
  config = ftw.FTWConfig.paper(
    core=options.core,
    memory=interfaces.MemoryConfig(linkage=options.linkage),
    use_pixel_control=options.auxiliary,
    use_reward_prediction=options.auxiliary,
    crop_size=(80, 80),
    delta_encode=True,
  ).replace(
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
  return ftwax.ExperimentConfig(
    name=f'ftw_{options.core}_{options.game}',
    agent=config,
    environment=functools.partial(
      atari.make, options.game, config=atari.AtariConfig(grayscale=False)
    ),
    **options.fields(),
  )


if __name__ == '__main__':
  launch.main(__file__)
