"""Configurations as JSON, for records and comparisons."""

import contextlib
import dataclasses
import enum
import functools
import hashlib
import importlib
import itertools
import json
import math
import os
import re
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from ftwax import types

_NOT_FINITE = ('Infinity', '-Infinity', 'NaN')
_ARRAY_TYPE = re.compile(r'array\[(?P<dtype>\w+)\]')

# Stands for the value of a key that only the other configuration has.
ABSENT = '<absent>'


def to_json(config: Any, path: str = 'config') -> Any:
  """Converts a configuration to JSON that is the same in every process.

  Dataclasses, NamedTuples and objects with attributes become dicts with their
  type under `__type__`. Functions and classes become their qualified name;
  values in closures are left out. NaN and infinities become strings.

  Args:
    config: a configuration, nested to any depth.
    path: name of the configuration in errors.

  Returns:
    Dicts, lists, strings, numbers, booleans and None.

  Raises:
    TypeError: if an entry is of another kind; names the first one.
  """
  if hasattr(config, '__array__') and not isinstance(config, type):
    return _array_to_json(np.asarray(config), path)
  if isinstance(config, enum.Enum):
    return f'{_qualified_name(type(config))}.{config.name}'
  if config is None or isinstance(config, bool | int | str):
    return config
  if isinstance(config, float):
    return _float_to_json(config)
  if isinstance(config, os.PathLike | np.dtype):
    return str(config)
  if callable(config) and hasattr(config, '__name__'):  # A function or class.
    return _qualified_name(config)
  fields = _fields(config)
  if fields is not None:
    plain = {'__type__': _qualified_name(type(config))}
    return plain | _mapping_to_json(fields, path)
  if isinstance(config, Mapping):
    return _mapping_to_json(config, path)
  if isinstance(config, list | tuple):
    return [
      to_json(entry, f'{path}[{index}]') for index, entry in enumerate(config)
    ]
  if isinstance(config, set | frozenset):
    entries = [to_json(entry, path) for entry in config]
    return sorted(entries, key=json.dumps)
  raise TypeError(
    f'{path} ({config!r}) must be a number, string, array, function, an object'
    ' with attributes, or a list or dict of these, to be recorded; replace it'
    ' with a function that makes it.'
  )


def from_json(plain: Any, path: str = 'config') -> Any:
  """Inverts `to_json` for this library's own classes.

  Lists become tuples. Functions and objects of other libraries are not
  restored, since only their names are recorded.

  Args:
    plain: a part of what `to_json` returned.
    path: name of the part in errors.

  Returns:
    Dataclasses, NamedTuples, dicts, tuples, arrays, strings, numbers, booleans
    and None.

  Raises:
    ValueError: if an entry is of another kind; names the first one.
  """
  if isinstance(plain, str) and plain in _NOT_FINITE:
    return float(plain)
  if isinstance(plain, list):
    return tuple(
      from_json(entry, f'{path}[{index}]') for index, entry in enumerate(plain)
    )
  if not isinstance(plain, Mapping):
    return plain
  kind = plain.get('__type__')
  if kind is None:
    return {
      name: from_json(entry, f'{path}.{name}') for name, entry in plain.items()
    }
  array = _ARRAY_TYPE.fullmatch(kind)
  if array is not None:
    return np.asarray(plain['values'], array['dtype'])
  made = find_type(kind, path)
  fields = {
    name: from_json(entry, f'{path}.{name}')
    for name, entry in plain.items()
    if name != '__type__'
  }
  return made(**fields)


def find_type(name: str, path: str) -> Any:
  """Returns a dataclass or NamedTuple of this library by its qualified name.

  Raises:
    ValueError: if there is none.
  """
  module, _, attribute = name.rpartition('.')
  made = None
  # A record may come from anybody: only this library's own types are imported
  # and called.
  if module.split('.')[0] == 'ftwax':
    with contextlib.suppress(ImportError):
      made = getattr(importlib.import_module(module), attribute, None)
  is_record = dataclasses.is_dataclass(made) or hasattr(made, '_asdict')
  if not isinstance(made, type) or not is_record:
    raise ValueError(
      f'{path} ({name}) must be a config of ftwax to be rebuilt from its'
      ' record, and is not; make it in Python, as the run did.'
    )
  return made


def _qualified_name(value: Any) -> str:
  # Before NumPy 2, universal functions have no module and no qualified name.
  module = getattr(value, '__module__', None) or type(value).__module__
  return f'{module}.{getattr(value, "__qualname__", value.__name__)}'


def _fields(config: Any) -> Mapping[str, Any] | None:
  """Returns the fields of an object by name; None if it has none."""
  names: Iterable[str]
  if dataclasses.is_dataclass(config):
    names = [field.name for field in dataclasses.fields(config)]
  elif isinstance(config, tuple) and hasattr(config, '_asdict'):
    return dict(config._asdict())
  elif isinstance(config, functools.partial):
    names = ('func', 'args', 'keywords')
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


def _mapping_to_json(mapping: Mapping[Any, Any], path: str) -> dict[str, Any]:
  for key in mapping:
    if not isinstance(key, str | int):
      raise TypeError(
        f'{path} must have strings as keys, not {key!r}; rename the key.'
      )
  return {
    str(key): to_json(value, f'{path}.{key}') for key, value in mapping.items()
  }


def _array_to_json(array: types.NumpyArray, path: str) -> Any:
  values = to_json(array.tolist(), path)
  if array.ndim == 0:
    return values
  return {'__type__': f'array[{array.dtype}]', 'values': values}


def _float_to_json(value: float) -> float | str:
  if math.isfinite(value):
    return value
  return 'NaN' if math.isnan(value) else f'{"-" * (value < 0)}Infinity'


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
