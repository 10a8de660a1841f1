"""Parallelised Q-network (Gallici et al., 2024, arXiv:2407.04811).

PQN learns action values from fresh trajectories alone, by Q(lambda), without a
replay and without target parameters. What keeps it stable is a normalized
network and many environments. As in PPO, an update has several epochs of
minibatches, which are whole sequences for cores with memory, and the targets
are computed before the first of its steps.
"""

import dataclasses
from typing import ClassVar

from ftwax import parts, registry
from ftwax.agents.actor_critic import action_value_config
from ftwax.agents.actor_critic import actor_critic_config as config_lib
from ftwax.agents.actor_critic import exploration as exploration_lib
from ftwax.losses import policy_loss as policy_loss_lib
from ftwax.losses import q_learning
from ftwax.networks import cores


@registry.register('agent.pqn')
@dataclasses.dataclass(frozen=True)
class PQNConfig(action_value_config.ActionValueConfig):
  """Defaults of PQN; see `ActionValueConfig` for the options that it shares.

  The paper normalizes each layer. Here the core is, by default.

  Attributes:
    q_lambda: lambda of the returns; 0 for targets of one step.
  """

  name: ClassVar[str] = 'pqn'

  learning_rate: config_lib.Scalar = 5e-4
  max_gradient_norm: config_lib.Scalar = parts.scalar(10.0, unlimited=True)
  q_lambda: config_lib.Scalar = parts.scalar(0.65, high=1.0)

  core: str | cores.MakeCore = cores.LSTM(layer_norm=True)  # noqa: RUF009
  exploration: exploration_lib.EpsilonLadder = exploration_lib.EpsilonLadder(  # noqa: RUF009
    epsilon=0.2, exponent=1.0
  )
  normalize_returns: bool = True

  sequence_length: int = 16
  batch_size: int = 32
  num_epochs: int = 4
  num_minibatches: int = 8

  @property
  def targets_fn(self) -> policy_loss_lib.MakeTargets | None:
    """Computes the lambda returns of a batch."""
    return q_learning.make_lambda_targets

  @property
  def _default_loss(self) -> policy_loss_lib.PolicyLoss:
    return q_learning.q_lambda_loss
