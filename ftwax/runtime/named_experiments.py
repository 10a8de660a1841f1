"""Makes experiments from the name of an agent and the name of a task."""

import functools
import re
from collections.abc import Callable
from typing import Any

from ftwax.agents import named
from ftwax.agents.actor_critic import actor_critic_config as config_lib
from ftwax.agents.actor_critic import builder
from ftwax.environments import adapting
from ftwax.runtime import experiment as experiment_lib


def make_experiment(
  agent: str | config_lib.ActorCriticConfig,
  environment: str | type | Callable[[int], Any],
  max_num_actor_steps: int,
  **fields: Any,
) -> experiment_lib.ExperimentConfig:
  """Makes an experiment with one of the named agents.

  Args:
    agent: name of the agent, for its default config, or a config.
    environment: the name of a Gymnasium environment; a class, such as a custom
      `gymnasium.Env`, made without arguments; or an
      `ExperimentConfig.environment_factory`.
    max_num_actor_steps: see `ExperimentConfig`.
    **fields: other fields of the `ExperimentConfig`.

  Returns:
    The experiment, by default named after agent and environment.

  Raises:
    ValueError: if there is no such agent.
  """
  if isinstance(agent, str) and agent in named.AGENTS:
    agent = named.AGENTS[agent]()
  if not isinstance(agent, config_lib.ActorCriticConfig):
    raise ValueError(
      f'agent ({agent!r}) must be one of {list(named.AGENTS)}, or a config of'
      ' one; choose one.'
    )
  task = environment
  if not isinstance(environment, str):
    task = getattr(environment, '__name__', 'environment')
  defaults: dict[str, Any] = {
    'name': re.sub(r'[^\w.-]', '_', f'{agent.name}_{task}'),
    'builder': builder.ActorCriticBuilder(agent),
    'network_factory': functools.partial(config_lib.make_network, config=agent),
    'max_num_actor_steps': max_num_actor_steps,
    'environment_factory': adapting.make_factory(environment),
  }
  return experiment_lib.ExperimentConfig(**{**defaults, **fields})
