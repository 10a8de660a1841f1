"""A file with an experiment of a user's own."""

_TEXT = '''
"""An experiment of one's own."""

from ftwax.agents import {agent}
from ftwax.environments import catch
from ftwax.runtime import ExperimentConfig


def make_environment(seed):
  del seed
  return catch.make()


def build():
  config = {agent}.{config}
  return ExperimentConfig(
    name='mine',
    agent=config,
    environment=make_environment,
    {fields},
  )
'''


def make_text(agent: str, config: str, fields: str) -> str:
  """Returns the file; its function is `build`.

  Args:
    agent: module of the agent.
    config: of the agent, an expression in that module.
    fields: of the experiment, as keywords.
  """
  return _TEXT.format(agent=agent, config=config, fields=fields)
