"""The agents by name, for flags and tables."""

from collections.abc import Mapping

from ftwax.agents import a2c, a3c, ftw, impala, ppo, pqn, r2d2, rl2, unreal
from ftwax.agents.actor_critic import actor_critic_config as config_lib

AGENTS: Mapping[str, type[config_lib.ActorCriticConfig]] = {
  agent.name: agent
  for agent in (
    a2c.A2CConfig,
    a3c.A3CConfig,
    ftw.FTWConfig,
    impala.IMPALAConfig,
    ppo.PPOConfig,
    pqn.PQNConfig,
    r2d2.R2D2Config,
    rl2.RL2Config,
    unreal.UNREALConfig,
  )
}

# Agents with the standard network, whose defaults suit any environment.
STANDARD = ('impala', 'a2c', 'a3c', 'ppo', 'pqn', 'r2d2')
