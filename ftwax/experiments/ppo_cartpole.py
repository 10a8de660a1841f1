"""PPO on CartPole-v1, which counts as solved at a return of 475 of 500.

Run `uv run experiments/ppo_cartpole.py`; `--help` lists the flags. The
environment is Gymnasium's. To compile gymnax's JAX environment together with
the agent, run `uv run --with gymnax experiments/ppo_cartpole.py
--runtime=device`.
"""

import dataclasses

import ftwax
from ftwax.agents import ppo
from ftwax.agents.actor_critic import optimization
from ftwax.cli import launch
from ftwax.networks import torsos


@dataclasses.dataclass(frozen=True)
class Options(launch.Options):
  """Flags of this experiment."""

  max_num_actor_steps: int = 500_000
  eval_every: int = 100_000


def build(options: Options) -> ftwax.ExperimentConfig:
  """Returns the experiment."""
  config = ppo.PPOConfig(
    core='feed_forward',
    skip_connection=False,
    torso=torsos.Torso(hidden_sizes=(64,)),
    sequence_length=32,
    batch_size=8,
    num_epochs=10,
    num_minibatches=2,
    decay=optimization.LinearDecay(names=('learning_rate', 'clip_epsilon')),
  )
  config = options.configure(config).decayed_over(options.max_num_actor_steps)
  return ftwax.ExperimentConfig(
    name='ppo_CartPole-v1',
    agent=config.replace(
      learning_rate=1e-3,
      discount=0.98,
      entropy_cost=0.0,
      gae_lambda=0.8,
      clip_epsilon=0.2,
    ),
    # Both versions truncate episodes after 500 steps.
    environment=(
      'gymnax:CartPole-v1' if options.runtime == 'device' else 'CartPole-v1'
    ),
    **options.fields(),
  )


if __name__ == '__main__':
  launch.main(__file__)
