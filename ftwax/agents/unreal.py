"""UNREAL (Jaderberg et al., 2017, arXiv:1611.05397).

An advantage actor-critic with auxiliary tasks: pixel control, reward prediction
and value replay, which learn from a replay of past trajectories. As an agent of
the family it is A2C with these tasks on by default; every agent has them as
options.
"""

import dataclasses
from typing import Any

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

  Those of A2C, with tasks. Errors of replayed values weigh as much as those of
  fresh ones. The paper's are those of `paper`; it does not have
  `use_off_policy`.
  """

  priors: Hyperparameters = a2c.A2CConfig.priors._replace(
    pixel_control_cost=hyperparameters.Constant(1e-3),
    reward_prediction_cost=hyperparameters.Constant(0.1),
    value_replay_cost=hyperparameters.Constant(0.5),
  )
  use_pixel_control: bool = True
  use_reward_prediction: bool = True
  use_value_replay: bool = True

  @classmethod
  def paper(cls, **options: Any) -> 'UNREALConfig':
    """Returns the settings of the paper on Labyrinth (section 4, appendix C).

    The learning rate, the entropy cost and the cost of pixel control are drawn
    log-uniformly, as there. The learning rate falls to zero in the paper.

    Args:
      **options: in place of these, or beside them.
    """
    settings: dict[str, Any] = {
      'priors': a2c.A2CConfig.paper().priors._replace(
        learning_rate=hyperparameters.LogUniform(1e-4, 5e-3),
        entropy_cost=hyperparameters.LogUniform(5e-4, 1e-2),
        pixel_control_cost=hyperparameters.LogUniform(0.01, 0.1),
        reward_prediction_cost=hyperparameters.Constant(1.0),
        value_replay_cost=hyperparameters.Constant(1.0),
      ),
      'sequence_length': 20,
      'batch_size': 1,
    }
    config = super().paper(**{**settings, **options})
    assert isinstance(config, cls)
    return config
