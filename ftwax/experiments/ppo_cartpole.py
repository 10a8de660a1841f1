"""PPO on CartPole-v1, which counts as solved at a return of 475 of 500.

Run `uv run experiments/ppo_cartpole.py`; `--help` lists the flags. The
environment is Gymnasium's. To compile gymnax's JAX environment together with
the agent, run `uv run --with gymnax experiments/ppo_cartpole.py
--runtime=device`.
"""

import dm_env

from ftwax import hyperparameters
from ftwax.agents import ppo
from ftwax.environments import functional, gymnax_adapter
from ftwax.runtime import experiment, launch

launch.define_flags(
  max_num_actor_steps=500_000, num_environments=8, eval_every=100_000
)


# Both versions truncate episodes after 500 steps.
_NAME = 'CartPole-v1'


def make_environment(seed: int) -> dm_env.Environment:
  """Returns Gymnasium's CartPole."""
  import gymnasium  # The device runtime does not need it.

  from ftwax.environments import gymnasium_adapter

  return gymnasium_adapter.GymnasiumEnvironment(gymnasium.make(_NAME), seed)


def make_functional(seed: int) -> functional.FunctionalEnvironment:
  """Returns gymnax's CartPole; episodes depend on the seed of the run."""
  del seed
  return gymnax_adapter.make(_NAME)


def build_experiment() -> experiment.ExperimentConfig:
  """Returns the experiment described by the flags."""
  options = launch.experiment_options()
  config = ppo.PPOConfig(
    core='feed_forward',
    skip_connection=False,
    vector_hidden_sizes=(64,),
    sequence_length=32,
    batch_size=8,
    num_epochs=10,
    num_minibatches=2,
    decayed_hyperparameters=('learning_rate', 'clip_epsilon'),
  )
  config = launch.configure(config)
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
    agent=config,
    environment=(
      make_functional if launch.FLAGS.runtime == 'device' else make_environment
    ),
    **options,
  )


if __name__ == '__main__':
  launch.run(build_experiment)
