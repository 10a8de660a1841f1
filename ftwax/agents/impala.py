"""IMPALA (Espeholt et al., 2018, arXiv:1802.01561).

Actors with lagging parameters, a queue of trajectories, and a learner that
corrects the lag by V-trace. As an agent of the family it is a set of defaults,
a recurrent network and the V-trace loss.
"""

import dataclasses

from ftwax.agents.actor_critic import builder, standard
from ftwax.losses import vtrace

# The loss of one stream; `agents.actor_critic` weighs and sums its terms.
policy_loss = vtrace.vtrace_loss

# `make_network(environment_spec, config)`.
make_network = standard.make_network


@dataclasses.dataclass(frozen=True)
class IMPALAConfig(standard.StandardConfig):
  """Defaults of IMPALA; see `StandardConfig` for the options.

  The priors, which the whole family has unless an agent says otherwise, are
  constants: the paper's values for Atari (appendix G), but for rewards, which
  are not clipped, and RMSProp's epsilon and learning rate, which suit small
  batches and small tasks as well.
  """


def make_builder(config: IMPALAConfig) -> builder.ActorCriticBuilder:
  """Makes the agent's builder."""
  return builder.ActorCriticBuilder(config, policy_loss)
