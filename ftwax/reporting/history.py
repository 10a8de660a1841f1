"""The log of a population as arrays over time."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ftwax.records import files, loggers

if TYPE_CHECKING:
  from ftwax import types

# Label of the log. Each row holds the result of
# `ftwax.population.state.log_values`, and may hold `event_rates` and the counts
# of the run.
LABEL = 'population'

# File name of a population's lineage, in the directory of its run.
LINEAGE_FILE = 'lineage.jsonl'

_PREFIX = 'hyperparameters/'

_MAX_SECONDS = 1e10  # Three centuries.


class History(NamedTuple):
  """A population over time, at `K` times; arrays are float64.

  Attributes:
    games: [K], mean number of games or episodes per member.
    steps: [K], steps of all environments; `games` in logs that have none.
    ratings: [K, N], Elo points.
    mean_returns: [K, N], means over the last episodes; NaN before the first.
    hyperparameters: [K, N], by name.
    internal_rewards: [K, N, num_events].
    event_rates: [K, N, num_events], events per game; None if not logged.
    payoff_scores: [N, N], wins and half the draws, at the last time.
    payoff_games: [N, N], meetings, at the last time.
    num_steps: steps of all environments, at the last time; 0 if not logged.
    seconds: seconds of training until the last time; 0 if not logged.
  """

  games: types.Floats
  steps: types.Floats
  ratings: types.Floats
  mean_returns: types.Floats
  hyperparameters: Mapping[str, types.Floats]
  internal_rewards: types.Floats
  event_rates: types.Floats | None
  payoff_scores: types.Floats
  payoff_games: types.Floats
  num_steps: int = 0
  seconds: float = 0.0

  @property
  def axis(self) -> str:
    """What `steps` counts."""
    return 'steps' if self.num_steps else 'games per member'


def read(run_dir: str | os.PathLike[str]) -> History:
  """Reads the log of the population in `run_dir`.

  Raises:
    FileNotFoundError: if there is none.
    ValueError: if it has no row yet, or is damaged.
  """
  path = loggers.log_path(run_dir, LABEL)
  if not path.exists():
    raise FileNotFoundError(
      f'population log ({path}) must exist for a report; give the directory of'
      ' a population run.'
    )
  history = find(run_dir)
  if history is None:
    raise ValueError(
      f'population log ({path}) must have at least one row for a report; wait'
      ' until the run has written one.'
    )
  return history


def find(run_dir: str | os.PathLike[str]) -> History | None:
  """Reads the log of the population; None if it has no rows yet.

  Raises:
    ValueError: if it is damaged.
  """
  path = loggers.log_path(run_dir, LABEL)
  rows = loggers.read_jsonl(path) if path.exists() else []
  with files.reading(path, 'the log of a population'):
    return from_rows(rows) if rows else None


def from_rows(rows: Sequence[Mapping[str, Any]]) -> History:
  """Returns the history from the rows of a log, which must not be empty."""
  rows = loggers.drop_replaced(rows, lambda row: sum(row['games']))
  num_members = len(rows[-1]['ratings'])
  num_events = np.shape(rows[-1]['internal_rewards'])[-1]

  def column(name: str, *rest: int) -> types.Floats:
    return _to_array(name, [row[name] for row in rows], (len(rows), *rest))

  def last(name: str) -> types.Floats:
    return _to_array(name, rows[-1][name], (num_members, num_members))

  games = column('games', num_members).mean(axis=1)
  seconds = float(rows[-1].get('seconds', 0.0))
  if not 0.0 <= seconds < _MAX_SECONDS:
    raise ValueError(f'seconds ({seconds}) is no time of training')
  names = [name for name in rows[-1] if name.startswith(_PREFIX)]
  return History(
    games=games,
    steps=column('actor_steps') if 'actor_steps' in rows[0] else games,
    ratings=column('ratings', num_members),
    mean_returns=column('mean_returns', num_members),
    hyperparameters={
      name.removeprefix(_PREFIX): column(name, num_members) for name in names
    },
    internal_rewards=column('internal_rewards', num_members, num_events),
    event_rates=(
      column('event_rates', num_members, num_events)
      if 'event_rates' in rows[-1]
      else None
    ),
    payoff_scores=last('payoff_scores'),
    payoff_games=last('payoff_games'),
    num_steps=int(rows[-1].get('actor_steps', 0)),
    seconds=seconds,
  )


def _to_array(name: str, values: Any, shape: tuple[int, ...]) -> types.Floats:
  # Loggers write null for non-finite numbers; NumPy converts None to NaN.
  array = np.array(values, np.float64)
  if array.shape != shape or 0 in shape:
    raise ValueError(f'{name} has the shape {array.shape}, not {shape}')
  return array


def read_lineage(
  run_dir: str | os.PathLike[str], num_members: int | None = None
) -> list[dict[str, Any]]:
  """Returns the rows of the lineage; empty if there is no such file.

  Args:
    run_dir: directory of a run.
    num_members: size of the population, against which members are checked.

  Raises:
    ValueError: if it is damaged.
  """
  path = pathlib.Path(run_dir) / LINEAGE_FILE
  rows = loggers.read_jsonl(path) if path.exists() else []
  if num_members is not None:
    members = range(num_members)
    with files.reading(path, 'the lineage of a population'):
      for row in rows:
        if 'parent' in row:
          int(row['generation']), float(row['games'])
          members[row['member']], members[row['parent']]
  return rows
