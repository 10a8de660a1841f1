"""UNREAL with and without auxiliary tasks, on a task with rare rewards.

Run `uv run experiments/unreal_rooms.py`. `--notasks` disables the auxiliary
tasks, which turns the agent into A2C; `--compare=3` runs both with three seeds
each and prints a table. The task is to walk through four rooms of 3x3 squares,
observed as 28x28 images. The only reward is 1 at the goal, which 3% of random
walks reach in time. `--game=catch` is a game that both agents solve.
"""

import functools
import math

from absl import flags

from ftwax.agents import unreal
from ftwax.environments import catch, functional, pixels, rooms
from ftwax.runtime import comparison, experiment, launch

launch.define_flags(
  max_num_actor_steps=300_000,
  num_environments=16,
  eval_every=0,
  runtime='device',
)
_TASKS = flags.DEFINE_bool('tasks', True, 'Whether to train auxiliary tasks.')
_GAME = flags.DEFINE_enum('game', 'rooms', ['rooms', 'catch'], 'The game.')

_SIDE = 7
_SQUARE = 4  # Pixels on each side of a square of the rooms.

# Height and width of a cell of pixel control, in pixels.
_CELL_SIZES = {'rooms': _SQUARE, 'catch': 5}


def make_rooms(seed: int) -> functional.FunctionalEnvironment:
  """Returns four rooms rendered as images."""
  del seed
  return pixels.make(rooms.make(_SIDE, max_steps=40), size=_SIDE * _SQUARE)


def make_catch(seed: int) -> functional.FunctionalEnvironment:
  """Returns catch, whose board is an image with one pixel per square."""
  del seed
  return catch.make()


def make_experiment(
  use_tasks: bool, seed: int | None = None
) -> experiment.ExperimentConfig:
  """Returns the experiment with UNREAL or, without tasks, A2C."""
  options = launch.experiment_options(seed)
  num_environments = options['num_environments']
  config = unreal.UNREALConfig.paper(
    batch_size=num_environments,
    max_queue_size=num_environments,
    hidden_size=128,
    cell_size=_CELL_SIZES[_GAME.value],
    use_pixel_control=use_tasks,
    use_reward_prediction=use_tasks,
    use_value_replay=use_tasks,
    optimizer='adam',
  ).fix(
    learning_rate=1e-3,
    entropy_cost=1e-3,
    max_abs_reward=math.inf,
    pixel_control_cost=0.01,
    # Equals the weight of the on-policy value loss.
    value_replay_cost=0.5,
  )
  agent = 'unreal' if use_tasks else 'a2c'
  return experiment.ExperimentConfig(
    name=f'{agent}_{_GAME.value}',
    agent=config,
    environment={'rooms': make_rooms, 'catch': make_catch}[_GAME.value],
    **options,
  )


def build_experiment() -> experiment.ExperimentConfig:
  """Returns the experiment described by the flags."""
  return make_experiment(_TASKS.value)


def make_variants() -> comparison.Variants:
  """Returns the variants of `--compare`, by name."""
  return {
    'UNREAL': functools.partial(make_experiment, True),
    'without tasks (A2C)': functools.partial(make_experiment, False),
  }


if __name__ == '__main__':
  launch.run(build_experiment, make_variants=make_variants)
