"""RL2: an agent that learns within a trial, through its memory alone.

Duan et al., 2016 (arXiv:1611.02779) and Wang et al., 2016 (arXiv:1611.05763).
Within the family it is A2C with generalized advantage estimation and a memory
of two levels: one is reset at every episode, the other at every new trial. The
environment must mark both; see `environments.trials`.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar

from ftwax import registry, types
from ftwax.agents import a2c
from ftwax.agents.actor_critic import actor_critic_config as config_lib
from ftwax.networks import cores, entry_torsos, recurrence, rl2_core, torsos


@registry.register('agent.rl2')
@dataclasses.dataclass(frozen=True)
class RL2Config(a2c.A2CConfig):
  """Defaults of RL2; see `ActorCriticConfig` for the options.

  `core` makes each of the two levels.
  """

  name: ClassVar[str] = 'rl2'

  learning_rate: config_lib.Scalar = 1e-3
  entropy_cost: config_lib.Scalar = 0.05
  sequence_length: int = 20
  batch_size: int = 16
  torso: str | torsos.Torso | Callable[[], entry_torsos.Torso] = torsos.Torso(  # noqa: RUF009
    hidden_sizes=(64,)
  )
  core: str | cores.MakeCore = cores.LSTM(forget_bias=1.0)  # noqa: RUF009
  skip_connection: bool = False
  separate_value: bool = False

  def __post_init__(self) -> None:
    """Checks that no wiring is given, since both levels see the whole input."""
    super().__post_init__()
    if wiring := getattr(self.core, 'wiring', ()):
      raise ValueError(
        f'wiring ({wiring}) must be empty for a two-level memory, whose levels'
        ' both see the whole input; choose ().'
      )

  def make_network(
    self, environment_spec: types.EnvironmentSpec
  ) -> types.RecurrentNetwork:
    """Makes a network whose observations must mark episode starts."""
    rl2_core.check_observation_spec(environment_spec.observations)
    return super().make_network(environment_spec)

  def make_torso(
    self, observation_spec: types.SpecTree
  ) -> Callable[[Any], types.Array]:
    """Makes a torso whose first feature marks episode starts."""
    return rl2_core.make_torso(observation_spec, super().make_torso)

  def make_core(self) -> recurrence.RecurrentCore:
    """Makes the core of two levels."""
    return rl2_core.RL2Core(super().make_core(), super().make_core())
