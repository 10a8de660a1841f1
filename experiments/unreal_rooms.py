"""What UNREAL's auxiliary tasks are worth where rewards are rare.

Run as `uv run experiments/unreal_rooms.py`; `--notasks` leaves the tasks out,
which makes it A2C, and `--compare=3` runs both with three seeds and prints a
table. The game is a walk through four rooms of 3x3 squares, seen as frames of
28x28: the reward is 1 at the goal and 0 before, and of random walks 3 in 100
get there in time. `--game=catch` is bsuite's, which both solve.
"""

import functools

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
_TASKS = flags.DEFINE_bool('tasks', True, 'Whether to learn auxiliary tasks.')
_GAME = flags.DEFINE_enum('game', 'rooms', ['rooms', 'catch'], 'What to play.')

_SIDE = 7
_SQUARE = 4  # Pixels on each side of a square of the rooms.

# Pixels on each side of a cell of pixel control.
_CELL_SIZES = {'rooms': _SQUARE, 'catch': 5}


def make_rooms(seed: int) -> functional.FunctionalEnvironment:
  """Returns four rooms as frames."""
  del seed
  return pixels.make(rooms.make(_SIDE, max_steps=40), size=_SIDE * _SQUARE)


def make_catch(seed: int) -> functional.FunctionalEnvironment:
  """Returns catch, whose board has a pixel for a square."""
  del seed
  return catch.make()


def make_experiment(
  use_tasks: bool, seed: int | None = None
) -> experiment.ExperimentConfig:
  """Returns UNREAL, or A2C, which is what it is without its tasks."""
  options = launch.experiment_options(seed)
  num_environments = options['num_environments']
  config = unreal.UNREALConfig(
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
    pixel_control_cost=0.01,
    # As much as fresh values, whose errors are weighed so too.
    value_replay_cost=0.5,
  )
  agent = 'unreal' if use_tasks else 'a2c'
  return experiment.ExperimentConfig(
    name=f'{agent}_{_GAME.value}',
    builder=unreal.make_builder(config),
    network_factory=functools.partial(unreal.make_network, config=config),
    environment_factory={'rooms': make_rooms, 'catch': make_catch}[_GAME.value],
    **options,
  )


def build_experiment() -> experiment.ExperimentConfig:
  """Returns the experiment that the flags describe."""
  return make_experiment(_TASKS.value)


def make_variants() -> comparison.Variants:
  """Returns what `--compare` compares."""
  return {
    'UNREAL': functools.partial(make_experiment, True),
    'without tasks (A2C)': functools.partial(make_experiment, False),
  }


if __name__ == '__main__':
  launch.run(build_experiment, make_variants=make_variants)
