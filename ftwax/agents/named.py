"""The agents by name, for flags and tables."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ftwax import types
from ftwax.agents import (
  a2c,
  a3c,
  builders,
  ftw,
  impala,
  ppo,
  rl2,
  unreal,
)


class Agent(NamedTuple):
  """An agent of the family.

  Attributes:
    make_config: makes the agent's config from keyword options.
    make_network: `make_network(environment_spec, config)`.
    make_builder: `make_builder(config)`.
  """

  make_config: Callable[..., Any]
  make_network: Callable[..., types.RecurrentNetwork]
  make_builder: Callable[..., builders.Builder]


AGENTS: Mapping[str, Agent] = {
  'a2c': Agent(a2c.A2CConfig, a2c.make_network, a2c.make_builder),
  'a3c': Agent(a3c.A3CConfig, a3c.make_network, a3c.make_builder),
  'ftw': Agent(ftw.FTWConfig, ftw.make_network, ftw.make_builder),
  'impala': Agent(
    impala.IMPALAConfig, impala.make_network, impala.make_builder
  ),
  'ppo': Agent(ppo.PPOConfig, ppo.make_network, ppo.make_builder),
  'rl2': Agent(rl2.RL2Config, rl2.make_network, rl2.make_builder),
  'unreal': Agent(
    unreal.UNREALConfig, unreal.make_network, unreal.make_builder
  ),
}

# Agents with the standard network, whose defaults suit any environment.
STANDARD = ('impala', 'a2c', 'a3c', 'ppo')


def find(config: Any) -> str | None:
  """Returns the name of the agent that `config` belongs to; None if unnamed."""
  for name, agent in AGENTS.items():
    if agent.make_config is type(config):
      return name
  return None
