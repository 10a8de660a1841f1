"""Advantage actor-critic (Mnih et al., 2016, arXiv:1602.01783).

A2C alternates between acting and learning, so that it learns from trajectories
of the current policy. Within the family it is a set of defaults, the standard
network and an n-step loss, optionally with generalized advantage estimation.

Unlike V-trace, its loss does not correct for policy lag. Where actors run ahead
of the learner, use `impala`, which is the same agent with V-trace.
"""

import dataclasses
import functools
from typing import Any, ClassVar, NamedTuple

from ftwax import hyperparameters
from ftwax.agents.actor_critic import actor_critic_config as config_lib
from ftwax.agents.actor_critic import builder, standard
from ftwax.losses import advantage_actor_critic
from ftwax.losses import policy_loss as policy_loss_lib

# Loss of one stream of transitions; `actor_critic` weights and sums its terms.
policy_loss = advantage_actor_critic.advantage_actor_critic_loss

# `make_network(environment_spec, config)`.
make_network = config_lib.make_network

# `make_builder(config)`.
make_builder = builder.ActorCriticBuilder


class Hyperparameters(NamedTuple):
  """Hyperparameters of A2C, A3C, RL2 and UNREAL, or their priors.

  Attributes:
    learning_rate: step size of the optimizer at the first update.
    learning_rate_decay_steps: number of updates over which the learning rate
      is annealed linearly to zero; infinity keeps it constant.
    rms_prop_epsilon: added to RMSProp's mean square, inside the square root.
    max_gradient_norm: maximum global norm of the gradients; larger ones are
      scaled down to it.
    discount: factor that multiplies the environment's discount.
    max_abs_reward: rewards are clipped to this magnitude in the loss.
    baseline_cost: weight of the value loss.
    entropy_cost: weight of the entropy bonus.
    gae_lambda: lambda of generalized advantage estimation; 1 gives n-step
      returns that bootstrap at the end of the trajectory.
    pixel_control_cost: weight of pixel control, if used.
    pixel_control_discount: discount of the pseudo-rewards of pixel control.
    reward_prediction_cost: weight of reward prediction, if used.
    value_replay_cost: weight of value replay, if used.
    off_policy_cost: weight of the loss on replayed trajectories, if used.
    replay_priority_exponent: exponent of the priorities of replayed
      trajectories, if replay is prioritized; 0 samples uniformly.
    replay_importance_exponent: exponent of their importance weights; 1 corrects
      fully for prioritized sampling.
  """

  learning_rate: config_lib.Scalar
  learning_rate_decay_steps: config_lib.Scalar
  rms_prop_epsilon: config_lib.Scalar
  max_gradient_norm: config_lib.Scalar
  discount: config_lib.Scalar
  max_abs_reward: config_lib.Scalar
  baseline_cost: config_lib.Scalar
  entropy_cost: config_lib.Scalar
  gae_lambda: config_lib.Scalar
  pixel_control_cost: config_lib.Scalar
  pixel_control_discount: config_lib.Scalar
  reward_prediction_cost: config_lib.Scalar
  value_replay_cost: config_lib.Scalar
  off_policy_cost: config_lib.Scalar
  replay_priority_exponent: config_lib.Scalar
  replay_importance_exponent: config_lib.Scalar


@dataclasses.dataclass(frozen=True)
class A2CConfig(standard.StandardConfig):
  """Defaults of A2C; see `StandardConfig` for the options.

  Apart from `gae_lambda` they equal IMPALA's, so that the two can be compared.
  They suit 8 environments. With many more, set `batch_size` to the number of
  environments: if trajectories of one policy are split over several updates,
  all updates but the first are off-policy, which A2C does not correct for.
  `paper` returns the defaults of the paper.
  """

  name: ClassVar[str] = 'a2c'

  priors: Hyperparameters = Hyperparameters(
    learning_rate=hyperparameters.Constant(2e-3),
    learning_rate_decay_steps=hyperparameters.Constant(float('inf')),
    rms_prop_epsilon=hyperparameters.Constant(1e-3),
    max_gradient_norm=hyperparameters.Constant(0.5),
    discount=hyperparameters.Constant(0.99),
    max_abs_reward=hyperparameters.Constant(float('inf')),
    baseline_cost=hyperparameters.Constant(0.5),
    entropy_cost=hyperparameters.Constant(0.01),
    gae_lambda=hyperparameters.Constant(0.95),
    pixel_control_cost=hyperparameters.Constant(0.05),
    pixel_control_discount=hyperparameters.Constant(0.9),
    reward_prediction_cost=hyperparameters.Constant(1.0),
    value_replay_cost=hyperparameters.Constant(1.0),
    off_policy_cost=hyperparameters.Constant(1.0),
    replay_priority_exponent=hyperparameters.Constant(0.9),
    replay_importance_exponent=hyperparameters.Constant(0.6),
  )
  separate_value: bool = True

  @classmethod
  def paper(cls, **options: Any) -> 'A2CConfig':
    """Returns the settings of the paper on Atari (sections 4 and 8).

    The paper draws learning rates from LogUniform(1e-4, 1e-2) and anneals them
    to zero; this preset uses a common constant instead. A batch holds the
    trajectories of 16 actors.

    Args:
      **options: override these settings or add to them.
    """
    settings: dict[str, Any] = {
      'priors': A2CConfig.priors._replace(
        learning_rate=hyperparameters.Constant(7e-4),
        rms_prop_epsilon=hyperparameters.Constant(0.1),
        max_gradient_norm=hyperparameters.Constant(40.0),
        max_abs_reward=hyperparameters.Constant(1.0),
        gae_lambda=hyperparameters.Constant(1.0),
      ),
      'sequence_length': 5,
      'batch_size': 16,
      'optimizer': 'rms_prop',
      'loss_reduction': 'sum',
      **standard.PAPER_NETWORK,
    }
    return cls(**{**settings, **options})

  @property
  def _default_loss(self) -> policy_loss_lib.PolicyLoss:
    return functools.partial(
      policy_loss, normalize_advantages=bool(self.normalize_advantages)
    )
