"""UNREAL on an Atari game, Pong by default.

Run `uv run experiments/unreal_atari.py --game=breakout`. `--notasks` disables
the auxiliary tasks, which turns the agent into A2C, for comparison.
"""

import dataclasses
import functools

import ftwax
from ftwax.agents import unreal
from ftwax.agents.actor_critic import tasks
from ftwax.cli import flags, launch
from ftwax.environments import atari


@dataclasses.dataclass(frozen=True)
class Options(launch.Options):
  """Flags of this experiment."""

  max_num_actor_steps: int = 10_000_000
  game: str = flags.flag('pong', 'Name of the game.')
  tasks: bool = flags.flag(True, 'Whether to train auxiliary tasks.')


_TASKS = (
  tasks.PixelControl(cost=1e-3, cell_size=2, crop_size=(40, 40)),
  tasks.RewardPrediction(),
  tasks.ValueReplay(),
)


def build(options: Options) -> ftwax.ExperimentConfig:
  """Returns the experiment."""
  config = unreal.UNREALConfig.paper(
    torso='a3c',
    batch_size=16,
    # Without a population nothing evolves: use fixed values within the paper's
    # ranges, for pixel control its range on Atari.
    learning_rate=7e-4,
    entropy_cost=1e-3,
    tasks=_TASKS if options.tasks else (),
  )
  return ftwax.ExperimentConfig(
    name=f'unreal_{options.game}',
    agent=config,
    environment=functools.partial(
      atari.make,
      options.game,
      config=atari.AtariConfig(size=42, grayscale=True),
    ),
    **options.fields(),
  )


if __name__ == '__main__':
  launch.main(__file__)
