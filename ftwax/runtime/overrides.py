"""Changes an experiment's fields by `--config` and `--set`.

Keys are fields of `ExperimentConfig`; `agent` stands for the agent's config:
`population.num_members`, `agent.batch_size`, `agent.priors.learning_rate`.
"""

import functools
import typing
from collections.abc import Sequence
from typing import Any

from ftwax.records import config_changes
from ftwax.runtime import experiment as experiment_lib

Changes = config_changes.Changes

AGENT = 'agent'

# Fields that can only be set in Python.
_IN_PYTHON = (
  'builder',
  'network_factory',
  'environment_factory',
  'evaluation_environment_factory',
  'game_spec',
  'select',
  'explore',
  'opponents',
  'observers',
  'logger_factory',
)


def read(path: str | None, texts: Sequence[str]) -> Changes:
  """Reads the changes of a file, then those of `KEY=VALUE` texts.

  Args:
    path: path of a TOML file, or None.
    texts: texts in order; later ones take precedence.

  Raises:
    ValueError: if a change cannot be parsed.
  """
  changes: Changes = config_changes.read_file(path) if path else {}
  for text in texts:
    changes = config_changes.merge(changes, config_changes.parse(text))
  return changes


def change(
  experiment: experiment_lib.ExperimentConfig, changes: Changes
) -> experiment_lib.ExperimentConfig:
  """Returns an experiment with some fields changed.

  Args:
    experiment: the experiment.
    changes: see `config_changes.apply`.

  Raises:
    ValueError: if a field does not exist or does not accept the value.
  """
  fields = _fields(experiment)
  for name in changes:
    if name not in fields:
      raise ValueError(
        f'{name} is not a field{config_changes.suggest(name, fields)}'
      )
  own = {name: value for name, value in changes.items() if name != AGENT}
  experiment = config_changes.apply(experiment, own)
  before = experiment.builder.config
  config = change_agent_config(before, changes)
  if config == before:
    return experiment
  return experiment.replace(
    builder=experiment.builder.replace(config=config),
    network_factory=_with_config(experiment.network_factory, before, config),
  )


def change_agent_config(config: Any, changes: Changes) -> Any:
  """Returns an agent's config with the changes below `agent` applied."""
  return config_changes.apply(config, changes.get(AGENT, {}), AGENT)


def convert_field(name: str, value: Any) -> Any:
  """Converts the value of a field that is not itself a config to its type."""
  kind = typing.get_type_hints(experiment_lib.ExperimentConfig)[name]
  return config_changes.convert(value, None, kind, name)


def describe(experiment: experiment_lib.ExperimentConfig) -> str:
  """Formats all fields that can be changed as TOML."""
  return config_changes.to_toml(_fields(experiment))


def _fields(experiment: experiment_lib.ExperimentConfig) -> dict[str, Any]:
  """Returns the fields that can be changed."""
  own = {
    name: value
    for name, value in vars(experiment).items()
    if name not in _IN_PYTHON
  }
  return {**own, AGENT: experiment.builder.config}


def _with_config(factory: Any, before: Any, config: Any) -> Any:
  """Returns a network factory with one config replaced by another."""
  if not isinstance(factory, functools.partial):
    return factory
  return functools.partial(
    factory.func,
    *[config if value == before else value for value in factory.args],
    **{
      name: config if value == before else value
      for name, value in factory.keywords.items()
    },
  )
