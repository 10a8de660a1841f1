"""PPO balances a pole (Gymnasium's CartPole-v1); 475 of 500 is solved.

Run as `uv run experiments/ppo_cartpole.py`; `--help` tells the flags.
"""

import functools

import gymnasium

from ftwax import hyperparameters
from ftwax.agents import ppo
from ftwax.environments import gymnasium_adapter
from ftwax.runtime import experiment, launch

launch.define_flags(
  max_num_actor_steps=500_000, num_environments=8, eval_every=100_000
)


def make_environment(seed: int) -> gymnasium_adapter.GymnasiumEnvironment:
  """Returns CartPole, whose episodes are cut off after 500 steps."""
  return gymnasium_adapter.GymnasiumEnvironment(
    gymnasium.make('CartPole-v1'), seed
  )


def build_experiment() -> experiment.ExperimentConfig:
  """Returns the experiment that the flags describe."""
  options = launch.experiment_options()
  config = ppo.PPOConfig(
    core='feed_forward',
    hidden_size=64,
    sequence_length=32,
    num_epochs=10,
    num_minibatches=2,
    decayed_hyperparameters=('learning_rate', 'clip_epsilon'),
  )
  steps_per_update = config.batch_size * config.sequence_length
  num_updates = max(1.0, options['max_num_actor_steps'] / steps_per_update)
  config = config.replace(
    priors=config.priors._replace(
      learning_rate=hyperparameters.Constant(1e-3),
      learning_rate_decay_steps=hyperparameters.Constant(num_updates),
      discount=hyperparameters.Constant(0.98),
      entropy_cost=hyperparameters.Constant(0.0),
      gae_lambda=hyperparameters.Constant(0.8),
      clip_epsilon=hyperparameters.Constant(0.2),
    )
  )
  return experiment.ExperimentConfig(
    name='ppo_cartpole',
    builder=ppo.make_builder(config),
    network_factory=functools.partial(ppo.make_network, config=config),
    environment_factory=make_environment,
    **options,
  )


if __name__ == '__main__':
  launch.run(build_experiment)
