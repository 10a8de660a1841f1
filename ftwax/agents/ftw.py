"""For The Win (Jaderberg et al., 2019, Science 364:859, arXiv:1807.01281).

    observation -> torso -> core -> z -> policy, value, pixel control
                     |
                     `-> reward prediction

The core is a temporal hierarchy whose levels share a memory; see
`networks.rpth`. The agent minimizes

  L = L_V-trace policy + baseline_cost L_V-trace value - entropy_cost entropy
    + pixel_control_cost L_pixel control + reward_prediction_cost L_prediction
    + kl_posterior_prior_cost KL(Q || P) + kl_prior_fixed_cost KL(P || N(0, s))

(supplement, section "Agent objective"), summed over time and batch, with one
RMSProp step per update. Rewards are the agent's own: a sum of the environment's
events weighted by its internal rewards. All costs, the slow core's period and
the internal rewards are data that a population evolves.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Any, ClassVar

from ftwax import hyperparameters, registry
from ftwax.agents import impala, ppo
from ftwax.agents.actor_critic import actor_critic_config as config_lib
from ftwax.agents.actor_critic import auxiliary, optimization
from ftwax.agents.actor_critic import tasks as tasks_lib
from ftwax.networks import cores, entry_torsos, torsos
from ftwax.networks import heads as heads_lib

Initial = hyperparameters.Initial
LogUniform = hyperparameters.LogUniform

_SIZE = 256

# The memory of the whole agent, which its levels share.
MEMORY = cores.Memory(num_slots=450, word_size=32, num_reads=4)


@registry.register('agent.ftw')
@dataclasses.dataclass(frozen=True)
class FTWConfig(impala.IMPALAConfig):
  """The agent of the paper, meant for about 2e9 steps of a population.

  Priors are those of the paper's population (supplement, table of
  hyperparameters), and all layers have 256 units. There is no gradient
  clipping. `small` learns small tasks within minutes.
  """

  name: ClassVar[str] = 'ftw'

  learning_rate: config_lib.Scalar = LogUniform(1e-5, 5e-3)
  max_gradient_norm: config_lib.Scalar = math.inf
  entropy_cost: config_lib.Scalar = LogUniform(5e-4, 1e-2)

  core: str | cores.MakeCore = cores.RPTH(  # noqa: RUF009
    _SIZE,
    memory=MEMORY,
    slow_period=hyperparameters.UniformInteger(5, 20),
    fast_to_slow_gradient_scale=LogUniform(0.1, 1.0),
  )
  torso: str | torsos.Torso | Callable[[], entry_torsos.Torso] = torsos.Torso(  # noqa: RUF009
    'ftw', num_features=_SIZE, hidden_sizes=(_SIZE,)
  )
  heads: heads_lib.Heads = heads_lib.Heads((_SIZE,), (_SIZE,))  # noqa: RUF009
  skip_connection: bool = False
  separate_value: bool = False

  tasks: tuple[str | tasks_lib.Task | auxiliary.AuxiliaryTask, ...] = (
    tasks_lib.LatentKL(LogUniform(1e-3, 1.0), LogUniform(1e-4, 0.1)),
    tasks_lib.PixelControl(cost=LogUniform(0.01, 0.1)),
    tasks_lib.RewardPrediction(cost=LogUniform(0.1, 1.0)),
  )
  internal_rewards_prior: config_lib.InternalRewardsPrior | None = None

  sequence_length: int = 20
  batch_size: int = 16
  optimizer: str | optimization.Optimizer = optimization.RMSProp(1e-5)  # noqa: RUF009
  loss_reduction: str = 'sum'


def small(**options: Any) -> ppo.PPOConfig:
  """Returns a small agent with the hierarchy and the tasks, on PPO's loss.

  It learns small tasks of several kinds within minutes (`docs/results.md`).
  The clipped loss tolerates several epochs of minibatches per update, and
  normalizes advantages, so that the scale of a member's internal rewards does
  not affect the policy. Latents are means, which short runs learn from sooner.
  Values work for a single agent, from which a population explores: the paper's
  KL costs would hold latents near their prior from the start.

  Args:
    **options: override these settings or add to them.
  """
  settings: dict[str, Any] = {
    'learning_rate': Initial(1e-3, (1e-5, 5e-3)),
    'entropy_cost': Initial(1e-2, (5e-4, 5e-2)),
    'core': small_core(),
    'torso': torsos.Torso('ftw', num_features=64, hidden_sizes=(64,)),
    'heads': heads_lib.Heads((64,), (64,)),
    'skip_connection': False,
    'tasks': (
      tasks_lib.LatentKL(
        Initial(1e-8, (1e-10, 1.0)), Initial(1e-8, (1e-10, 0.1))
      ),
      tasks_lib.PixelControl(cost=Initial(1e-3, (1e-4, 0.1))),
      tasks_lib.RewardPrediction(cost=Initial(0.1, (0.01, 1.0))),
    ),
    'internal_rewards_prior': None,
    'batch_size': 64,
  }
  return ppo.PPOConfig(**{**settings, **options})


def named_core(name: str, hierarchy: cores.RPTH) -> Any:
  """Returns a core by name, of the size of a hierarchy.

  Args:
    name: `rpth_dnc` for the hierarchy, `rpth` for it without its memory, `lstm`
      for the core of a level if it is one, or one of `cores.NAMED`.
    hierarchy: a hierarchy with a memory.
  """
  chosen = {
    'rpth_dnc': hierarchy,
    'rpth': hierarchy.replace(memory=None),
    'lstm': hierarchy.level,
  }
  if name in chosen:
    return chosen[name]
  return cores.find(name).with_size(hierarchy.hidden_size)


def small_core(size: int = 64, **options: Any) -> cores.RPTH:
  """Returns the hierarchy of `small`, of LSTMs that remember from the start.

  Args:
    size: units of each level.
    **options: other options of `cores.RPTH`.
  """
  settings: dict[str, Any] = {'latent_size': 16, 'noise_scale': 0.0}
  return cores.RPTH(cores.LSTM(size), **{**settings, **options})
