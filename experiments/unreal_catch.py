"""What UNREAL's auxiliary tasks are worth where rewards are rare.

Run as `uv run experiments/unreal_catch.py`; `--notasks` leaves the tasks out,
and `--compare=3` runs both with three seeds and prints a table. A ball falls on
a board of 12x12, shown on 24x24 pixels, and the only reward is 1 for a catch;
chance catches one ball in 12. `--game=dense` is bsuite's game: a board of 10x5
where a miss costs 1.
"""

import functools

from absl import flags

from ftwax.agents import unreal
from ftwax.environments import catch, functional, pixels
from ftwax.runtime import comparison, experiment, launch

launch.define_flags(
  max_num_actor_steps=500_000,
  num_environments=32,
  eval_every=0,
  runtime='device',
)
_TASKS = flags.DEFINE_bool('tasks', True, 'Whether to learn auxiliary tasks.')
_GAME = flags.DEFINE_enum(
  'game', 'sparse', ['sparse', 'dense'], 'Whether a miss costs something.'
)


def make_sparse(seed: int) -> functional.FunctionalEnvironment:
  """Returns catch on a frame, where a miss costs nothing."""
  del seed
  return pixels.make(catch.make(12, 12, miss_reward=0.0), size=24)


def make_dense(seed: int) -> functional.FunctionalEnvironment:
  """Returns bsuite's game."""
  del seed
  return catch.make()


def make_experiment(
  use_tasks: bool, sparse: bool, **options
) -> experiment.ExperimentConfig:
  """Returns UNREAL, or A2C, which is what it is without its tasks."""
  num_environments = options['num_environments']
  config = unreal.UNREALConfig(
    batch_size=num_environments,
    max_queue_size=num_environments,
    hidden_size=128,
    replay_capacity=50 * num_environments,
    cell_size=8 if sparse else 5,
    use_pixel_control=use_tasks,
    use_reward_prediction=use_tasks,
    use_value_replay=use_tasks,
    optimizer='adam',
  ).fix(learning_rate=1e-3)
  return experiment.ExperimentConfig(
    name='unreal_catch' if use_tasks else 'a2c_catch',
    builder=unreal.make_builder(config),
    network_factory=functools.partial(unreal.make_network, config=config),
    environment_factory=make_sparse if sparse else make_dense,
    **options,
  )


def build_experiment() -> experiment.ExperimentConfig:
  """Returns the experiment that the flags describe."""
  return make_experiment(
    _TASKS.value, _GAME.value == 'sparse', **launch.experiment_options()
  )


def make_variants() -> comparison.Variants:
  """Returns what `--compare` compares."""
  options = launch.experiment_options()

  def make(use_tasks, seed):
    sparse = _GAME.value == 'sparse'
    return make_experiment(use_tasks, sparse, **{**options, 'seed': seed})

  return {
    'UNREAL': functools.partial(make, True),
    'without tasks (A2C)': functools.partial(make, False),
  }


if __name__ == '__main__':
  launch.run(build_experiment, make_variants=make_variants)
