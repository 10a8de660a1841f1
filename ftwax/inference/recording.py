"""Plays games and records them for learners; see `records.recorded_games`."""

import contextlib
import os
from collections.abc import Callable, Sequence
from typing import Any

import dm_env
import numpy as np

from ftwax.environments import absences, game_vectors
from ftwax.environments import games as games_lib
from ftwax.inference import play
from ftwax.population import players as players_lib
from ftwax.records import recorded_games
from ftwax.runtime import evaluation, recorded_rows

# Steps of a part on disk.
_PART_STEPS = 1024


def record(
  make_game: Callable[[int], Any],
  seated: Sequence[players_lib.Player],
  seats: Sequence[int],
  num_games: int,
  directory: str | os.PathLike[str],
  seed: int = 0,
  num_parallel: int = 64,
  show: Callable[[int], None] | None = None,
) -> int:
  """Plays games and adds what some seats saw and did to a folder.

  Args:
    make_game: makes an environment or a game, given a seed.
    seated: the player on each seat.
    seats: indices of the seats that are recorded.
    num_games: number of games after which the recording ends; those that are
      played at the same time are cut off then.
    directory: a folder, which may have games already.
    seed: seed of games and players.
    num_parallel: games played at a time.
    show: is called with the number of games so far, part by part.

  Returns:
    The number of games that have ended.

  Raises:
    ValueError: if players and game do not fit, or the folder has another game.
  """
  num_parallel = min(num_parallel, num_games)
  first = seed * num_parallel
  seeds = list(range(first, first + num_parallel))
  games = game_vectors.make_games(make_game, seeds, 'recording')
  most = (num_games // num_parallel + 1) * evaluation.MAX_STEPS
  with contextlib.closing(games):
    spec = games.spec
    _check(spec, seated)
    players = play.SeatedPlayers(games, seated, seed)
    rows = recorded_rows.RecordedRows(spec, seats)
    num_ended = 0
    for step, (action, timestep) in enumerate(play.play(games, players.act)):
      rows.add(action, timestep)
      num_ended += _count_ends(timestep, spec.num_players)
      is_over = num_ended >= num_games or step >= most
      if len(rows) < _PART_STEPS and not is_over:
        continue
      recorded_games.append(directory, spec, rows.take())
      if show is not None:
        show(num_ended)
      if is_over:
        break
  return num_ended


def _check(
  spec: games_lib.GameSpec, seated: Sequence[players_lib.Player]
) -> None:
  """Raises a ValueError unless the players play the game."""
  players_lib.check_specs(
    {f'seat {seat}': player for seat, player in enumerate(seated)},
    spec.environment,
  )


def _count_ends(timestep: dm_env.TimeStep, num_players: int) -> int:
  """Returns how many games have just ended."""
  step_type = np.reshape(timestep.step_type, (-1, num_players))
  return int(absences.is_over(step_type).sum())
