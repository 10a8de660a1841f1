"""Advantage actor-critic (Mnih et al., 2016, arXiv:1602.01783).

A2C alternates between acting and learning, so that it learns from trajectories
of the current policy. Within the family it is a set of defaults and an n-step
loss, optionally with generalized advantage estimation.

Unlike V-trace, its loss does not correct for policy lag. Where actors run ahead
of the learner, use `impala`, which is the same agent with V-trace.
"""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any, ClassVar, TypeVar

from ftwax import parts, registry
from ftwax.agents.actor_critic import actor_critic_config as config_lib
from ftwax.agents.actor_critic import optimization
from ftwax.losses import advantage_actor_critic
from ftwax.losses import policy_loss as policy_loss_lib
from ftwax.networks import cores, torsos

_A2C = TypeVar('_A2C', bound='A2CConfig')

# The network in the papers on A3C, UNREAL and IMPALA, for their presets.
PAPER_NETWORK: Mapping[str, Any] = {
  'torso': torsos.Torso('shallow', hidden_sizes=(64,)),
  'core': cores.LSTM(256, forget_bias=1.0),
  'skip_connection': False,
  'separate_value': False,
}


@registry.register('agent.a2c')
@dataclasses.dataclass(frozen=True)
class A2CConfig(config_lib.ActorCriticConfig):
  """Defaults of A2C; see `ActorCriticConfig` for the options.

  Apart from `gae_lambda` they equal IMPALA's, so that the two can be compared.
  They suit 8 environments. With many more, set `batch_size` to the number of
  environments: if trajectories of one policy are split over several updates,
  all updates but the first are off-policy, which A2C does not correct for.
  `paper` returns the defaults of the paper.

  Attributes:
    gae_lambda: lambda of generalized advantage estimation; 1 gives n-step
      returns that bootstrap at the end of the trajectory.
  """

  name: ClassVar[str] = 'a2c'

  gae_lambda: config_lib.Scalar = parts.scalar(0.95, high=1.0)
  separate_value: bool = True

  @classmethod
  def paper(cls: type[_A2C], **options: Any) -> _A2C:
    """Returns the settings of the paper on Atari (sections 4 and 8).

    The paper draws learning rates from LogUniform(1e-4, 1e-2) and anneals them
    to zero; this preset uses a common constant instead. A batch holds the
    trajectories of 16 actors.

    Args:
      **options: override these settings or add to them.
    """
    settings: dict[str, Any] = {
      'learning_rate': 7e-4,
      'max_gradient_norm': 40.0,
      'max_abs_reward': 1.0,
      'gae_lambda': 1.0,
      'sequence_length': 5,
      'batch_size': 16,
      'optimizer': optimization.RMSProp(0.1),
      'loss_reduction': 'sum',
      **PAPER_NETWORK,
    }
    return cls(**{**settings, **options})

  @property
  def _default_loss(self) -> policy_loss_lib.PolicyLoss:
    return functools.partial(
      advantage_actor_critic.advantage_actor_critic_loss,
      normalize_advantages=self.normalize_advantages,
    )
