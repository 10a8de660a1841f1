"""Advantage actor-critic (Mnih et al., 2016, arXiv:1602.01783).

A2C: acting and learning take turns, so that what is learned from is the
policy's own. As an agent of the family it is a set of defaults, the standard
network and the loss with n-step returns, or generalized advantages.

Where actors run ahead of the learner, as A3C's do, its loss does not correct
for the lag: choose `impala`, which is the same agent with V-trace.
"""

import dataclasses
from typing import Any

from ftwax import hyperparameters
from ftwax.agents.actor_critic import builder, scalars, standard
from ftwax.losses import advantage_actor_critic

# The loss of one stream; `agents.actor_critic` weighs and sums its terms.
policy_loss = advantage_actor_critic.advantage_actor_critic_loss

# `make_network(environment_spec, config)`.
make_network = standard.make_network


Hyperparameters = scalars.extend(
  __name__,
  scalars.Hyperparameters,
  gae_lambda='1 for n-step returns, which reach to the end of the trajectory.',
)


@dataclasses.dataclass(frozen=True)
class A2CConfig(standard.StandardConfig):
  """Defaults of A2C; see `StandardConfig` for the options.

  But for `gae_lambda` they are those of IMPALA, to compare the two by.
  """

  priors: Any = Hyperparameters(
    *standard.StandardConfig.priors,
    gae_lambda=hyperparameters.Constant(1.0),
  )


def make_builder(config: A2CConfig) -> builder.ActorCriticBuilder:
  """Makes the agent's builder."""
  return builder.ActorCriticBuilder(config, policy_loss)
