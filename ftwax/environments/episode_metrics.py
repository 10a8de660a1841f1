"""What an environment measures beside its rewards, at the end of episodes.

Success, distance, energy: numbers and bools of Gymnasium's `info`, at the last
step of an episode, or over all of its steps. Any other environment or game in
Python may have a method `episode_metrics()`, which returns numbers by name
after the last step of an episode.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from absl import logging

# What is logged unasked.
SUCCESS = 'is_success', 'success'

# All that there is.
ALL = 'all'

# Endings of the names of numbers over all steps of an episode.
_MEAN, _SUM = '/mean', '/sum'

# Prefix of names in logs.
PREFIX = 'metrics/'

# The option `metrics` of an experiment.
Names = str | tuple[str, ...]

# The return of episodes, by its name in logs.
RETURN = 'episode_return'

_NUMBERS = (bool, int, float, np.number, np.bool_)


class Meter:
  """Reads the metrics of the episodes of one environment or agent."""

  def __init__(self) -> None:
    self.is_on = False  # Whether `add` has to see each step.
    self._names: frozenset[str] = frozenset()
    self.start()

  def measure(self, names: Names) -> None:
    """Asks for numbers over all steps, such as 'energy/sum'."""
    chosen = () if isinstance(names, str) else names
    self._names = frozenset(
      name.rpartition('/')[0] for name in chosen if name.endswith((_MEAN, _SUM))
    )
    self.is_on = bool(self._names)

  def start(self) -> None:
    """Begins an episode."""
    self._sums: dict[str, float] = {}
    self._counts: dict[str, int] = {}

  def add(self, info: Mapping[str, Any]) -> None:
    """Adds the numbers of a step, if they are asked for."""
    for name, value in read(info).items():
      if name in self._names:
        self._sums[name] = self._sums.get(name, 0.0) + value
        self._counts[name] = self._counts.get(name, 0) + 1

  def end(self, info: Mapping[str, Any]) -> dict[str, float]:
    """Returns the metrics of an episode, given the `info` of its last step."""
    found = read(info)
    for name, total in self._sums.items():
      found[name + _SUM] = total
      found[name + _MEAN] = total / self._counts[name]
    return found


def read(info: Mapping[str, Any], prefix: str = '') -> dict[str, float]:
  """Returns finite numbers and bools of `info`; nested names have slashes."""
  found: dict[str, float] = {}
  for key, value in info.items():
    name = f'{prefix}{key}'
    if isinstance(value, Mapping):
      found.update(read(value, f'{name}/'))
      continue
    if isinstance(value, np.ndarray) and value.size == 1:
      value = value.flat[0]  # noqa: PLW2901
    if isinstance(value, _NUMBERS) and np.isfinite(value):
      found[name] = float(value)
  return found


def select(names: Names, found: Mapping[str, float]) -> dict[str, float]:
  """Returns the metrics that an experiment asks for.

  Args:
    names: names; `ALL`; or none, for success alone.
    found: the metrics of an episode.
  """
  if names == ALL:
    return dict(found)
  chosen = (*names, *SUCCESS)
  return {name: found[name] for name in chosen if name in found}


def read_criterion(field: str, criterion: str) -> tuple[str, float]:
  """Returns what a criterion of runs or members compares, and its sign.

  Args:
    field: name of the option, for messages.
    criterion: `RETURN`; or the name of a metric in logs, such as
      `metrics/is_success`; with a minus in front if smaller values are better,
      as in `-metrics/distance`.

  Returns:
    The name of the metric, without `PREFIX`, or '' for the return; and 1 or -1.

  Raises:
    ValueError: if the criterion is neither.
  """
  name = criterion.removeprefix('-')
  sign = 1.0 if name == criterion else -1.0
  if name == RETURN:
    return '', sign
  if not name.startswith(PREFIX) or name == PREFIX:
    raise ValueError(
      f'{field} ({criterion!r}) must be {RETURN!r} or a metric such as'
      f" '{PREFIX}is_success', with a minus in front if less is better; choose"
      f" '{PREFIX}{name}'."
    )
  return name.removeprefix(PREFIX), sign


def with_name(names: Names, name: str) -> Names:
  """Returns names with one more, if it is one."""
  is_there = not name or isinstance(names, str) or name in names
  return names if is_there else (*names, name)


class Missing:
  """Warns once of metrics that no episode has."""

  def __init__(self, names: Names):
    self._names = set() if names == ALL else set(names)

  def check(self, found: Mapping[str, float]) -> None:
    """Warns of names that are missing in the metrics of a first episode."""
    missing = sorted(self._names - found.keys())
    self._names = set()
    if missing:
      logging.warning(
        'metrics (%s) are not in the info of the first episode that ended,'
        ' which has %s; numbers over its steps are called NAME/mean and'
        ' NAME/sum.',
        ', '.join(missing),
        sorted(found) or 'no numbers',
      )


def average(measured: Sequence[Mapping[str, float]]) -> dict[str, float]:
  """Returns the means over episodes, by names of a log."""
  values: dict[str, list[float]] = {}
  for one in measured:
    for name, value in one.items():
      values.setdefault(name, []).append(value)
  return {
    f'{PREFIX}{name}': float(np.mean(own)) for name, own in values.items()
  }
