"""Every agent takes every task, and has at most so many fields.

`tests/runtime/test_pairs.py` runs agents with cores, tasks and runtimes.
"""

import dataclasses

import pytest

from ftwax import hyperparameters
from ftwax.agents import named
from ftwax.agents.actor_critic import tasks


@pytest.mark.parametrize('agent', named.AGENTS)
def test_every_agent_takes_every_task(agent):
  config = named.AGENTS[agent](core='rpth', tasks=tuple(tasks.NAMED)[:3])
  assert config.tasks == tuple(tasks.NAMED.values())[:3]
  names = set(hyperparameters.names(config.priors))
  tasks_of = {
    f'tasks.{name}.cost' for name in ('pixel_control', 'value_replay')
  }
  assert {*tasks_of, 'core.slow_period'} <= names


@pytest.mark.parametrize('agent', named.AGENTS)
def test_configs_are_short(agent):
  assert len(dataclasses.fields(named.AGENTS[agent])) <= 32
