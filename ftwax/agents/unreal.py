"""UNREAL (Jaderberg et al., 2017, arXiv:1611.05397).

An advantage actor-critic with auxiliary tasks: pixel control, reward prediction
and value replay, which learn from a replay of its past. As an agent of the
family it is a set of defaults, the standard network with heads for the tasks,
the loss of A2C, and the tasks, all of which are on by default.
"""

import dataclasses
from typing import Any, NamedTuple

from ftwax import hyperparameters, types
from ftwax.agents.actor_critic import auxiliary, builder, standard, tasks
from ftwax.losses import advantage_actor_critic
from ftwax.networks import auxiliary_heads, recurrent

# The loss of one stream; `agents.actor_critic` weighs and sums its terms.
policy_loss = advantage_actor_critic.advantage_actor_critic_loss


class Hyperparameters(NamedTuple):
  """Scalars of the agent, or their priors.

  Attributes:
    learning_rate: see `actor_critic.config`, as for all up to `entropy_cost`.
    learning_rate_decay_steps: see there.
    rms_prop_epsilon: see there.
    max_gradient_norm: see there.
    discount: see there.
    max_abs_reward: see there.
    baseline_cost: see there.
    entropy_cost: see there.
    gae_lambda: 1 for n-step returns, which reach to the end of the trajectory.
    pixel_control_cost: weight of pixel control.
    pixel_control_discount: of its pseudo-rewards.
    reward_prediction_cost: weight of reward prediction.
    value_replay_cost: weight of value replay.
    off_policy_cost: weight of the actor-critic on replayed trajectories.
  """

  learning_rate: Any
  learning_rate_decay_steps: Any
  rms_prop_epsilon: Any
  max_gradient_norm: Any
  discount: Any
  max_abs_reward: Any
  baseline_cost: Any
  entropy_cost: Any
  gae_lambda: Any
  pixel_control_cost: Any
  pixel_control_discount: Any
  reward_prediction_cost: Any
  value_replay_cost: Any
  off_policy_cost: Any


@dataclasses.dataclass(frozen=True)
class UNREALConfig(standard.StandardConfig):
  """Options of UNREAL; see `StandardConfig` for the rest.

  The paper draws the learning rate, the entropy cost and the cost of pixel
  control log-uniformly; the defaults are values inside its ranges.

  Attributes:
    use_pixel_control: learns to change what is seen.
    use_reward_prediction: learns to tell the next reward's sign.
    use_value_replay: regresses the value on replayed trajectories too.
    use_off_policy: learns the policy from them too, with V-trace, which
      the paper does not; the value is then learned there as well.
    frame_entry: the image that pixel control is of, in an observation that is
      a dict; None where the observation is the image.
    cell_size: pixels on each side of a cell of pixel control.
    crop_size: (height, width) in the middle of the frame that cells cover; None
      for as much as they can.
  """

  priors: Any = Hyperparameters(
    learning_rate=hyperparameters.Constant(7e-4),
    learning_rate_decay_steps=hyperparameters.Constant(float('inf')),
    rms_prop_epsilon=hyperparameters.Constant(0.1),
    max_gradient_norm=hyperparameters.Constant(40.0),
    discount=hyperparameters.Constant(0.99),
    max_abs_reward=hyperparameters.Constant(float('inf')),
    baseline_cost=hyperparameters.Constant(0.5),
    entropy_cost=hyperparameters.Constant(1e-3),
    gae_lambda=hyperparameters.Constant(1.0),
    pixel_control_cost=hyperparameters.Constant(0.05),
    pixel_control_discount=hyperparameters.Constant(0.9),
    reward_prediction_cost=hyperparameters.Constant(1.0),
    value_replay_cost=hyperparameters.Constant(1.0),
    off_policy_cost=hyperparameters.Constant(1.0),
  )
  use_pixel_control: bool = True
  use_reward_prediction: bool = True
  use_value_replay: bool = True
  use_off_policy: bool = False
  frame_entry: str | None = None
  cell_size: int = 4
  crop_size: tuple[int, int] | None = None

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
  feature_heads, observation_heads = {}, {}
  if config.use_pixel_control:
    feature_heads[tasks.PIXEL_CONTROL] = standard.pixel_control_head(
      environment_spec, config.frame_entry, config.cell_size, config.crop_size
    )
  if config.use_reward_prediction:
    observation_heads[tasks.REWARD_PREDICTION] = recurrent.ObservationHead(
      auxiliary_heads.RewardPredictionHead, config.reward_prediction_length
    )
  return standard.make_network(
    environment_spec, config, feature_heads, observation_heads
  )


def make_auxiliary_tasks(
  config: UNREALConfig,
) -> tuple[auxiliary.AuxiliaryTask, ...]:
  """Makes what is learned beside policy and value."""
  made = []
  if config.use_pixel_control:
    made.append(
      tasks.pixel_control_task(
        config.cell_size, config.crop_size, config.frame_entry
      )
    )
  if config.use_reward_prediction:
    made.append(tasks.reward_prediction_task())
  if config.use_value_replay:
    made.append(tasks.value_replay_task())
  if config.use_off_policy:
    made.append(tasks.off_policy_task())
  return tuple(made)


def make_builder(config: UNREALConfig) -> builder.ActorCriticBuilder:
  """Makes the agent's builder."""
  return builder.ActorCriticBuilder(
    config, policy_loss, make_auxiliary_tasks(config)
  )
