"""The log of a population as arrays over time."""

import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ftwax import types
from ftwax.records import loggers

# Label of the log. Each row holds the result of
# `ftwax.population.state.log_values`, and may hold `event_rates` and the counts
# of the run.
LABEL = 'population'

# File name of a population's lineage, in the directory of its run.
LINEAGE_FILE = 'lineage.jsonl'

_PREFIX = 'hyperparameters/'


class History(NamedTuple):
  """A population over time, at `K` times; arrays are float64.

  Attributes:
    games: [K], mean number of games or episodes per member.
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
  ratings: types.Floats
  mean_returns: types.Floats
  hyperparameters: Mapping[str, types.Floats]
  internal_rewards: types.Floats
  event_rates: types.Floats | None
  payoff_scores: types.Floats
  payoff_games: types.Floats
  num_steps: int = 0
  seconds: float = 0.0


def read(run_dir: str | os.PathLike[str]) -> History:
  """Reads the log of the population in `run_dir`.

  Raises:
    FileNotFoundError: if there is none.
    ValueError: if it has no row yet.
  """
  path = loggers.log_path(run_dir, LABEL)
  if not path.exists():
    raise FileNotFoundError(
      f'population log ({path}) must exist for a report; give the directory of'
      ' a population run.'
    )
  rows = loggers.read_jsonl(path)
  if not rows:
    raise ValueError(
      f'population log ({path}) must have at least one row for a report; wait'
      ' until the run has written one.'
    )
  return from_rows(rows)


def find(run_dir: str | os.PathLike[str]) -> History | None:
  """Reads the log of the population; None if it has no rows yet."""
  path = loggers.log_path(run_dir, LABEL)
  rows = loggers.read_jsonl(path) if path.exists() else []
  return from_rows(rows) if rows else None


def from_rows(rows: Sequence[Mapping[str, Any]]) -> History:
  """Returns the history from the rows of a log, which must not be empty."""
  rows = _drop_replaced(rows)

  def column(name: str) -> types.Floats:
    # Loggers write null for non-finite numbers; NumPy converts None to NaN.
    return np.array([row[name] for row in rows], np.float64)

  names = [name for name in rows[-1] if name.startswith(_PREFIX)]
  return History(
    games=column('games').mean(axis=1),
    ratings=column('ratings'),
    mean_returns=column('mean_returns'),
    hyperparameters={
      name.removeprefix(_PREFIX): column(name) for name in names
    },
    internal_rewards=column('internal_rewards'),
    event_rates=(column('event_rates') if 'event_rates' in rows[-1] else None),
    payoff_scores=np.array(rows[-1]['payoff_scores'], np.float64),
    payoff_games=np.array(rows[-1]['payoff_games'], np.float64),
    num_steps=int(rows[-1].get('actor_steps', 0)),
    seconds=float(rows[-1].get('seconds', 0.0)),
  )


def read_lineage(run_dir: str | os.PathLike[str]) -> list[dict[str, Any]]:
  """Returns the rows of the lineage; empty if there is no such file."""
  path = pathlib.Path(run_dir) / LINEAGE_FILE
  return loggers.read_jsonl(path) if path.exists() else []


def _drop_replaced(
  rows: Sequence[Mapping[str, Any]],
) -> list[Mapping[str, Any]]:
  """Drops rows written after the checkpoint from which a run was resumed.

  The number of games drops on a resume, and the rows that follow replace the
  later ones.
  """
  kept: list[Mapping[str, Any]] = []
  for row in rows:
    while kept and sum(kept[-1]['games']) >= sum(row['games']):
      kept.pop()
    kept.append(row)
  return kept
