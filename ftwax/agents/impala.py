"""IMPALA (Espeholt et al., 2018, arXiv:1802.01561).

Actors with lagging parameters, a queue of trajectories, and a learner that
corrects the lag by V-trace. As an agent of the family it is a set of defaults,
a recurrent network and the V-trace loss.
"""

import dataclasses
from typing import Any

from ftwax import hyperparameters
from ftwax.agents.actor_critic import builder, standard
from ftwax.agents.actor_critic import config as config_lib
from ftwax.losses import vtrace

# The loss of one stream; `agents.actor_critic` weighs and sums its terms.
policy_loss = vtrace.vtrace_loss

# `make_network(environment_spec, config)`.
make_network = standard.make_network


@dataclasses.dataclass(frozen=True)
class IMPALAConfig(standard.StandardConfig):
  """Defaults of IMPALA; see `StandardConfig` for the options.

  The priors are constants: the paper's values for Atari (appendix G), but for
  rewards, which are not clipped, and RMSProp's epsilon and learning rate,
  which suit small batches and small tasks as well.
  """

  priors: Any = config_lib.Hyperparameters(
    learning_rate=hyperparameters.Constant(1e-3),
    learning_rate_decay_steps=hyperparameters.Constant(float('inf')),
    rms_prop_epsilon=hyperparameters.Constant(1e-3),
    max_gradient_norm=hyperparameters.Constant(40.0),
    discount=hyperparameters.Constant(0.99),
    max_abs_reward=hyperparameters.Constant(float('inf')),
    baseline_cost=hyperparameters.Constant(0.5),
    entropy_cost=hyperparameters.Constant(0.01),
  )


def make_builder(config: IMPALAConfig) -> builder.ActorCriticBuilder:
  """Makes the agent's builder."""
  return builder.ActorCriticBuilder(config, policy_loss)
