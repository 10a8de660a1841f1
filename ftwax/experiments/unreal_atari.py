"""UNREAL on an Atari game, Pong by default.

Run `uv run experiments/unreal_atari.py --game=breakout`. `--notasks` disables
the auxiliary tasks, which turns the agent into A2C, for comparison.
"""

import functools

import dm_env
from absl import flags

from ftwax.agents import unreal
from ftwax.environments import atari
from ftwax.runtime import experiment, launch

launch.define_flags(
  max_num_actor_steps=10_000_000, num_environments=8, eval_every=0
)
_GAME = flags.DEFINE_string('game', 'pong', 'Name of the game.')
_TASKS = flags.DEFINE_bool('tasks', True, 'Whether to train auxiliary tasks.')


def build_experiment() -> experiment.ExperimentConfig:
  """Returns the experiment described by the flags."""
  config = unreal.UNREALConfig.paper(
    image_torso='a3c',
    batch_size=16,
    cell_size=2,
    crop_size=(40, 40),
    use_pixel_control=_TASKS.value,
    use_reward_prediction=_TASKS.value,
    use_value_replay=_TASKS.value,
    image_period=500,
  )
  # Without a population nothing evolves: use fixed values within the paper's
  # ranges, for pixel control its range on Atari.
  config = config.fix(
    learning_rate=7e-4, entropy_cost=1e-3, pixel_control_cost=1e-3
  )
  return experiment.ExperimentConfig(
    name=f'unreal_{_GAME.value}',
    agent=config,
    environment=functools.partial(
      _make_environment,
      _GAME.value,
      atari.AtariConfig(size=42, grayscale=True),
    ),
    **launch.experiment_options(),
  )


def _make_environment(
  game: str, config: atari.AtariConfig, seed: int
) -> dm_env.Environment:
  return atari.make(game, seed=seed, config=config)


if __name__ == '__main__':
  launch.run(build_experiment)
