"""Advantage actor-critic (Mnih et al., 2016, arXiv:1602.01783).

A2C: acting and learning take turns, so that the trajectories learned from are
those of the current policy. As an agent of the family it is a set of defaults,
the standard network and the loss with n-step returns, or with generalized
advantages.

Its loss does not correct for the lag where actors run ahead of the learner, as
A3C's do: choose `impala`, which is the same agent with V-trace.
"""

import dataclasses
import functools
from typing import Any, NamedTuple

from ftwax import hyperparameters
from ftwax.agents.actor_critic import actor_critic_config as config_lib
from ftwax.agents.actor_critic import builder, standard, tasks
from ftwax.losses import advantage_actor_critic
from ftwax.losses import policy_loss as policy_loss_lib

# Loss of one stream of transitions, whose terms `actor_critic` weighs and sums.
policy_loss = advantage_actor_critic.advantage_actor_critic_loss

# `make_network(environment_spec, config)`.
make_network = standard.make_network


class Hyperparameters(NamedTuple):
  """Hyperparameters of A2C, A3C, RL2 and UNREAL, or their priors.

  Attributes:
    learning_rate: step size of the optimizer at the first update.
    learning_rate_decay_steps: updates in which it falls linearly to zero;
      infinity for never.
    rms_prop_epsilon: added to RMSProp's mean square, under the root.
    max_gradient_norm: gradients of a larger global norm are scaled down to it.
    discount: multiplies the environment's discount.
    max_abs_reward: rewards are clipped to this magnitude in the loss.
    baseline_cost: weight of the value loss.
    entropy_cost: weight of the policy's entropy, which is maximized.
    gae_lambda: lambda of generalized advantages; 1 for n-step returns, which
      reach to the end of the trajectory.
    pixel_control_cost: weight of pixel control, if it is used.
    pixel_control_discount: discount of its pseudo-rewards.
    reward_prediction_cost: weight of reward prediction, if it is used.
    value_replay_cost: weight of value replay, if it is used.
    off_policy_cost: weight of the loss on replayed trajectories, if it is used.
    replay_priority_exponent: to which priorities of replayed trajectories are
      raised, if they have any.
    replay_importance_exponent: of their importance weights; 1 corrects fully.
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
  They are for 8 environments. Where there are many more, set `batch_size` to
  their number: of several updates from trajectories of one policy all but the
  first are off it, and nothing corrects for that. The paper's defaults are
  those of `paper`.
  """

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

    Its learning rates are drawn from LogUniform(1e-4, 1e-2) and fall to zero;
    here stands the one that is usual. Batches are those of 16 actors.

    Args:
      **options: in place of these, or beside them.
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


def make_builder(
  config: standard.StandardConfig,
) -> builder.ActorCriticBuilder:
  """Makes the agent's builder."""
  loss: policy_loss_lib.PolicyLoss = policy_loss
  if config.normalize_advantages:
    loss = functools.partial(policy_loss, normalize_advantages=True)
  return builder.ActorCriticBuilder(config, loss, tasks.make_tasks(config))
