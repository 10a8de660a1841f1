"""Changes an experiment's fields by `--config` and `--set`.

Keys are fields of `ExperimentConfig` and of the configs that it holds:
`population.num_members`, `agent.batch_size`, `agent.priors.learning_rate`.
"""

import typing
from collections.abc import Sequence
from typing import Any

from ftwax.records import config_changes
from ftwax.runtime import experiment as experiment_lib

Changes = config_changes.Changes

AGENT = 'agent'

# Fields that can only be set in Python.
_IN_PYTHON = (
  'environment',
  'evaluation_environment',
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
  return config_changes.apply(experiment, changes)


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
  return {
    name: value
    for name, value in vars(experiment).items()
    if name not in _IN_PYTHON
  }
