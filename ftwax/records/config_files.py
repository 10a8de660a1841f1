"""Configurations as plain data: JSON in records, TOML from people.

A configuration is a tree of dataclasses and NamedTuples. `to_json` writes it as
dicts, lists, strings, numbers, booleans and None; `rebuilding` is the inverse.

  number or string   itself; NaN and infinities are strings
  prior              its number if it is constant, else its `repr`
  object             its fields, and its class under `__type__`
  function or class  its name under `__type__`, and arguments that are bound

The name of a part is that of `registry`. Of others it is `module:name`, with
which configurations are compared, and which nobody can rebuild.
"""

import dataclasses
import enum
import functools
import hashlib
import itertools
import json
import math
import os
import pathlib
import re
import sys
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from ftwax import hyperparameters, registry, types

if sys.version_info >= (3, 11):
  import tomllib
else:
  import tomli as tomllib

# Values by name, nested like the fields.
Changes = Mapping[str, Any]

# Stands for the value of a key that only the other configuration has.
ABSENT = '<absent>'

TYPE = '__type__'

# What Python writes so, and TOML otherwise: `.1`, `1.`; `True`.
_NUMBER = re.compile(r'[+-]?(\d+\.|\.\d+)(e[+-]?\d+)?', re.I)
_TRUTHS = {'True': True, 'False': False}
NONE = 'none'  # None in TOML, which has no null.
NOT_FINITE = ('Infinity', '-Infinity', 'NaN')

PRIORS = {
  prior.__name__: prior
  for prior in (
    hyperparameters.Constant,
    hyperparameters.Initial,
    hyperparameters.LogUniform,
    hyperparameters.Uniform,
    hyperparameters.UniformInteger,
  )
}


def to_json(config: Any, path: str = 'config') -> Any:
  """Converts a configuration to JSON that is the same in every process.

  Values in closures are left out.

  Args:
    config: a configuration, nested to any depth.
    path: name of the configuration in errors.

  Returns:
    Dicts, lists, strings, numbers, booleans and None.

  Raises:
    TypeError: if an entry is of another kind; names the first one.
  """
  if hasattr(config, '__array__') and not isinstance(config, type):
    array = np.asarray(config)
    values = to_json(array.tolist(), path)
    kind = f'array[{array.dtype}]'
    return {TYPE: kind, 'values': values} if array.ndim else values
  if isinstance(config, enum.Enum):
    return f'{registry.path_of(type(config))}.{config.name}'
  if config is None or isinstance(config, bool | int | str):
    return config
  if isinstance(config, float):
    if math.isfinite(config):
      return config
    return 'NaN' if math.isnan(config) else f'{"-" * (config < 0)}Infinity'
  if isinstance(config, os.PathLike | np.dtype):
    return str(config)
  if isinstance(config, hyperparameters.Constant):
    return to_json(config.value)
  if type(config) in PRIORS.values():
    return repr(config)
  if callable(config) and hasattr(config, '__name__'):  # A function or class.
    return {TYPE: registry.name_of(config)}
  if isinstance(config, functools.partial):
    bound = _mapping_to_json(registry.bound(config), path)
    return {**to_json(config.func, path), **bound}
  fields = fields_of(config)
  if fields is not None:
    return {TYPE: registry.name_of(type(config))} | _mapping_to_json(
      fields, path
    )
  if isinstance(config, Mapping):
    return _mapping_to_json(config, path)
  if isinstance(config, list | tuple):
    return [
      to_json(entry, f'{path}[{index}]') for index, entry in enumerate(config)
    ]
  if isinstance(config, set | frozenset):
    entries = [to_json(entry, path) for entry in config]
    return sorted(entries, key=json.dumps)
  raise types.InvalidTypeError(
    f'{path} ({config!r}) must be a number, string, array, function, an object'
    ' with attributes, or a list or dict of these, to be recorded; replace it'
    ' with a function that makes it.'
  )


def _mapping_to_json(mapping: Mapping[Any, Any], path: str) -> dict[str, Any]:
  for key in mapping:
    if not isinstance(key, str | int):
      raise types.InvalidTypeError(
        f'{path} must have strings as keys, not {key!r}; rename the key.'
      )
  return {
    str(key): to_json(value, f'{path}.{key}') for key, value in mapping.items()
  }


def fields_of(config: Any) -> Mapping[str, Any] | None:
  """Returns the fields of an object by name; None if it has none."""
  names: Iterable[str]
  if dataclasses.is_dataclass(config):
    names = [field.name for field in dataclasses.fields(config)]
  elif isinstance(config, tuple) and hasattr(config, '_asdict'):
    return dict(config._asdict())
  elif isinstance(config, list | tuple | set | frozenset | Mapping):
    return None
  else:
    slots = [getattr(kind, '__slots__', ()) for kind in type(config).__mro__]
    if not any(slots) and not hasattr(config, '__dict__'):
      return None
    names = [*itertools.chain(*slots), *getattr(config, '__dict__', ())]
  return {
    name: getattr(config, name) for name in names if hasattr(config, name)
  }


def read_toml(path: str) -> dict[str, Any]:
  """Reads a TOML file.

  Raises:
    ValueError: if there is no such file, or it is not TOML.
  """
  try:
    return tomllib.loads(pathlib.Path(path).read_text('utf-8'))
  except (OSError, ValueError, RecursionError) as error:
    raise ValueError(
      f'config ({path}) must be a TOML file, and cannot be read ({error});'
      ' --print_config prints one.'
    ) from None


def parse(text: str) -> dict[str, Any]:
  """Parses `KEY=VALUE`, where the value is TOML or an unquoted string.

  Numbers and truth values may be written as in Python, too: `.1`, `True`.

  Raises:
    ValueError: if the text has another form.
  """
  key, equals, value = text.partition('=')
  parts = key.strip().split('.')
  if not equals or not all(part.isidentifier() for part in parts):
    raise ValueError(
      f'set ({text!r}) must be KEY=VALUE, such as agent.batch_size=32; rewrite'
      ' it in this form.'
    )
  changes: Any
  try:
    changes = tomllib.loads(f'value = {value}')['value']
  except (tomllib.TOMLDecodeError, RecursionError):
    word = value.strip()
    is_number = _NUMBER.fullmatch(word)
    changes = float(word) if is_number else _TRUTHS.get(word, word)
  for part in reversed(parts):
    changes = {part: changes}
  return dict(changes)


def merge(first: Changes, second: Changes) -> dict[str, Any]:
  """Merges changes recursively; the second ones take precedence.

  The name of a part and its fields go together: `core=gru` and
  `core.hidden_size=32` are a GRU with 32 units, in any order. So do names in a
  list, as in `tasks=["value_replay"]` and `tasks.value_replay.cost=0.1`.
  """
  merged = dict(first)
  for name, value in second.items():
    before = merged.get(name)
    if isinstance(before, Mapping) and isinstance(value, Mapping):
      value = merge(before, value)
    elif isinstance(before, str) and isinstance(value, Mapping):
      value = {TYPE: before, **value}
    elif isinstance(before, Mapping) and isinstance(value, str):
      value = value if TYPE in before else {TYPE: value, **before}
    elif isinstance(before, list) and isinstance(value, Mapping):
      value = _change_named(before, value)
    elif isinstance(before, Mapping) and isinstance(value, list):
      value = _change_named(value, before)
    merged[name] = value
  return merged


def _change_named(entries: list[Any], changes: Changes) -> list[Any]:
  """Changes fields of the parts that a list names."""
  missing = [name for name in changes if name not in entries]
  if missing:
    raise ValueError(
      f'{missing[0]} is not among {entries}; add it to the list, or leave its'
      ' fields out.'
    )
  return [
    {TYPE: entry, **changes[entry]}
    if isinstance(entry, str) and entry in changes
    else entry
    for entry in entries
  ]


def to_toml(plain: Mapping[str, Any], path: str = '') -> str:
  """Returns what `to_json` returned as TOML, readable by `read_toml`."""
  lines = [
    f'{json.dumps(name) if "." in name else name} = {_toml_value(value)}'
    for name, value in plain.items()
    if not isinstance(value, dict)
  ]
  tables = [
    to_toml(value, f'{path}.{name}' if path else name)
    for name, value in plain.items()
    if isinstance(value, dict)
  ]
  text = '\n'.join([f'[{path}]'] * bool(path) + lines)
  return '\n\n'.join(part for part in (text, *tables) if part)


def _toml_value(value: Any) -> str:
  if value is None:
    return json.dumps(NONE)
  if isinstance(value, str):
    number = value.removesuffix('inity').lower()
    return number if value in NOT_FINITE else json.dumps(value)
  if isinstance(value, list):
    return f'[{", ".join(map(_toml_value, value))}]'
  if isinstance(value, dict):
    pairs = (f'{json.dumps(k)} = {_toml_value(v)}' for k, v in value.items())
    return f'{{{", ".join(pairs)}}}'
  return json.dumps(value)


def digest(config: Any) -> str:
  """Returns the SHA-256 of `config` as JSON, 64 hexadecimal digits."""
  text = json.dumps(to_json(config), sort_keys=True)
  return hashlib.sha256(text.encode()).hexdigest()


def flatten(plain: Any, path: str = '') -> dict[str, Any]:
  """Returns the leaves of nested dicts and lists by dotted key."""
  if isinstance(plain, list):
    plain = {str(index): entry for index, entry in enumerate(plain)}
  if not isinstance(plain, dict) or (path and not plain):
    return {path: plain}
  leaves = {}
  for key, value in plain.items():
    leaves.update(flatten(value, f'{path}.{key}' if path else key))
  return leaves


def differences(then: Any, now: Any) -> list[tuple[str, Any, Any]]:
  """Returns (key, then, now) for each leaf that differs."""
  then, now = flatten(then), flatten(now)
  pairs = [
    (key, then.get(key, ABSENT), now.get(key, ABSENT))
    for key in dict.fromkeys([*then, *now])
  ]
  return [pair for pair in pairs if pair[1] != pair[2]]
