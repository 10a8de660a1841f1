"""PPO on MinAtar games, compiled together with the agent.

The games (Young and Tian, 2019, arXiv:1903.03176) come from gymnax. They have
10x10 cells and a few channels, for which an MLP suffices. The settings are
close to common ones for gymnax: many environments and a high learning rate.

Run `uv run --with gymnax experiments/minatar.py --game=breakout`.
"""

import dataclasses

import ftwax
from ftwax.agents import ppo
from ftwax.cli import flags, launch
from ftwax.networks import torsos

_GAMES = {
  'asterix': 'Asterix-MinAtar',
  'breakout': 'Breakout-MinAtar',
  'freeway': 'Freeway-MinAtar',
  'space_invaders': 'SpaceInvaders-MinAtar',
}


@dataclasses.dataclass(frozen=True)
class Options(launch.Options):
  """Flags of this experiment."""

  max_num_actor_steps: int = 10_000_000
  num_environments: int = 64
  runtime: str = 'device'
  game: str = flags.flag('breakout', 'The game.', list(_GAMES))


def build(options: Options) -> ftwax.ExperimentConfig:
  """Returns the experiment."""
  config = ppo.PPOConfig(
    core='feed_forward',
    skip_connection=False,
    torso=torsos.Torso(hidden_sizes=(64,)),
    sequence_length=128,
    batch_size=64,
    num_epochs=4,
    num_minibatches=8,
  )
  config = options.configure(config).decayed_over(options.max_num_actor_steps)
  return ftwax.ExperimentConfig(
    name=f'minatar_{options.game}',
    agent=config.replace(learning_rate=5e-3),
    environment=f'gymnax:{_GAMES[options.game]}',
    **options.fields(),
  )


if __name__ == '__main__':
  launch.main(__file__)
