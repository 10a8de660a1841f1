"""Asynchronous advantage actor-critic (Mnih et al., 2016, arXiv:1602.01783).

A3C is a set of defaults of A2C: each update learns from one trajectory, and no
actor waits for another. Many actors, each with a few environments, in the
distributed runtime write trajectories as they complete them; the learner takes
one at a time, in the order of arrival, and an actor fetches parameters when its
next trajectory begins. There is no barrier: a slow actor delays no other.

In the paper actors compute gradients, at the parameters that acted, and apply
them to shared parameters, which others have moved meanwhile. Here actors send
trajectories, and the learner computes the gradient at the newest parameters.
Either is off by the updates in between, and neither corrects for them.
`max_queue_size` bounds their number, since actors wait while the queue is full;
`impala` corrects for the lag.

In the other runtimes acting and learning take turns: all environments act, then
each of their trajectories makes an update.
"""

import dataclasses
from typing import Any

from ftwax.agents import a2c

# Loss of one stream of transitions, whose terms `actor_critic` weighs and sums.
policy_loss = a2c.policy_loss

# `make_network(environment_spec, config)`.
make_network = a2c.make_network

Hyperparameters = a2c.Hyperparameters

# `make_builder(config)`.
make_builder = a2c.make_builder


@dataclasses.dataclass(frozen=True)
class A3CConfig(a2c.A2CConfig):
  """Defaults of A3C; see `StandardConfig` for the options.

  Those of A2C but for the batches of one. The paper's are those of `paper`.
  """

  batch_size: int = 1

  @classmethod
  def paper(cls, **options: Any) -> 'A3CConfig':
    """Returns the settings of the paper on Atari; see `A2CConfig.paper`.

    Args:
      **options: in place of these, or beside them.
    """
    config = super().paper(**{'batch_size': 1, **options})
    assert isinstance(config, cls)
    return config
