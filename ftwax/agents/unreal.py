"""UNREAL (Jaderberg et al., 2017, arXiv:1611.05397).

An advantage actor-critic with auxiliary tasks: pixel control, reward prediction
and value replay, which learn from a replay of past trajectories. As an agent of
the family it is A2C with these tasks on by default; every agent has them as
options.
"""

import dataclasses

from ftwax import hyperparameters
from ftwax.agents import a2c

# Loss of one stream of transitions, whose terms `actor_critic` weighs and sums.
policy_loss = a2c.policy_loss

# `make_network(environment_spec, config)`.
make_network = a2c.make_network

Hyperparameters = a2c.Hyperparameters

# `make_builder(config)`.
make_builder = a2c.make_builder


@dataclasses.dataclass(frozen=True)
class UNREALConfig(a2c.A2CConfig):
  """Defaults of UNREAL; see `StandardConfig` for the options.

  The paper draws the learning rate, the entropy cost and the cost of pixel
  control log-uniformly; the defaults are values inside its ranges. The paper
  does not have `use_off_policy`.
  """

  priors: Hyperparameters = a2c.A2CConfig.priors._replace(
    learning_rate=hyperparameters.Constant(7e-4),
    rms_prop_epsilon=hyperparameters.Constant(0.1),
    entropy_cost=hyperparameters.Constant(1e-3),
    pixel_control_cost=hyperparameters.Constant(0.05),
    pixel_control_discount=hyperparameters.Constant(0.9),
    reward_prediction_cost=hyperparameters.Constant(1.0),
    value_replay_cost=hyperparameters.Constant(1.0),
  )
  use_pixel_control: bool = True
  use_reward_prediction: bool = True
  use_value_replay: bool = True
