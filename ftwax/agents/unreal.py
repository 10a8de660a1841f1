"""UNREAL (Jaderberg et al., 2017, arXiv:1611.05397).

An advantage actor-critic with auxiliary tasks: pixel control, reward prediction
and value replay, which learn from a replay of its past. As an agent of the
family it is a set of defaults, the standard network with heads for the tasks,
the loss of A2C, and the tasks, all of which are on by default.
"""

import dataclasses
from typing import Any

from ftwax import hyperparameters, types
from ftwax.agents import a2c
from ftwax.agents.actor_critic import (
  auxiliary,
  builder,
  scalars,
  standard,
  tasks,
)

# The loss of one stream; `agents.actor_critic` weighs and sums its terms.
policy_loss = a2c.policy_loss


Hyperparameters = scalars.extend(
  __name__,
  a2c.Hyperparameters,
  **tasks.HYPERPARAMETERS,
  off_policy_cost='weight of the actor-critic on replayed trajectories.',
)


@dataclasses.dataclass(frozen=True)
class UNREALConfig(tasks.TaskOptions, standard.StandardConfig):
  """Options of UNREAL; see `TaskOptions` and `StandardConfig` for the rest.

  The paper draws the learning rate, the entropy cost and the cost of pixel
  control log-uniformly; the defaults are values inside its ranges.

  Attributes:
    use_off_policy: learns the policy from replayed trajectories too, with
      V-trace, which the paper does not; the value is then learned there as
      well.
  """

  priors: Any = Hyperparameters(
    *a2c.A2CConfig.priors._replace(
      learning_rate=hyperparameters.Constant(7e-4),
      rms_prop_epsilon=hyperparameters.Constant(0.1),
      entropy_cost=hyperparameters.Constant(1e-3),
    ),
    pixel_control_cost=hyperparameters.Constant(0.05),
    pixel_control_discount=hyperparameters.Constant(0.9),
    reward_prediction_cost=hyperparameters.Constant(1.0),
    value_replay_cost=hyperparameters.Constant(1.0),
    off_policy_cost=hyperparameters.Constant(1.0),
  )
  use_off_policy: bool = False

  def __post_init__(self):
    """Checks that the tasks go together."""
    super().__post_init__()
    if self.use_off_policy and self.use_value_replay:
      raise ValueError(
        f'use_value_replay ({self.use_value_replay}) must be off where'
        ' use_off_policy is on, which learns the value from the same'
        ' trajectories; choose one of the two.'
      )


def make_network(
  environment_spec: types.EnvironmentSpec, config: UNREALConfig
) -> types.RecurrentNetwork:
  """Makes the agent's network for an environment.

  Args:
    environment_spec: tells observations and actions.
    config: tells the parts.

  Returns:
    The standard network with a head for each task that needs one.

  Raises:
    ValueError: if the frame does not suit pixel control.
  """
  return standard.make_network(
    environment_spec, config, standard.make_heads(environment_spec, config)
  )


def make_auxiliary_tasks(
  config: UNREALConfig,
) -> tuple[auxiliary.AuxiliaryTask, ...]:
  """Makes what is learned beside policy and value."""
  made = tasks.make_tasks(config)
  if config.use_off_policy:
    made += (tasks.off_policy_task(),)
  return made


def make_builder(config: UNREALConfig) -> builder.ActorCriticBuilder:
  """Makes the agent's builder."""
  return builder.ActorCriticBuilder(
    config, policy_loss, make_auxiliary_tasks(config)
  )
