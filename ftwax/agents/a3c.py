"""Asynchronous advantage actor-critic (Mnih et al., 2016, arXiv:1602.01783).

A3C is a set of defaults of A2C: one trajectory makes an update, and nobody
waits for anybody. Many actors, each with a few environments, in the distributed
runtime (`--distributed --num_actors=16`) write trajectories as they are done;
the learner takes one at a time, in the order in which they came, and actors
fetch parameters when their next trajectory begins. There is no barrier: an
actor that is slow delays no other.

What differs from the paper: there actors compute gradients, at the parameters
that acted, and push them into shared ones, which others have moved meanwhile.
Here actors push trajectories, and the learner computes the gradient at the
newest parameters. Either is off by the updates in between, and neither corrects
for them. `max_queue_size` bounds how many these are, as actors wait while the
queue is full; `impala` corrects for the lag.

In the other runtimes acting and learning take turns: all environments act, then
each of their trajectories makes an update.
"""

import dataclasses
from typing import Any

from ftwax import hyperparameters
from ftwax.agents import a2c

# The loss of one stream; `agents.actor_critic` weighs and sums its terms.
policy_loss = a2c.policy_loss

# `make_network(environment_spec, config)`.
make_network = a2c.make_network

# `make_builder(config)`.
make_builder = a2c.make_builder


@dataclasses.dataclass(frozen=True)
class A3CConfig(a2c.A2CConfig):
  """Defaults of A3C; see `StandardConfig` for the options.

  The learning rate lies in the range that the paper draws it from on Atari, and
  RMSProp's epsilon suits batches of one. Rewards are not clipped.
  """

  priors: Any = a2c.A2CConfig.priors._replace(
    learning_rate=hyperparameters.Constant(7e-4),
    rms_prop_epsilon=hyperparameters.Constant(0.1),
  )
  batch_size: int = 1
