"""IMPALA (Espeholt et al., 2018, arXiv:1802.01561).

Actors with lagging parameters, a queue of trajectories, and a learner that
corrects for the lag by V-trace. As an agent of the family it is a set of
defaults, the standard recurrent network and the V-trace loss.
"""

import dataclasses
import functools

from ftwax.agents.actor_critic import actor_critic_config as config_lib
from ftwax.agents.actor_critic import builder, standard, tasks
from ftwax.losses import policy_loss as policy_loss_lib
from ftwax.losses import vtrace

# Loss of one stream of transitions, whose terms `actor_critic` weighs and sums.
policy_loss = vtrace.vtrace_loss

# `make_network(environment_spec, config)`.
make_network = standard.make_network

Hyperparameters = config_lib.Hyperparameters


@dataclasses.dataclass(frozen=True)
class IMPALAConfig(standard.StandardConfig):
  """Defaults of IMPALA; see `StandardConfig` for the options.

  The priors are constants, the paper's values for Atari (appendix G), except
  that rewards are not clipped, and that RMSProp's epsilon and the learning rate
  suit small batches and small tasks as well.
  """

  priors: Hyperparameters = config_lib.DEFAULT_PRIORS


def make_builder(
  config: standard.StandardConfig,
) -> builder.ActorCriticBuilder:
  """Makes the agent's builder."""
  loss: policy_loss_lib.PolicyLoss = policy_loss
  if config.normalize_advantages:
    loss = functools.partial(policy_loss, normalize_advantages=True)
  return builder.ActorCriticBuilder(config, loss, tasks.make_tasks(config))
