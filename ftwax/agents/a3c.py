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
parameters. Either way the gradient lags by the updates in between. The paper
does not correct for this. Here V-trace does, since more than eight environments
did not learn without it; without lag its loss is that of A2C.

The other runtimes alternate between acting and learning: all environments act,
then each of their trajectories makes one update.
"""

import dataclasses
import functools
from typing import Any, ClassVar

from ftwax import registry, types
from ftwax.agents import a2c
from ftwax.losses import policy_loss as policy_loss_lib
from ftwax.losses import v_trace


@registry.register('agent.a3c')
@dataclasses.dataclass(frozen=True)
class A3CConfig(a2c.A2CConfig):
  """Defaults of A3C; see `ActorCriticConfig` for the options.

  They equal A2C's except for the batch size of one. `paper` returns the
  defaults of the paper.

  Attributes:
    correct_lag: whether V-trace corrects for the updates that were made since a
      trajectory was acted. If not, N environments at a time cause up to N - 1
      of them, and more than 8 may not learn.
  """

  name: ClassVar[str] = 'a3c'

  batch_size: int = 1
  correct_lag: bool = True

  @classmethod
  def paper(cls, **options: Any) -> 'A3CConfig':
    """Returns the settings of the paper on Atari; see `A2CConfig.paper`.

    Args:
      **options: override these settings or add to them.
    """
    return super().paper(**{'batch_size': 1, 'correct_lag': False, **options})

  @property
  def _default_loss(self) -> policy_loss_lib.PolicyLoss:
    if not self.correct_lag:
      return super()._default_loss
    return functools.partial(
      _corrected_loss, normalize_advantages=self.normalize_advantages
    )


def _corrected_loss(
  transitions: policy_loss_lib.Transitions,
  hyperparameters: types.Hyperparameters,
  normalize_advantages: bool,
) -> policy_loss_lib.PolicyLossOutput:
  """Computes V-trace with the lambda of generalized advantage estimation."""
  return v_trace.vtrace_loss(
    transitions,
    hyperparameters,
    lambda_=hyperparameters.gae_lambda,
    normalize_advantages=normalize_advantages,
  )
