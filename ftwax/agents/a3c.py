"""Asynchronous advantage actor-critic (Mnih et al., 2016, arXiv:1602.01783).

A3C uses the loss and network of A2C, but each update learns from a single
trajectory and actors do not wait for each other. In the distributed runtime,
many actors with a few environments each write trajectories as they complete
them. The learner takes one at a time, in the order of arrival, and an actor
fetches parameters at the start of each trajectory. There is no barrier: a slow
actor delays no other.

In the paper, actors compute gradients at the parameters they acted with and
apply them to shared parameters, which other actors have changed meanwhile. Here
actors send trajectories, and the learner computes the gradient at the newest
parameters. Either way the gradient lags by the updates in between, and A3C does
not correct for the lag. `max_queue_size` bounds it, since actors wait while the
queue is full; `impala` corrects for it.

The other runtimes alternate between acting and learning: all environments act,
then each of their trajectories makes one update.
"""

import dataclasses
from typing import Any, ClassVar

from ftwax.agents import a2c


@dataclasses.dataclass(frozen=True)
class A3CConfig(a2c.A2CConfig):
  """Defaults of A3C; see `StandardConfig` for the options.

  They equal A2C's except for the batch size of one. `paper` returns the
  defaults of the paper.
  """

  name: ClassVar[str] = 'a3c'

  batch_size: int = 1

  @classmethod
  def paper(cls, **options: Any) -> 'A3CConfig':
    """Returns the settings of the paper on Atari; see `A2CConfig.paper`.

    Args:
      **options: override these settings or add to them.
    """
    config = super().paper(**{'batch_size': 1, **options})
    assert isinstance(config, cls)
    return config
