"""UNREAL (Jaderberg et al., 2017, arXiv:1611.05397).

An advantage actor-critic with auxiliary tasks: pixel control, reward prediction
and value replay, which learn from replayed trajectories. Within the family it
is A2C with these tasks on by default; every agent has them as options.
"""

import dataclasses
from typing import Any, ClassVar

from ftwax import hyperparameters, registry
from ftwax.agents import a2c
from ftwax.agents.actor_critic import auxiliary
from ftwax.agents.actor_critic import tasks as tasks_lib


@registry.register('agent.unreal')
@dataclasses.dataclass(frozen=True)
class UNREALConfig(a2c.A2CConfig):
  """Defaults of UNREAL; see `ActorCriticConfig` for the options.

  They equal A2C's, with auxiliary tasks. Value replay has the same weight as
  the value loss of fresh trajectories. `paper` returns the settings of the
  paper, which does not have `tasks_lib.OffPolicy`.
  """

  name: ClassVar[str] = 'unreal'

  tasks: tuple[str | tasks_lib.Task | auxiliary.AuxiliaryTask, ...] = (
    tasks_lib.PixelControl(cost=1e-3),
    tasks_lib.RewardPrediction(cost=0.1),
    tasks_lib.ValueReplay(cost=0.5),
  )

  @classmethod
  def paper(cls, **options: Any) -> 'UNREALConfig':
    """Returns the settings of the paper on Labyrinth (section 4, appendix C).

    As in the paper, the learning rate, the entropy cost and the cost of pixel
    control are sampled log-uniformly. The paper anneals the learning rate to
    zero.

    Args:
      **options: override these settings or add to them.
    """
    settings: dict[str, Any] = {
      'learning_rate': hyperparameters.LogUniform(1e-4, 5e-3),
      'entropy_cost': hyperparameters.LogUniform(5e-4, 1e-2),
      'tasks': (
        tasks_lib.PixelControl(cost=hyperparameters.LogUniform(0.01, 0.1)),
        tasks_lib.RewardPrediction(),
        tasks_lib.ValueReplay(),
      ),
      'sequence_length': 20,
      'batch_size': 1,
    }
    return super().paper(**{**settings, **options})
