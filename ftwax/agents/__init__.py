"""Actor-critic agents: a shared actor and learner, and the named agents.

Each agent is a config; `ftwax.acme` has its actor and learner for acme.
"""

from typing import TYPE_CHECKING

from ftwax import submodules
from ftwax.agents import (
  a2c,
  a3c,
  ftw,
  impala,
  named,
  ppo,
  pqn,
  r2d2,
  rl2,
  unreal,
)
from ftwax.agents.a2c import A2CConfig
from ftwax.agents.a3c import A3CConfig
from ftwax.agents.actor_critic.actor_critic_config import ActorCriticConfig
from ftwax.agents.ftw import FTWConfig
from ftwax.agents.impala import IMPALAConfig
from ftwax.agents.ppo import PPOConfig
from ftwax.agents.pqn import PQNConfig
from ftwax.agents.r2d2 import R2D2Config
from ftwax.agents.rl2 import RL2Config
from ftwax.agents.unreal import UNREALConfig

if not TYPE_CHECKING:
  __getattr__, __dir__ = submodules.on_first_use(__name__)

__all__ = (
  'A2CConfig',
  'A3CConfig',
  'ActorCriticConfig',
  'FTWConfig',
  'IMPALAConfig',
  'PPOConfig',
  'PQNConfig',
  'R2D2Config',
  'RL2Config',
  'UNREALConfig',
  'a2c',
  'a3c',
  'ftw',
  'impala',
  'named',
  'ppo',
  'pqn',
  'r2d2',
  'rl2',
  'unreal',
)
