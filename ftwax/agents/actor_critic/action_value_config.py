"""The config of agents that learn action values, beside those with a policy."""

import dataclasses
from typing import Any, ClassVar

from ftwax import parts, types
from ftwax.agents.actor_critic import acting
from ftwax.agents.actor_critic import actor_critic_config as config_lib
from ftwax.agents.actor_critic import exploration as exploration_lib
from ftwax.networks import heads as heads_lib


@dataclasses.dataclass(frozen=True)
class ActionValueConfig(config_lib.ActorCriticConfig):
  """An agent that takes the action of the largest value, or explores.

  It shares streams, cores, tasks and runtimes with actor-critic agents. It
  needs discrete actions.

  Attributes:
    heads: options of the head of action values.
    exploration: epsilons of the rows of an actor.
  """

  learns_action_values: ClassVar[bool] = True

  # What agents with a policy have, and these do without.
  baseline_cost: ClassVar[float] = 1.0  # type: ignore[misc]
  entropy_cost: ClassVar[float] = 0.0  # type: ignore[misc]
  separate_value: ClassVar[bool] = False  # type: ignore[misc]
  normalize_advantages: ClassVar[bool] = False  # type: ignore[misc]

  heads: heads_lib.Heads = heads_lib.ActionValues()  # noqa: RUF009
  exploration: exploration_lib.EpsilonLadder = exploration_lib.EpsilonLadder()  # noqa: RUF009

  # What tells the kind of each part of these agents.
  _methods: ClassVar[dict[str, str]] = {
    'heads': 'dueling',
    'exploration': 'choose',
  }

  def __post_init__(self) -> None:
    """Checks the parts that agents with a policy do not have."""
    super().__post_init__()
    for name, method in self._methods.items():
      value = getattr(self, name)
      if not hasattr(value, method):
        kind: Any = type(self).__dataclass_fields__[name].default
        raise ValueError(
          f'{name} ({value!r}) must be a part for action values; choose'
          f' {type(kind).__name__}(...).'
        )

  def make_policy(
    self,
    network: types.RecurrentNetwork,
    environment_spec: types.EnvironmentSpec,
    evaluation: bool = False,
  ) -> types.ActorCore:
    """Makes the functions of an actor, greedy in evaluation."""
    return acting.make_actor_core(
      network, environment_spec, greedy=evaluation, choose=self._choose
    )

  def _choose(
    self,
    key: types.Key,
    action_values: types.ArrayTree,
    hyperparameters: types.Hyperparameters,
  ) -> types.ArrayTree:
    ladder = parts.bind(self.exploration, hyperparameters.exploration)
    action: types.ArrayTree = ladder.choose(key, action_values)
    return action
