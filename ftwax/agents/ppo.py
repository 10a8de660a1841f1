"""Proximal policy optimization (Schulman et al., 2017, arXiv:1707.06347).

Within the family it is a set of defaults, the standard network and the clipped
loss, with several epochs of minibatches per update. Minibatches are whole
sequences, each with the actor's recurrent state at its start, so that PPO
trains any recurrent core. The old policy is the behaviour policy.
"""

import dataclasses
from typing import Any, ClassVar, NamedTuple

from ftwax import hyperparameters
from ftwax.agents.actor_critic import actor_critic_config as config_lib
from ftwax.agents.actor_critic import builder, standard
from ftwax.losses import clipped_surrogate
from ftwax.losses import policy_loss as policy_loss_lib

# Loss of one stream of transitions; `actor_critic` weights and sums its terms.
policy_loss = clipped_surrogate.ppo_loss

# `make_network(environment_spec, config)`.
make_network = config_lib.make_network

# `make_builder(config)`.
make_builder = builder.ActorCriticBuilder


class Hyperparameters(NamedTuple):
  """Hyperparameters of PPO, or their priors.

  Attributes:
    learning_rate: step size of the optimizer at the first update.
    learning_rate_decay_steps: number of updates over which the learning rate
      is annealed linearly to zero; infinity keeps it constant.
    rms_prop_epsilon: added to RMSProp's mean square, inside the square root;
      Adam ignores it.
    max_gradient_norm: maximum global norm of the gradients; larger ones are
      scaled down to it.
    discount: factor that multiplies the environment's discount.
    max_abs_reward: rewards are clipped to this magnitude in the loss.
    baseline_cost: weight of the value loss.
    entropy_cost: weight of the entropy bonus.
    gae_lambda: lambda of generalized advantage estimation.
    clip_epsilon: distance from 1 at which the ratio of the new to the old
      probability is clipped.
    value_clip: change of a value in an update beyond which its loss has no
      gradient; infinity for no limit.
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
  clip_epsilon: config_lib.Scalar
  value_clip: config_lib.Scalar
  pixel_control_cost: config_lib.Scalar
  pixel_control_discount: config_lib.Scalar
  reward_prediction_cost: config_lib.Scalar
  value_replay_cost: config_lib.Scalar
  off_policy_cost: config_lib.Scalar
  replay_priority_exponent: config_lib.Scalar
  replay_importance_exponent: config_lib.Scalar


@dataclasses.dataclass(frozen=True)
class PPOConfig(standard.StandardConfig):
  """Defaults of PPO; see `StandardConfig` for the options.

  One set of defaults learns small tasks of several kinds (`docs/results.md`);
  `atari_paper` returns the settings of the paper.
  """

  name: ClassVar[str] = 'ppo'

  priors: Hyperparameters = Hyperparameters(
    learning_rate=hyperparameters.Constant(1e-3),
    learning_rate_decay_steps=hyperparameters.Constant(float('inf')),
    rms_prop_epsilon=hyperparameters.Constant(1e-3),
    max_gradient_norm=hyperparameters.Constant(0.5),
    discount=hyperparameters.Constant(0.99),
    max_abs_reward=hyperparameters.Constant(float('inf')),
    baseline_cost=hyperparameters.Constant(0.5),
    entropy_cost=hyperparameters.Constant(0.01),
    gae_lambda=hyperparameters.Constant(0.95),
    clip_epsilon=hyperparameters.Constant(0.2),
    value_clip=hyperparameters.Constant(float('inf')),
    pixel_control_cost=hyperparameters.Constant(0.05),
    pixel_control_discount=hyperparameters.Constant(0.9),
    reward_prediction_cost=hyperparameters.Constant(1.0),
    value_replay_cost=hyperparameters.Constant(1.0),
    off_policy_cost=hyperparameters.Constant(1.0),
    replay_priority_exponent=hyperparameters.Constant(0.9),
    replay_importance_exponent=hyperparameters.Constant(0.6),
  )
  sequence_length: int = 16
  batch_size: int = 32
  num_epochs: int = 10
  num_minibatches: int = 8
  normalize_advantages: bool = True

  @classmethod
  def atari_paper(cls, **options: Any) -> 'PPOConfig':
    """Returns the settings of the paper on Atari (table 5).

    The paper anneals the learning rate and the clipping range to zero: to do
    so, set `learning_rate_decay_steps` to the number of updates. Gradient
    clipping and normalized advantages follow the paper's implementation.

    Args:
      **options: override these settings or add to them.
    """
    settings: dict[str, Any] = {
      'priors': PPOConfig.priors._replace(
        learning_rate=hyperparameters.Constant(2.5e-4),
        max_abs_reward=hyperparameters.Constant(1.0),
        baseline_cost=hyperparameters.Constant(1.0),
        clip_epsilon=hyperparameters.Constant(0.1),
      ),
      'decayed_hyperparameters': ('learning_rate', 'clip_epsilon'),
      'sequence_length': 128,
      'batch_size': 8,
      'num_epochs': 3,
      'num_minibatches': 4,
      **standard.PAPER_NETWORK,
      'core': 'feed_forward',
    }
    return cls(**{**settings, **options})

  @property
  def targets_fn(self) -> policy_loss_lib.MakeTargets | None:
    """Computes the advantages, which the whole batch may normalize."""
    if self.normalize_advantages:
      return clipped_surrogate.make_targets
    return clipped_surrogate.make_plain_targets

  @property
  def _default_loss(self) -> policy_loss_lib.PolicyLoss:
    return policy_loss
