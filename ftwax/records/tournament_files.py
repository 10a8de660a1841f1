"""The results of a tournament, as a file in the directory of a run."""

from __future__ import annotations

import json
import os
import pathlib
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ftwax.records import files, log_values

if TYPE_CHECKING:
  from ftwax import types

TOURNAMENT_FILE = 'tournament.json'

# Players whose results are shown: a table has a cell for each pair.
_MAX_PLAYERS = 512


class Results(NamedTuple):
  """Results of a tournament of `P` players, members of the population first.

  Attributes:
    players: [P], names.
    num_members: number of players that are members of the population.
    anchor: index of the player relative to which ratings are given.
    ratings: float64 [P], Elo points above the anchor.
    lows: float64 [P], lower ends of the 95% confidence intervals of `ratings`.
    highs: float64 [P], upper ends.
    win_rates: float64 [P, P], mean score of the row against the column, where a
      draw is half a win; NaN without games.
    half_widths: float64 [P, P], of the 95% confidence intervals of `win_rates`.
    num_games: total number of games.
  """

  players: tuple[str, ...]
  num_members: int
  anchor: int
  ratings: types.NumpyArray
  lows: types.NumpyArray
  highs: types.NumpyArray
  win_rates: types.NumpyArray
  half_widths: types.NumpyArray
  num_games: int


def write(directory: str | os.PathLike[str], results: Results) -> None:
  """Writes the results into a directory."""
  plain = {
    name: log_values.null_non_finite(np.asarray(value).tolist())
    for name, value in results._asdict().items()
  }
  files.write_atomically(
    pathlib.Path(directory) / TOURNAMENT_FILE, json.dumps(plain) + '\n'
  )


def read(directory: str | os.PathLike[str]) -> Results | None:
  """Reads the results; None if there was no tournament.

  Raises:
    ValueError: if the file is damaged.
  """
  path = pathlib.Path(directory) / TOURNAMENT_FILE
  if not path.exists():
    return None
  return files.parse_json(path, _from_json, 'the results of a tournament')


def member_scores(results: Results) -> dict[str, float]:
  """Returns the members' mean score against each of the other players."""
  rows = results.win_rates[: results.num_members]
  return {
    name: float(np.nanmean(rows[:, index]))
    for index, name in enumerate(results.players)
    if index >= results.num_members
  }


def _from_json(plain: Any) -> Results:
  arrays = {
    name: np.array(plain[name], np.float64)
    for name in ('ratings', 'lows', 'highs', 'win_rates', 'half_widths')
  }
  players = tuple(map(str, plain['players']))
  num_members = plain['num_members']
  if len(players) > _MAX_PLAYERS or num_members not in range(
    1, len(players) + 1
  ):
    raise ValueError(
      f'it has {len(players)} players and {num_members!r:.80} members, and must'
      f' have at least one member and at most {_MAX_PLAYERS} players'
    )
  for name, array in arrays.items():
    shape = (len(players),) * (2 if name in ('win_rates', 'half_widths') else 1)
    if array.shape != shape or not players:
      raise ValueError(f'{name} has the shape {array.shape}, not {shape}')
  return Results(
    players=players,
    num_members=int(num_members),
    anchor=range(len(players))[plain['anchor']],
    num_games=int(plain['num_games']),
    **arrays,
  )
