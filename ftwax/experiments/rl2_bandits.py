"""RL2 learns to explore and exploit two-armed bandits with unknown arms.

Run `uv run experiments/rl2_bandits.py`; `--help` lists the flags. A trial has
ten pulls. The returns of the optimal player and of Thompson sampling are
printed for comparison.
"""

import functools

from absl import flags

from ftwax import hyperparameters
from ftwax.agents import rl2
from ftwax.environments import bandits, functional
from ftwax.runtime import experiment, launch

launch.define_flags(
  max_num_actor_steps=3_000_000, num_environments=128, eval_every=1_000_000
)
flags.FLAGS.set_default('runtime', 'device')
flags.FLAGS.set_default('num_eval_episodes', 10_000)
_NUM_PULLS = flags.DEFINE_integer('num_pulls', 10, 'Pulls in a trial.')


def make_environment(
  num_pulls: int, seed: int
) -> functional.FunctionalEnvironment:
  """Returns the bandits; trials depend on the seed of the run."""
  del seed
  return bandits.make(num_pulls)


def build_experiment() -> experiment.ExperimentConfig:
  """Returns the experiment described by the flags."""
  options = launch.experiment_options()
  config = rl2.RL2Config(
    sequence_length=2 * (_NUM_PULLS.value + 1),
    batch_size=options['num_environments'],
    max_queue_size=options['num_environments'],
    decayed_hyperparameters=('learning_rate', 'entropy_cost'),
  )
  config = launch.configure(config)
  steps_per_update = config.batch_size * config.sequence_length
  num_updates = max(1.0, options['max_num_actor_steps'] / steps_per_update)
  config = config.replace(
    priors=config.priors._replace(
      learning_rate_decay_steps=hyperparameters.Constant(num_updates)
    )
  )
  print(
    f'Of {_NUM_PULLS.value} pulls, an optimal player wins'
    f' {bandits.best_return(_NUM_PULLS.value):.3f}, Thompson sampling'
    f' {bandits.thompson_return(_NUM_PULLS.value, 100_000, seed=0):.3f}, chance'
    f' {_NUM_PULLS.value / 2:.3f}.'
  )
  return experiment.ExperimentConfig(
    name='rl2_bandits',
    agent=config,
    environment=functools.partial(make_environment, _NUM_PULLS.value),
    **options,
  )


if __name__ == '__main__':
  launch.run(build_experiment)
