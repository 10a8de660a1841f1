"""IMPALA (Espeholt et al., 2018, arXiv:1802.01561).

Actors with lagging parameters fill a queue of trajectories, and the learner
corrects for the lag by V-trace. Within the family it is a set of defaults and
the V-trace loss.
"""

import dataclasses
import functools
from typing import Any, ClassVar

from ftwax import registry
from ftwax.agents import a2c
from ftwax.agents.actor_critic import actor_critic_config as config_lib
from ftwax.agents.actor_critic import optimization
from ftwax.losses import policy_loss as policy_loss_lib
from ftwax.losses import v_trace


@registry.register('agent.impala')
@dataclasses.dataclass(frozen=True)
class IMPALAConfig(config_lib.ActorCriticConfig):
  """Defaults of IMPALA; see `ActorCriticConfig` for the options.

  One set of defaults learns small tasks of several kinds (`docs/results.md`);
  `atari_paper` returns the settings of the paper.
  """

  name: ClassVar[str] = 'impala'

  separate_value: bool = True

  @classmethod
  def atari_paper(cls, **options: Any) -> 'IMPALAConfig':
    """Returns the settings of the paper on Atari (appendix G).

    The paper anneals the learning rate to zero: to do so, add
    `.decayed_over(num_steps)`.

    Args:
      **options: override these settings or add to them.
    """
    settings: dict[str, Any] = {
      'learning_rate': 6e-4,
      'max_gradient_norm': 40.0,
      'max_abs_reward': 1.0,
      'sequence_length': 20,
      'batch_size': 32,
      'optimizer': optimization.RMSProp(0.01),
      'loss_reduction': 'sum',
      **a2c.PAPER_NETWORK,
    }
    return cls(**{**settings, **options})

  @property
  def _default_loss(self) -> policy_loss_lib.PolicyLoss:
    return functools.partial(
      v_trace.vtrace_loss, normalize_advantages=self.normalize_advantages
    )
