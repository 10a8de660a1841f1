"""FTW learns catch from pixels, with or without auxiliary tasks.

Run `uv run experiments/ftw_catch.py`, and with `--noauxiliary` to compare.
Observations are 84x84x3 images. A catch is rewarded with 1 and a miss with 0,
so rewards are rare at first. The torso is that of UNREAL, which is much faster
than FTW's.
"""

import dataclasses

import ftwax
from ftwax import registry
from ftwax.agents import ftw
from ftwax.agents.actor_critic import tasks
from ftwax.cli import flags, launch
from ftwax.environments import catch, functional, pixels
from ftwax.networks import cores, heads, torsos


@dataclasses.dataclass(frozen=True)
class Options(launch.Options):
  """Flags of this experiment."""

  max_num_actor_steps: int = 80_000
  num_environments: int = 16
  runtime: str = 'device'
  core: str = flags.flag('lstm', 'The recurrent core.', tuple(cores.NAMED))
  auxiliary: bool = flags.flag(
    True, 'Whether to train pixel control and reward prediction.'
  )


_HIDDEN_SIZE = 128


_HIERARCHY = cores.RPTH(
  _HIDDEN_SIZE,
  memory=ftw.MEMORY,
  slow_period=5,
  fast_to_slow_gradient_scale=0.5,
)
_LATENTS = (tasks.LatentKL(posterior_prior_cost=1e-3, prior_fixed_cost=1e-4),)
_TASKS = (
  tasks.PixelControl(cost=2e-3, crop_size=(80, 80)),
  tasks.RewardPrediction(cost=0.5),
)


@registry.register('ftw_catch.game')
def make_environment() -> functional.FunctionalEnvironment:
  """Returns catch rendered as images."""
  return pixels.make(catch.make(12, 12, miss_reward=0.0))


def build(options: Options) -> ftwax.ExperimentConfig:
  """Returns the experiment, with or without auxiliary tasks."""
  core = ftw.named_core(options.core, _HIERARCHY)
  config = ftw.FTWConfig(
    core=core,
    torso=torsos.Torso('shallow', num_features=_HIDDEN_SIZE),
    heads=heads.Heads((_HIDDEN_SIZE,), (_HIDDEN_SIZE,)),
    learning_rate=3e-4,
    entropy_cost=1e-2,
    tasks=(
      *(_LATENTS if cores.as_part(core).has_latents else ()),
      *(_TASKS if options.auxiliary else ()),
    ),
  )
  suffix = '' if options.auxiliary else '_no_auxiliary'
  return ftwax.ExperimentConfig(
    name=f'ftw_catch_{options.core}{suffix}',
    agent=config,
    environment=make_environment,
    **options.fields(),
  )


if __name__ == '__main__':
  launch.main(__file__)
