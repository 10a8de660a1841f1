"""The specs of a run's game as a file, `game.json` in the run's directory.

With this file and the configuration, an agent can be restored without the
environment.
"""

import json
import math
import os
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from dm_env import specs

from ftwax import continuous, errors, types
from ftwax.environments import games
from ftwax.records import files, run_directory

_Json = dict[str, Any]


def write(directory: pathlib.Path, spec: games.GameSpec) -> None:
  """Writes the specs of a game into a directory; see `to_json`."""
  path = directory / run_directory.GAME_FILE
  files.write_atomically(path, to_json(spec))


def to_json(spec: games.GameSpec) -> str:
  """Returns the specs of a game as JSON.

  Raises:
    TypeError: if a spec is of an unknown kind.
  """
  environment = spec.environment._asdict()
  plain = {
    'absences': environment.pop('absences'),
    **{name: _tree_to_json(tree) for name, tree in environment.items()},
    'teams': list(spec.teams),
    'event_names': list(spec.event_names),
    'roles': list(spec.roles),
    'headline': spec.headline,
    'spaces': spec.spaces,
  }
  return json.dumps(plain, indent=2) + '\n'


def read(directory: str | os.PathLike[str]) -> games.GameSpec:
  """Reads the specs of a game.

  Raises:
    ValueError: if there is no such file or it is damaged.
  """
  path = pathlib.Path(directory) / run_directory.GAME_FILE
  return files.parse_json(path, _game_from_json, 'the specs of a game')


def _game_from_json(plain: _Json) -> games.GameSpec:
  names = [name for name in types.EnvironmentSpec._fields if name != 'absences']
  environment = {name: _tree_from_json(plain[name]) for name in names}
  return games.GameSpec(
    types.EnvironmentSpec(**environment, absences=plain.get('absences', False)),
    tuple(_index(team) for team in plain['teams']),
    tuple(_text(name) for name in plain['event_names']),
    # Older runs have no roles.
    tuple(_index(role) for role in plain.get('roles', ())),
    _text(plain.get('headline', '')),
    _text(plain.get('spaces', '')),
  )


def _index(plain: Any) -> int:
  if type(plain) is not int or not 0 <= plain < _MAX_INDEX:
    raise ValueError(
      f'team or role ({plain!r:.80}) must be from 0 to {_MAX_INDEX - 1}'
    )
  return plain


def _text(plain: Any) -> str:
  """Returns a text, in which a terminal would find no commands."""
  if not isinstance(plain, str) or errors.printable(plain) != plain:
    raise ValueError(f'name ({plain!r:.80}) must be a text without controls')
  return plain


def _tree_to_json(tree: types.SpecTree) -> _Json:
  if isinstance(tree, Mapping):
    return {'dict': {str(k): _tree_to_json(v) for k, v in tree.items()}}
  if isinstance(tree, tuple | list):
    return {'tuple': [_tree_to_json(entry) for entry in tree]}
  return {'spec': _spec_to_json(tree)}


def _tree_from_json(plain: _Json) -> types.SpecTree:
  if 'dict' in plain:
    return {name: _tree_from_json(v) for name, v in plain['dict'].items()}
  if 'tuple' in plain:
    return tuple(_tree_from_json(entry) for entry in plain['tuple'])
  return _spec_from_json(plain['spec'])


def _spec_to_json(spec: Any) -> _Json:
  """Returns the kind of a spec and its constructor's arguments."""
  if isinstance(spec, specs.DiscreteArray):
    return {
      'kind': 'discrete',
      'num_values': int(spec.num_values),
      'dtype': spec.dtype.name,
      'name': spec.name,
    }
  if isinstance(spec, continuous.SimplexArray):
    return {'kind': 'simplex', 'num_shares': spec.shape[0], 'name': spec.name}
  if not isinstance(spec, specs.Array):
    raise types.InvalidTypeError(
      f'{spec!r} must be a dm_env spec to be recorded; give specs.Array,'
      ' BoundedArray or DiscreteArray.'
    )
  plain = {
    'kind': 'array',
    'shape': list(spec.shape),
    'dtype': spec.dtype.name,
    'name': spec.name,
  }
  if isinstance(spec, specs.BoundedArray):
    bounds = {
      'minimum': np.asarray(spec.minimum).tolist(),
      'maximum': np.asarray(spec.maximum).tolist(),
    }
    return {**plain, 'kind': 'bounded', **bounds}
  return plain


# Entries of an array in an observation or action: 64 pictures of 1024x1024.
_MAX_ENTRIES = 2**26

_MAX_INDEX = 1024

_MAKERS = {
  'array': specs.Array,
  'bounded': specs.BoundedArray,
  'discrete': specs.DiscreteArray,
  'simplex': continuous.SimplexArray,
}


def _spec_from_json(plain: _Json) -> specs.Array:
  options = dict(plain)
  sizes = options.get('shape', [options.get('num_shares', 1)])
  if not all(type(size) is int and size >= 0 for size in sizes):
    raise ValueError(f'shape ({sizes!r:.80}) must be sizes of arrays')
  if math.prod(sizes) > _MAX_ENTRIES:
    raise ValueError(
      f'shape ({sizes!r:.80}) must have at most {_MAX_ENTRIES:,} entries'
    )
  make = _MAKERS[options.pop('kind')]
  if 'dtype' in options:
    options['dtype'] = np.dtype(options['dtype'])
  if 'shape' in options:
    options['shape'] = tuple(options['shape'])
  spec: specs.Array = make(**options)
  return spec
