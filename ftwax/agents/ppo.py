"""Proximal policy optimization (Schulman et al., 2017, arXiv:1707.06347).

As an agent of the family it is a set of defaults, the standard network, and the
clipped loss, with several epochs of minibatches in each update. Minibatches are
whole sequences with the state that the actor's core was in, so that it learns
with any memory. The old policy is the one that acted.
"""

import dataclasses
from typing import Any

from ftwax import hyperparameters
from ftwax.agents import a2c
from ftwax.agents.actor_critic import builder, scalars, standard
from ftwax.losses import clipped_surrogate

# The loss of one stream; `agents.actor_critic` weighs and sums its terms.
policy_loss = clipped_surrogate.ppo_loss

# `make_network(environment_spec, config)`.
make_network = standard.make_network


Hyperparameters = scalars.extend(
  __name__,
  a2c.Hyperparameters,
  clip_epsilon='how far the ratio of probabilities counts.',
  value_clip='how far the value moves in an update before it stops to count;'
  ' infinity for no bound.',
)


@dataclasses.dataclass(frozen=True)
class PPOConfig(standard.StandardConfig):
  """Defaults of PPO; see `StandardConfig` for the options.

  They are near those of the paper's Atari experiments (table 5). Rewards are
  not clipped, there are four epochs rather than three, and the value weighs
  less, as is usual since.

  Attributes:
    normalize_advantages: whether advantages are brought to mean 0 and variance
      1 over each batch.
  """

  priors: Any = Hyperparameters(
    *a2c.A2CConfig.priors._replace(
      learning_rate=hyperparameters.Constant(2.5e-4),
      max_gradient_norm=hyperparameters.Constant(0.5),
      gae_lambda=hyperparameters.Constant(0.95),
    ),
    clip_epsilon=hyperparameters.Constant(0.1),
    value_clip=hyperparameters.Constant(float('inf')),
  )
  sequence_length: int = 128
  batch_size: int = 8
  optimizer: str = 'adam'
  loss_reduction: str = 'mean'
  num_epochs: int = 4
  num_minibatches: int = 4
  normalize_advantages: bool = True


def make_builder(config: PPOConfig) -> builder.ActorCriticBuilder:
  """Makes the agent's builder."""
  make_targets = (
    clipped_surrogate.make_targets
    if config.normalize_advantages
    else clipped_surrogate.make_plain_targets
  )
  return builder.ActorCriticBuilder(
    config, policy_loss, make_targets=make_targets
  )
