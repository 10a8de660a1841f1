"""PPO on MinAtar games, compiled together with the agent.

The games (Young and Tian, 2019, arXiv:1903.03176) come from gymnax. They have
10x10 cells and a few channels, for which an MLP suffices. The settings are
close to common ones for gymnax: many environments and a high learning rate.

Run `uv run --with gymnax experiments/minatar.py --game=breakout`.
"""

from absl import flags

from ftwax.agents import ppo
from ftwax.environments import functional, gymnax_adapter
from ftwax.runtime import experiment, launch

launch.define_flags(
  max_num_actor_steps=10_000_000,
  num_environments=64,
  eval_every=0,
  runtime='device',
)
_GAMES = {
  'asterix': 'Asterix-MinAtar',
  'breakout': 'Breakout-MinAtar',
  'freeway': 'Freeway-MinAtar',
  'space_invaders': 'SpaceInvaders-MinAtar',
}
_GAME = flags.DEFINE_enum('game', 'breakout', list(_GAMES), 'The game.')


def make_environment(seed: int) -> functional.FunctionalEnvironment:
  """Returns the game; its episodes depend on the seed of the run."""
  del seed
  return gymnax_adapter.make(_GAMES[_GAME.value])


def build_experiment() -> experiment.ExperimentConfig:
  """Returns the experiment described by the flags."""
  options = launch.experiment_options()
  config = ppo.PPOConfig(
    core='feed_forward',
    skip_connection=False,
    vector_hidden_sizes=(64,),
    sequence_length=128,
    batch_size=64,
    max_queue_size=64,
    num_epochs=4,
    num_minibatches=8,
  )
  config = launch.configure(config)
  steps_per_update = config.batch_size * config.sequence_length
  num_updates = max(1.0, options['max_num_actor_steps'] / steps_per_update)
  config = config.fix(
    learning_rate=5e-3,
    learning_rate_decay_steps=num_updates,
  )
  return experiment.ExperimentConfig(
    name=f'minatar_{_GAME.value}',
    agent=config,
    environment=make_environment,
    **options,
  )


if __name__ == '__main__':
  launch.run(build_experiment)
