"""RL2: an agent that learns within a trial, through its memory alone.

Duan et al., 2016 (arXiv:1611.02779) and Wang et al., 2016 (arXiv:1611.05763).
Within the family it is A2C with generalized advantage estimation and a memory
of two levels: one is reset at every episode, the other at every new trial. The
environment must mark both; see `environments.trials`.
"""

import dataclasses
from typing import ClassVar

from ftwax import registry, types
from ftwax.agents import a2c
from ftwax.agents.actor_critic import actor_critic_config as config_lib
from ftwax.agents.actor_critic import standard
from ftwax.networks import recurrent, rl2_core


@registry.register('agent.rl2')
@dataclasses.dataclass(frozen=True)
class RL2Config(a2c.A2CConfig):
  """Defaults of RL2; see `StandardConfig` for the options.

  `core` and `hidden_size` apply to each of the two levels.
  """

  name: ClassVar[str] = 'rl2'

  learning_rate: config_lib.Scalar = 1e-3
  entropy_cost: config_lib.Scalar = 0.05
  sequence_length: int = 20
  batch_size: int = 16
  vector_hidden_sizes: tuple[int, ...] = (64,)
  forget_bias: float = 1.0
  skip_connection: bool = False
  separate_value: bool = False

  def __post_init__(self) -> None:
    """Checks that no wiring is given, since both cores see the whole input."""
    super().__post_init__()
    if self.wiring:
      raise ValueError(
        f'wiring ({self.wiring}) must be empty for a two-level memory, whose'
        ' levels both see the whole input; choose ().'
      )

  def _default_network(
    self, environment_spec: types.EnvironmentSpec
  ) -> types.RecurrentNetwork:
    """Makes a network whose observations must mark episode starts."""
    rl2_core.check_observation_spec(environment_spec.observations)
    return recurrent.make_recurrent_network(
      environment_spec,
      make_torso=lambda: rl2_core.make_torso(
        environment_spec.observations, self.make_embedding
      ),
      make_core=lambda: rl2_core.RL2Core(self.make_core(), self.make_core()),
      head_options=self.head_options,
      separate_value=self.separate_value,
      auxiliary_heads=standard.make_heads(environment_spec, self),
    )
