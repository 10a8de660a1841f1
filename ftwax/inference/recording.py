"""Plays games and records them for learners; see `records.recorded_games`."""

import contextlib
import os
from collections.abc import Callable, Sequence
from typing import Any

import dm_env
import jax
import numpy as np

from ftwax import distributions, types
from ftwax.environments import game_vectors
from ftwax.environments import games as games_lib
from ftwax.inference import play
from ftwax.population import players as players_lib
from ftwax.records import recorded_games
from ftwax.runtime import evaluation

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
    rows: list[tuple[Any, dm_env.TimeStep]] = []
    num_ended = 0
    for step, (action, timestep) in enumerate(play.play(games, players.act)):
      rows.append(_keep(spec, seats, action, timestep))
      num_ended += _count_ends(timestep, spec.num_players)
      is_over = num_ended >= num_games or step >= most
      if len(rows) < _PART_STEPS and not is_over:
        continue
      recorded_games.append(directory, spec, _stack(rows))
      if show is not None:
        show(num_ended)
      if is_over:
        break
      rows = rows[-1:]  # A part begins where one ends.
  return num_ended


def _check(
  spec: games_lib.GameSpec, seated: Sequence[players_lib.Player]
) -> None:
  """Raises a ValueError unless the game can be recorded with the players."""
  if spec.environment.absences:
    raise ValueError(
      'game must have all seats present at each step to be recorded, and its'
      ' seats may be absent; record another game.'
    )
  players_lib.check_specs(
    {f'seat {seat}': player for seat, player in enumerate(seated)},
    spec.environment,
  )


def _count_ends(timestep: dm_env.TimeStep, num_players: int) -> int:
  """Returns how many games have just ended."""
  step_type = np.reshape(timestep.step_type, (-1, num_players))
  return int((step_type == types.LAST).all(axis=1).sum())


def _keep(
  spec: games_lib.GameSpec,
  seats: Sequence[int],
  action: Any,
  timestep: dm_env.TimeStep,
) -> tuple[Any, dm_env.TimeStep]:
  """Returns previous actions and timesteps of some seats, leaves [K, ...]."""

  def pick(leaf: Any) -> types.NumpyArray:
    rows = np.asarray(leaf)  # [G * P, ...]
    by_game = rows.reshape(-1, spec.num_players, *rows.shape[1:])
    return by_game[:, list(seats)].reshape(-1, *rows.shape[1:])

  own: dm_env.TimeStep = jax.tree.map(pick, timestep)
  nothing = distributions.no_action(
    spec.environment.actions, own.step_type.shape
  )
  if action is None:
    return nothing, own
  is_first = own.step_type == types.FIRST

  def choose(new: Any, none: Any) -> Any:
    mask = is_first.reshape(-1, *[1] * (np.ndim(none) - 1))
    return np.where(mask, none, pick(new)).astype(none.dtype)

  return jax.tree.map(choose, action, nothing), own


def _stack(rows: Sequence[tuple[Any, dm_env.TimeStep]]) -> types.Streams:
  actions, timesteps = zip(*rows, strict=True)
  previous_action, timestep = (
    jax.tree.map(lambda *leaves: np.stack(leaves), *trees)
    for trees in (actions, timesteps)
  )
  return types.Streams(timestep, previous_action)
