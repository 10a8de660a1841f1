"""Advantage actor-critic (Mnih et al., 2016, arXiv:1602.01783).

A2C: acting and learning take turns, so that what is learned from is the
policy's own. As an agent of the family it is a set of defaults, the standard
network and the loss with n-step returns, or generalized advantages.

Where actors run ahead of the learner, as A3C's do, its loss does not correct
for the lag: choose `impala`, which is the same agent with V-trace.
"""

import dataclasses
from typing import Any, NamedTuple

from ftwax import hyperparameters
from ftwax.agents.actor_critic import builder, standard
from ftwax.losses import advantage_actor_critic

# The loss of one stream; `agents.actor_critic` weighs and sums its terms.
policy_loss = advantage_actor_critic.advantage_actor_critic_loss

# `make_network(environment_spec, config)`.
make_network = standard.make_network


class Hyperparameters(NamedTuple):
  """Scalars of the agent, or their priors.

  Attributes:
    learning_rate: see `actor_critic.config`, as for all up to `entropy_cost`.
    learning_rate_decay_steps: see there.
    rms_prop_epsilon: see there.
    max_gradient_norm: see there.
    discount: see there.
    max_abs_reward: see there.
    baseline_cost: see there.
    entropy_cost: see there.
    gae_lambda: 1 for n-step returns, which reach to the end of the trajectory.
  """

  learning_rate: Any
  learning_rate_decay_steps: Any
  rms_prop_epsilon: Any
  max_gradient_norm: Any
  discount: Any
  max_abs_reward: Any
  baseline_cost: Any
  entropy_cost: Any
  gae_lambda: Any


@dataclasses.dataclass(frozen=True)
class A2CConfig(standard.StandardConfig):
  """Defaults of A2C; see `StandardConfig` for the options.

  But for `gae_lambda` they are those of IMPALA, to compare the two by.
  """

  priors: Any = Hyperparameters(
    learning_rate=hyperparameters.Constant(1e-3),
    learning_rate_decay_steps=hyperparameters.Constant(float('inf')),
    rms_prop_epsilon=hyperparameters.Constant(1e-3),
    max_gradient_norm=hyperparameters.Constant(40.0),
    discount=hyperparameters.Constant(0.99),
    max_abs_reward=hyperparameters.Constant(float('inf')),
    baseline_cost=hyperparameters.Constant(0.5),
    entropy_cost=hyperparameters.Constant(0.01),
    gae_lambda=hyperparameters.Constant(1.0),
  )


def make_builder(config: A2CConfig) -> builder.ActorCriticBuilder:
  """Makes the agent's builder."""
  return builder.ActorCriticBuilder(config, policy_loss)
