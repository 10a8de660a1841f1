"""Saved games as recorded games: people teach agents.

The page to play saves a game as its seed, the actions of all seats, and the
states that it showed. The game is played again with these actions, which gives
what each seat observed. It counts only if it shows the same states and has the
same result.
"""

import os
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from ftwax import distributions, errors, types
from ftwax.environments import functional, game_pages, games
from ftwax.inference import playable as playable_lib
from ftwax.records import recorded_games
from ftwax.reporting import saved_games
from ftwax.runtime import recorded_rows

# Who is kept besides players by their names.
PEOPLE, ALL = 'people', 'all'

# Errors of games that are not what the page saves.
_DAMAGE = (ValueError, LookupError, TypeError, AttributeError, OverflowError)

# Steps of a part on disk, which is kept in memory until then.
_PART_STEPS = 16_384


def record(
  playable: playable_lib.PlayableGame,
  folder: str | os.PathLike[str],
  directory: str | os.PathLike[str],
  players: Sequence[str] = (PEOPLE,),
  warn: Callable[[str], None] = print,
) -> int:
  """Adds saved games to a folder of recorded games.

  Args:
    playable: the game, in JAX; see `playable.find`.
    folder: a folder of saved games, such as `runs/games`.
    directory: a folder of recorded games, which may have some already.
    players: whose seats are kept: `people`, `all`, and names of players.
    warn: is called with a sentence on each game that is left out.

  Returns:
    The number of games that were added.

  Raises:
    ValueError: if there are no saved games of this game, none leads to its
      result, or nobody whom `players` names plays in one.
  """
  if not isinstance(playable.game, functional.FunctionalGame):
    raise ValueError(
      f'game ({playable.name}) must be written in JAX to be played again from a'
      ' seed; record it while it is played, by ftwax record without --saved.'
    )
  saved = saved_games.SavedGames(pathlib.Path(folder)).readable()
  own = [each for each in saved if each[1]['game'] == playable.name]
  if not own:
    others = sorted({game['game'] for _, game in saved})
    raise ValueError(
      f'saved ({folder}) must have games of {playable.name}, and has'
      f' {others or "none"}; play some by ftwax play.'
    )
  spec = games.spec_of(playable.game)
  num_games, num_replayed = 0, 0
  rows: list[types.Streams] = []
  for name, game in reversed(own):  # The earliest first.
    try:
      seats = _find_seats(game, spec, players)
      streams = _replay(playable, spec, game, seats)
    except _DAMAGE as error:
      warn(f'Left out {name}: {errors.printable(str(error))}.')
      continue
    num_replayed += 1
    rows += streams
    num_games += bool(streams)
    if sum(len(row.timestep.step_type) for row in rows) >= _PART_STEPS:
      recorded_games.append(directory, spec, _join(rows))
      rows = []
  if rows:
    recorded_games.append(directory, spec, _join(rows))
  if not num_games:
    who = ', '.join(players)
    reason = 'nobody of them plays in those that can be replayed'
    if not num_replayed:
      reason = 'no game could be replayed'
    raise ValueError(
      f'players ({who}) must have played saved games in {folder}, and {reason};'
      f' choose {ALL}, or the experiment that they were played in.'
    )
  return num_games


def _find_seats(
  game: Mapping[str, Any], spec: games.GameSpec, players: Sequence[str]
) -> list[int]:
  """Returns the seats of a saved game that are kept."""
  if len(game['seats']) != spec.num_players:
    raise ValueError(
      f'it has {len(game["seats"])} seats, and the game {spec.num_players}'
    )
  return [
    index
    for index, seat in enumerate(game['seats'])
    if ALL in players
    or seat['name'] in players
    or (PEOPLE in players and seat['kind'] == 'person')
  ]


def _replay(
  playable: playable_lib.PlayableGame,
  spec: games.GameSpec,
  game: Mapping[str, Any],
  seats: Sequence[int],
) -> list[types.Streams]:
  """Plays a saved game again; returns a stream [L, 1] of each seat.

  Raises:
    ValueError: if it takes another course than what was saved.
  """
  seed, actions, shown = game.get('seed'), game.get('actions'), game['states']
  if type(seed) is not int or not isinstance(actions, list):
    raise ValueError('it has no seed and actions, as those of the site')
  if len(shown) != len(actions) + 1:
    raise ValueError(
      f'it has {len(actions)} steps of actions for {len(shown)} states'
    )
  reset, step = playable.functions
  keys = jax.random.split(jax.random.PRNGKey(seed), spec.num_players + 1)
  state, timestep, picture, outcome = reset(keys[0])
  rows = recorded_rows.RecordedRows(spec, seats)
  rows.add(None, timestep)
  _compare(picture, shown[0], 0)
  for index, row in enumerate(actions):
    action = _read_actions(spec, row)
    state, timestep, picture, outcome = step(state, action)
    rows.add(action, timestep)
    _compare(picture, shown[index + 1], index + 1)
  if not (np.asarray(timestep.step_type) == types.LAST).all():
    rows.cut_off()  # Somebody gave up, which the game does not know.
  elif np.asarray(outcome).tolist() != game['outcome']:
    raise ValueError(
      f'its result was {game["outcome"]}, and is {np.asarray(outcome).tolist()}'
      ' when it is played again'
    )
  if not seats:
    return []
  streams = rows.take()
  return [
    jax.tree.map(lambda leaf, k=k: leaf[:, k : k + 1], streams)
    for k in range(len(seats))
  ]


def _compare(picture: Any, shown: Any, step: int) -> None:
  """Raises a ValueError unless a replay shows what was saved."""
  if game_pages.to_json(picture) != shown:
    raise ValueError(
      f'at step {step} it showed another state than the game does now, as in'
      ' games with other rules'
    )


def _read_actions(spec: games.GameSpec, row: Any) -> types.ArrayTree:
  """Returns the actions of all seats, leaves [P, ...], from JSON."""
  seats = [_read_action(spec.environment.actions, each) for each in row]
  if len(seats) != spec.num_players:
    raise ValueError(f'a step has {len(seats)} actions')
  actions: types.ArrayTree = jax.tree.map(
    lambda *leaves: np.stack(leaves), *seats
  )
  return actions


def _read_action(spec: Any, plain: Any) -> Any:
  """Returns the action of one seat, which must be one of its spec."""
  if isinstance(spec, Mapping):
    return {name: _read_action(spec[name], plain[name]) for name in spec}
  if isinstance(spec, tuple):
    parts = zip(spec, plain, strict=True)
    return tuple(_read_action(one, part) for one, part in parts)
  action = np.asarray(plain, spec.dtype)
  if np.asarray(plain).dtype.kind not in 'iufb' or action.shape != spec.shape:
    raise ValueError(f'an action ({plain!r:.40}) is none of the game')
  num_choices = distributions.num_choices(spec)
  if num_choices is not None and not 0 <= int(action) < num_choices:
    raise ValueError(f'an action ({plain!r:.40}) is none of the game')
  return action


def _join(rows: Sequence[types.Streams]) -> types.Streams:
  """Joins streams [L, 1], each of which ends with `LAST`, to one."""
  joined: types.Streams = jax.tree.map(
    lambda *leaves: np.concatenate(leaves), *rows
  )
  return joined
