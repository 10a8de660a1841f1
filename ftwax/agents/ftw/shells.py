"""acme's interfaces of the For-The-Win agent (Python 3.10)."""

from typing import Any

from ftwax import types
from ftwax.agents.actor_critic.shells import actor, learner, learning_agent
from ftwax.agents.ftw import agent as ftw
from ftwax.agents.ftw import ftw_config as config_lib

# The pair is the family's: the agent is its network and its losses.
FTWActor = actor.Actor
FTWLearner = learner.Learner


class FTW(learning_agent.Agent):
  """The agent in one object, an acme actor that also learns."""

  def __init__(
    self,
    environment_spec: types.EnvironmentSpec,
    config: config_lib.FTWConfig | None = None,
    network: types.RecurrentNetwork | None = None,
    **options: Any,
  ):
    """Makes the agent.

    Args:
      environment_spec: of the environments that it is for.
      config: by default that of the paper.
      network: in place of the agent's own.
      **options: see `agent.Agent`: seed, num_environments, logger.
    """
    super().__init__(*_make_parts(environment_spec, config, network), **options)


class LearningFTW(learning_agent.LearningAgent):
  """The agent without an actor, for when acting happens elsewhere."""

  def __init__(
    self,
    environment_spec: types.EnvironmentSpec,
    config: config_lib.FTWConfig | None = None,
    network: types.RecurrentNetwork | None = None,
    **options: Any,
  ):
    """Makes the agent; see `FTW` and `agent.LearningAgent`."""
    super().__init__(*_make_parts(environment_spec, config, network), **options)


def _make_parts(environment_spec, config, network):
  """Returns what either is made of, the agent's own where None is given."""
  config = config or config_lib.FTWConfig()
  network = network or ftw.make_network(environment_spec, config)
  return environment_spec, network, ftw.make_builder(config)
