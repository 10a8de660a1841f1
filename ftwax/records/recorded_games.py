"""Recorded games on disk: what players saw and did, for learners.

    DIR/game.json             specs of the game, as in a run
    DIR/recording.json        the parts, each with its numbers of steps and rows
    DIR/0000000000/           arrays and their manifest, as in a checkpoint

Parts are complete before `recording.json` names them, so that a recording that
is killed keeps what it has, and goes on. A folder may come from anybody: sizes
are checked before memory is taken.
"""

import hashlib
import json
import os
import pathlib
import shutil
from collections.abc import Iterator
from typing import Any

import dm_env
import jax
import numpy as np

from ftwax import distributions, trees, types
from ftwax.environments import games
from ftwax.records import array_files, files, game_files, run_directory

FILE = 'recording.json'

_SPECS = ('observations', 'actions', 'rewards')

# The most steps of a part, and its most rows.
_MAX_COUNT = 2**31


def append(
  directory: str | os.PathLike[str],
  spec: games.GameSpec,
  streams: types.Streams,
) -> None:
  """Adds streams to a folder, which is made if there is none.

  Raises:
    ValueError: if the folder has recorded another game, is damaged, or has
      something else.
  """
  folder = pathlib.Path(directory)
  parts: list[tuple[int, int]] = []
  if (folder / FILE).exists():
    if read_game(folder) != spec:
      raise ValueError(
        f'directory ({directory}) must be new, or have recorded the same game,'
        ' and has recorded one with other specs; choose another.'
      )
    parts = _read_parts(folder)
  else:
    folder.mkdir(parents=True, exist_ok=True)
    # What a recording that was killed may have left.
    known = {run_directory.GAME_FILE, _name(0)}
    others = {path.name for path in folder.iterdir()} - known
    if others:
      raise ValueError(
        f'directory ({directory}) must be new or empty, or have recorded games,'
        f' and has {min(others)!r}; choose another.'
      )
    game_files.write(folder, spec)
  part = folder / _name(len(parts))
  shutil.rmtree(part, ignore_errors=True)  # Of a recording that was killed.
  part.mkdir()
  # Observations repeat themselves.
  array_files.write(part, 'games', streams, compress=True)
  parts.append(streams.shape)
  files.write_atomically(folder / FILE, json.dumps({'parts': parts}) + '\n')


def read_game(directory: str | os.PathLike[str]) -> games.GameSpec:
  """Returns the specs of the game that was recorded.

  Raises:
    ValueError: if there is none, or it is damaged.
  """
  return game_files.read(directory)


def identify(directory: str | os.PathLike[str]) -> str:
  """Returns the SHA-256 of what was recorded, 64 hexadecimal digits.

  It is that of the same games wherever they are.

  Raises:
    ValueError: if there are none, or they are damaged.
  """
  folder = pathlib.Path(directory)
  found = hashlib.sha256(files.read_bytes(folder / run_directory.GAME_FILE))
  for index, part in enumerate(_read_parts(folder)):
    with files.reading(folder / _name(index), 'recorded games'):
      digest = files.read(folder / _name(index) / array_files.DIGEST_FILE)
    found.update(f'{part} {digest}'.encode())
  return found.hexdigest()


def count_steps(directory: str | os.PathLike[str]) -> int:
  """Returns the number of recorded steps of all rows."""
  return sum(
    length * rows for length, rows in _read_parts(pathlib.Path(directory))
  )


def check(
  directory: str | os.PathLike[str], spec: types.EnvironmentSpec
) -> None:
  """Raises a ValueError unless games with these specs were recorded."""
  if not (pathlib.Path(directory) / FILE).exists():
    raise ValueError(
      f'demonstrations ({directory}) must be a directory of recorded games, and'
      f' has no {FILE}; record some by ftwax record.'
    )
  recorded = read_game(directory).environment.public
  for name in _SPECS:
    own, other = getattr(spec.public, name), getattr(recorded, name)
    if name == 'rewards':  # Bounds matter to nobody.
      own, other = own.shape, other.shape
    elif name == 'observations':
      own = types.see_public(own, other)
    if own != other:
      raise ValueError(
        f'demonstrations ({directory}) must be of a game with {name} {own}, and'
        f' are of one with {other}; record this game.'
      )
  if not count_steps(directory):
    raise ValueError(
      f'demonstrations ({directory}) must have steps, and have none; record'
      ' games by ftwax record.'
    )


def read(
  directory: str | os.PathLike[str], spec: types.EnvironmentSpec
) -> Iterator[types.Streams]:
  """Yields what was recorded, part by part.

  Args:
    directory: a folder of `append`.
    spec: specs of the game that learns.

  Raises:
    ValueError: if another game was recorded, or something is damaged.
  """
  check(directory, spec)
  folder = pathlib.Path(directory)
  recorded = read_game(folder).environment
  for index, (length, rows) in enumerate(_read_parts(folder)):
    template = _template(recorded, (length, rows))
    streams, _ = array_files.read(folder / _name(index), template)
    yield streams


def _template(
  spec: types.EnvironmentSpec, shape: tuple[int, int]
) -> types.Streams:
  """Returns streams of zeros, which take no memory."""

  def zeros(tail: tuple[int, ...], dtype: Any) -> types.NumpyArray:
    return np.broadcast_to(np.zeros((), dtype), (*shape, *tail))

  def widen(tree: Any) -> Any:
    return jax.tree.map(
      lambda leaf: zeros(np.shape(leaf), np.asarray(leaf).dtype), tree
    )

  return types.Streams(
    dm_env.TimeStep(
      zeros((), np.int32),
      zeros(spec.rewards.shape, np.float32),
      zeros((), np.float32),
      widen(trees.zeros_like_spec(spec.observations, ())),
    ),
    widen(distributions.no_action(spec.actions, ())),
  )


def _read_parts(folder: pathlib.Path) -> list[tuple[int, int]]:
  return files.parse_json(folder / FILE, _parts_from_json, 'recorded games')


def _parts_from_json(plain: Any) -> list[tuple[int, int]]:
  parts = [(length, rows) for length, rows in plain['parts']]
  for part in parts:
    for count in part:
      if type(count) is not int or not 0 < count < _MAX_COUNT:
        raise ValueError(f'part ({part!r:.80}) must have counts above 0')
  return parts


def _name(index: int) -> str:
  return f'{index:010d}'
