"""UNREAL with and without auxiliary tasks, on a task with rare rewards.

Run `uv run experiments/unreal_rooms.py`. `--notasks` disables the auxiliary
tasks, which turns the agent into A2C; `--compare=3` runs both with three seeds
each and prints a table. The task is to walk through four rooms of 3x3 squares,
observed as 28x28 images. The only reward is 1 at the goal, which 3% of random
walks reach in time. With `--game=board` squares are numbers rather than pixels,
so there is no pixel control. `--game=catch` is a game that both agents solve.
"""

import dataclasses
import math

import ftwax
from ftwax.agents import unreal
from ftwax.cli import flags, launch
from ftwax.environments import catch, functional, pixels, rooms


@dataclasses.dataclass(frozen=True)
class Options(launch.VariantOptions):
  """Flags of this experiment."""

  max_num_actor_steps: int = 300_000
  num_environments: int = 16
  runtime: str = 'device'
  tasks: bool = flags.flag(True, 'Whether to train auxiliary tasks.')
  game: str = flags.flag('rooms', 'The game.', ['rooms', 'board', 'catch'])


_SIDE = 7
_SQUARE = 4  # Pixels on each side of a square of the rooms.

# Height and width of a cell of pixel control, in pixels.
_CELL_SIZES = {'rooms': _SQUARE, 'board': 1, 'catch': 5}


def make_rooms(seed: int) -> functional.FunctionalEnvironment:
  """Returns four rooms rendered as images."""
  return pixels.make(make_board(seed), size=_SIDE * _SQUARE)


def make_board(seed: int) -> functional.FunctionalEnvironment:
  """Returns four rooms as a board of numbers."""
  del seed
  return rooms.make(_SIDE, max_steps=40)


def make_catch(seed: int) -> functional.FunctionalEnvironment:
  """Returns catch, whose board is an image with one pixel per square."""
  del seed
  return catch.make()


_GAMES = {'rooms': make_rooms, 'board': make_board, 'catch': make_catch}


def build(options: Options) -> ftwax.ExperimentConfig:
  """Returns the experiment with UNREAL or, without tasks, A2C."""
  config = unreal.UNREALConfig.paper(
    batch_size=options.num_environments,
    max_queue_size=options.num_environments,
    hidden_size=128,
    cell_size=_CELL_SIZES[options.game],
    use_pixel_control=options.tasks and options.game != 'board',
    use_reward_prediction=options.tasks,
    use_value_replay=options.tasks,
    optimizer='adam',
  ).replace(
    learning_rate=1e-3,
    entropy_cost=1e-3,
    max_abs_reward=math.inf,
    pixel_control_cost=0.01,
    # Equals the weight of the on-policy value loss.
    value_replay_cost=0.5,
  )
  agent = 'unreal' if options.tasks else 'a2c'
  return ftwax.ExperimentConfig(
    name=f'{agent}_{options.game}',
    agent=config,
    environment=_GAMES[options.game],
    **options.fields(),
  )


def variants(options: Options) -> dict[str, Options]:
  """Returns the options of each variant."""
  return {
    'UNREAL': dataclasses.replace(options, tasks=True),
    'without tasks (A2C)': dataclasses.replace(options, tasks=False),
  }


if __name__ == '__main__':
  launch.main(__file__)
