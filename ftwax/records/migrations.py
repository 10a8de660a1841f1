"""What earlier layouts of runs named otherwise.

A layout is the form of what a run leaves: its configuration, checkpoints and
logs. Version 0.N of the library writes layout N. It loads, evaluates, films and
reports runs of every layout from `OLDEST` on; only the version that wrote a
layout resumes it.

Who renames what is recorded adds 1 to `array_files.LAYOUT` and to the version,
an entry to `CHANGES`, and a run of the layout before to the tests
(`tests/records/layouts`). An addition with a default needs no entry: a field
that a configuration lacks has its default, and a hyperparameter that a
checkpoint lacks the value of its configuration. A default that is another than
what was done before the field has an entry in `ADDED_TO_AGENTS`.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ftwax.records import config_files

OLDEST = 6


class Change(NamedTuple):
  """Names in a layout that the next one has changed.

  Attributes:
    parts: registered names of parts: the new one by the old one.
    fields: fields of a part, such as `('agent.ppo', 'decay')`, by the old name
      of the part: the new name, or None for a field without successor.
    arrays: paths of arrays: what replaces it, by a regular expression; see
      `re.sub`.
  """

  parts: Mapping[str, str] = {}
  fields: Mapping[tuple[str, str], str | None] = {}
  arrays: Mapping[str, str | Callable[[re.Match[str]], str]] = {}


_VALUES = r'(^|/)hyperparameters/'

# By the layout whose names these were. In layout 6 hyperparameters stood in one
# tuple, with the names of their parts before their own.
CHANGES: dict[int, Change] = {
  6: Change(
    arrays={
      rf'{_VALUES}(pixel_control|reward_prediction|value_replay|off_policy)_': (
        r'\1hyperparameters/tasks/\2/'
      ),
      rf'{_VALUES}kl_': r'\1hyperparameters/tasks/latent_kl/',
      rf'{_VALUES}rms_prop_': r'\1hyperparameters/optimizer/',
      rf'{_VALUES}learning_rate_decay_': r'\1hyperparameters/decay/',
      rf'{_VALUES}(slow_period|fast_to_slow_gradient_scale|dropout)$': (
        r'\1hyperparameters/core/\2'
      ),
      # They counted from one.
      rf'{_VALUES}slow_period_(\d+)$': lambda match: (
        f'{match[1]}hyperparameters/core/slow_period/{int(match[2]) - 1}'
      ),
    }
  )
}


# Fields of agents that records may lack, with what was done before them.
ADDED_TO_AGENTS: Mapping[str, Any] = {
  # Cores without memory read both, too.
  'previous_action': True,
  'previous_reward': True,
}


def rename_config(plain: Any, layout: int) -> Any:
  """Returns a configuration of an earlier layout with the names of today.

  Args:
    plain: what `config_files.to_json` returned then, or a part of it.
    layout: the layout that it was recorded in.
  """
  for change in _since(layout):
    plain = _rename(plain, change)
  agent = plain.get('agent') if isinstance(plain, Mapping) else None
  if isinstance(agent, Mapping):
    plain = {**plain, 'agent': {**ADDED_TO_AGENTS, **agent}}
  return plain


def rename_array(path: str, layout: int) -> str:
  """Returns the path that an array of an earlier layout has today."""
  for change in _since(layout):
    for pattern, replacement in change.arrays.items():
      path = re.sub(pattern, replacement, path)
  return path


def _since(layout: int) -> list[Change]:
  return [CHANGES[number] for number in sorted(CHANGES) if number >= layout]


def _rename(plain: Any, change: Change) -> Any:
  if isinstance(plain, list):
    return [_rename(entry, change) for entry in plain]
  if not isinstance(plain, Mapping):
    return plain
  part = plain.get(config_files.TYPE)
  renamed = {}
  for field, value in plain.items():
    name = change.fields.get((part, field), field) if part else field
    if name is not None:
      renamed[name] = _rename(value, change)
  if isinstance(part, str):
    renamed[config_files.TYPE] = change.parts.get(part, part)
  return renamed
