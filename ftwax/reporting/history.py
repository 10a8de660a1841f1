"""What the log of a population tells, row by row as arrays."""

import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ftwax.records import loggers

# Label of the log, of which each row holds what
# `ftwax.population.state.log_values` returns and may hold `event_rates`.
LABEL = 'population'

# Lineage of a population, in the directory of its run.
LINEAGE_FILE = 'lineage.jsonl'

_PREFIX = 'hyperparameters/'


class History(NamedTuple):
  """A population over time, at `K` moments.

  Attributes:
    games: [K], games or episodes that a member has played, the mean of all.
    ratings: [K, N], Elo points.
    mean_returns: [K, N], of the last episodes; NaN where there are none.
    hyperparameters: [K, N] by name.
    internal_rewards: [K, N, num_events].
    event_rates: [K, N, num_events], events a game; None if none were logged.
    payoff_scores: [N, N], wins and half the draws at the last moment.
    payoff_games: [N, N], meetings.
  """

  games: np.ndarray
  ratings: np.ndarray
  mean_returns: np.ndarray
  hyperparameters: Mapping[str, np.ndarray]
  internal_rewards: np.ndarray
  event_rates: np.ndarray | None
  payoff_scores: np.ndarray
  payoff_games: np.ndarray


def read(run_dir: str | os.PathLike) -> History:
  """Reads the log of the population in `run_dir`.

  Raises:
    FileNotFoundError: if there is none.
    ValueError: if it has no row yet.
  """
  path = loggers.log_path(run_dir, LABEL)
  if not path.exists():
    raise FileNotFoundError(
      f'population log ({path}) must be there to draw pictures of; give the'
      ' directory of a run of a population.'
    )
  rows = loggers.read_jsonl(path)
  if not rows:
    raise ValueError(
      f'population log ({path}) must have a row to draw pictures of; wait for'
      ' the run to write one.'
    )
  return from_rows(rows)


def from_rows(rows: Sequence[Mapping[str, Any]]) -> History:
  """Returns the history that these rows of a log tell, at least one."""
  rows = _drop_replaced(rows)

  def column(name):
    # What was not finite was written as null, which becomes NaN.
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
  )


def read_lineage(run_dir: str | os.PathLike) -> list[dict[str, Any]]:
  """Returns the rows of the lineage; none if there is no such file."""
  path = pathlib.Path(run_dir) / LINEAGE_FILE
  return loggers.read_jsonl(path) if path.exists() else []


def _drop_replaced(
  rows: Sequence[Mapping[str, Any]],
) -> list[Mapping[str, Any]]:
  """Drops what came after the checkpoint that a run was resumed from.

  There the games fall back, and the rows that follow replace the rest.
  """
  kept: list[Mapping[str, Any]] = []
  for row in rows:
    while kept and sum(kept[-1]['games']) >= sum(row['games']):
      kept.pop()
    kept.append(row)
  return kept
