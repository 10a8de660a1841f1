"""A single FTW agent on an Atari game, Pong by default.

Run `uv run experiments/ftw_atari.py --core=rpth_dnc --game=breakout`. Without a
population, hyperparameters do not evolve: they are fixed to values in the
middle of the paper's ranges. The reward is that of the game.
"""

import dataclasses
import functools

import ftwax
from ftwax.agents import ftw
from ftwax.agents.actor_critic import tasks
from ftwax.cli import flags, launch
from ftwax.environments import atari
from ftwax.networks import cores
from ftwax.replay import replay_options


@dataclasses.dataclass(frozen=True)
class Options(launch.Options):
  """Flags of this experiment."""

  max_num_actor_steps: int = 10_000_000
  game: str = flags.flag('pong', 'Name of the game.')
  core: str = flags.flag('rpth_dnc', 'The recurrent core.', tuple(cores.NAMED))
  linkage: str = flags.flag(
    'sparse',
    "Temporal links between the DNC's memory slots.",
    ['exact', 'sparse', 'none'],
  )
  auxiliary: bool = flags.flag(
    True, 'Whether to train pixel control and reward prediction.'
  )


_LATENTS = (tasks.LatentKL(posterior_prior_cost=0.03, prior_fixed_cost=3e-3),)
_TASKS = (
  tasks.PixelControl(cost=0.03, crop_size=(80, 80)),
  tasks.RewardPrediction(cost=0.3),
)


def build(options: Options) -> ftwax.ExperimentConfig:
  """Returns the experiment."""
  hierarchy = cores.RPTH(
    256,
    memory=cores.Memory(linkage=options.linkage),
    slow_period=10,
    fast_to_slow_gradient_scale=0.3,
  )
  core = ftw.named_core(options.core, hierarchy)
  config = ftw.FTWConfig(
    core=core,
    tasks=(
      *(_LATENTS if isinstance(core, cores.RPTH) else ()),
      *(_TASKS if options.auxiliary else ()),
    ),
    queue=replay_options.Queue(delta_encode=True),
    learning_rate=3e-4,
    entropy_cost=3e-3,
    max_abs_reward=1.0,
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
