"""The For-The-Win agent with acme's interfaces."""

from ftwax import types
from ftwax.agents import builders
from ftwax.agents.acme import actor, learner, learning_agent
from ftwax.agents.actor_critic import builder
from ftwax.agents.ftw import ftw_config as config_lib
from ftwax.records import loggers

# Actor and learner are the family's own; only network and losses are specific.
FTWActor = actor.Actor
FTWLearner = learner.Learner


class FTW(learning_agent.Agent):
  """The agent in one object: an acme actor that also learns."""

  def __init__(
    self,
    environment_spec: types.EnvironmentSpec,
    config: config_lib.FTWConfig | None = None,
    network: types.RecurrentNetwork | None = None,
    seed: int = 0,
    num_environments: int | None = None,
    logger: loggers.Logger | None = None,
    replay: str | None = None,
  ):
    """Makes the agent.

    Args:
      environment_spec: specs of the environments.
      config: options of the agent; `FTWConfig()` if None.
      network: replaces the agent's own network.
      seed: random seed of actor, learner and replay.
      num_environments: see `actor.Actor`.
      logger: receives the metrics of each update; None drops them.
      replay: see `replays.choose`.
    """
    parts = _make_parts(environment_spec, config, network)
    super().__init__(*parts, seed, num_environments, logger, replay)


class LearningFTW(learning_agent.LearningAgent):
  """The agent without an actor, for acting in other processes; needs Reverb."""

  def __init__(
    self,
    environment_spec: types.EnvironmentSpec,
    config: config_lib.FTWConfig | None = None,
    network: types.RecurrentNetwork | None = None,
    seed: int = 0,
    logger: loggers.Logger | None = None,
    replay_port: int | None = None,
    expose: bool = False,
  ):
    """Makes the agent; see `FTW` and `learning_agent.LearningAgent`."""
    parts = _make_parts(environment_spec, config, network)
    super().__init__(*parts, seed, logger, replay_port, expose)


def _make_parts(
  environment_spec: types.EnvironmentSpec,
  config: config_lib.FTWConfig | None,
  network: types.RecurrentNetwork | None,
) -> tuple[types.EnvironmentSpec, types.RecurrentNetwork, builders.Builder]:
  """Returns spec, network and builder, with the agent's defaults for None."""
  config = config or config_lib.FTWConfig()
  network = network or config.make_network(environment_spec)
  return environment_spec, network, builder.ActorCriticBuilder(config)
