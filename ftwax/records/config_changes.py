"""Changes to configurations as text: `agent.batch_size=32`, or a TOML file.

Dotted keys name fields of dataclasses and NamedTuples. Values are numbers,
strings, booleans, or lists or tables of these. Other values are strings: a
prior is `"LogUniform(low=0.001, high=0.01)"`, None is `"none"`. Functions
cannot be given.
"""

import ast
import dataclasses
import difflib
import json
import math
import pathlib
import sys
import types as python_types
import typing
from collections.abc import Iterator, Mapping
from typing import Any

from ftwax import hyperparameters

if sys.version_info >= (3, 11):
  import tomllib
else:
  import tomli as tomllib

# Values by name, nested like the fields.
Changes = Mapping[str, Any]

_NONE = 'none'

# Marks values that have no text form, such as functions.
_NOT_PLAIN = object()

_PRIORS = (
  hyperparameters.Constant,
  hyperparameters.Initial,
  hyperparameters.LogUniform,
  hyperparameters.Uniform,
  hyperparameters.UniformInteger,
)


def read_file(path: str) -> dict[str, Any]:
  """Reads a TOML file.

  Raises:
    ValueError: if there is no such file, or it is not TOML.
  """
  try:
    return tomllib.loads(pathlib.Path(path).read_text('utf-8'))
  except (OSError, ValueError) as error:
    raise ValueError(
      f'config ({path}) must be a TOML file, and cannot be read ({error});'
      ' --print_config prints one.'
    ) from None


def parse(text: str) -> dict[str, Any]:
  """Parses `KEY=VALUE`, where the value is TOML or an unquoted string.

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
  except tomllib.TOMLDecodeError:
    changes = value.strip()
  for part in reversed(parts):
    changes = {part: changes}
  return dict(changes)


def merge(first: Changes, second: Changes) -> dict[str, Any]:
  """Merges changes recursively; the second ones take precedence."""
  merged = dict(first)
  for name, value in second.items():
    before = merged.get(name)
    if isinstance(before, Mapping) and isinstance(value, Mapping):
      value = merge(before, value)
    merged[name] = value
  return merged


def apply(config: Any, changes: Changes, path: str = '') -> Any:
  """Returns a configuration with some fields changed.

  All changes of an object are made at once, so that its checks see them
  together.

  Args:
    config: a dataclass or NamedTuple.
    changes: values by name; a mapping changes fields of a field.
    path: key of the configuration, for messages.

  Raises:
    ValueError: if there is no such field, or the field does not accept the
      value.
  """
  fields, kinds = _fields(config), _annotations(type(config))
  values = {}
  for name, value in changes.items():
    key = f'{path}.{name}' if path else name
    if name not in fields:
      raise ValueError(f'{key} is not a field{suggest(key, config, path)}')
    values[name] = convert(value, fields[name], kinds.get(name, Any), key)
  try:
    return _replace(config, values)
  except ValueError as error:
    raise ValueError(f'{path or "configuration"}: {error}') from None


def suggest(key: str, config: Any, path: str = '') -> str:
  """Returns the end of an error message about an unknown key."""
  known = [name for name, _ in _leaves(config, path)]
  last = key.rpartition('.')[-1]
  same = [name for name in known if name.rpartition('.')[-1] == last]
  close = same or difflib.get_close_matches(key, known, n=1)
  if not close:
    by_last = {name.rpartition('.')[-1]: name for name in known}
    close = [
      by_last[name] for name in difflib.get_close_matches(last, by_last, n=1)
    ]
  if close:
    return f'; did you mean {close[0]}?'
  return '; --print_config prints all.'


def to_toml(config: Any, path: str = '') -> str:
  """Returns all fields with a text form as TOML, readable by `read_file`."""
  lines, tables = [], []
  for name, value in _fields(config).items():
    key = f'{path}.{name}' if path else name
    plain = _to_plain(value)
    if plain is not _NOT_PLAIN:
      lines.append(f'{name} = {plain}')
    elif _is_record(value):
      tables.append(to_toml(value, key))
  header = [f'[{path}]'] if path and lines else []
  text = '\n'.join([*header, *lines])
  return '\n\n'.join([part for part in (text, *tables) if part])


def _leaves(config: Any, path: str) -> Iterator[tuple[str, Any]]:
  """Yields the fields with a text form, by dotted key."""
  for name, value in _fields(config).items():
    key = f'{path}.{name}' if path else name
    if _to_plain(value) is not _NOT_PLAIN:
      yield key, value
    elif _is_record(value):
      yield from _leaves(value, key)


def _is_record(value: Any) -> bool:
  if isinstance(value, type):
    return False
  return dataclasses.is_dataclass(value) or hasattr(value, '_asdict')


def _is_prior(value: Any) -> bool:
  return isinstance(value, _PRIORS)


def _fields(config: Any) -> dict[str, Any]:
  if isinstance(config, Mapping):
    return dict(config)
  if hasattr(config, '_asdict'):
    return dict(config._asdict())
  return {
    field.name: getattr(config, field.name)
    for field in dataclasses.fields(config)
  }


def _replace(config: Any, values: Mapping[str, Any]) -> Any:
  if hasattr(config, '_asdict'):
    return config._replace(**values)
  return dataclasses.replace(config, **values)


def _annotations(kind: type) -> Mapping[str, Any]:
  try:
    return typing.get_type_hints(kind)
  except NameError:  # A name imported under TYPE_CHECKING.
    return {}


def _to_plain(value: Any) -> Any:
  """Returns a value as TOML; `_NOT_PLAIN` if it has no TOML form."""
  if value is None:
    return json.dumps(_NONE)
  if isinstance(value, bool):
    return str(value).lower()
  if isinstance(value, int | float):
    return repr(value)
  if isinstance(value, str):
    return json.dumps(value)
  if isinstance(value, hyperparameters.Constant):
    return repr(value.value)
  if _is_prior(value):
    return json.dumps(repr(value))
  if isinstance(value, list | tuple) and not _is_record(value):
    entries = [_to_plain(entry) for entry in value]
    if any(entry is _NOT_PLAIN for entry in entries):
      return _NOT_PLAIN
    return f'[{", ".join(entries)}]'
  if isinstance(value, Mapping):
    entries = [_to_plain(entry) for entry in value.values()]
    if any(entry is _NOT_PLAIN for entry in entries):
      return _NOT_PLAIN
    pairs = zip(map(json.dumps, value), entries, strict=True)
    return '{' + ', '.join(f'{name} = {entry}' for name, entry in pairs) + '}'
  return _NOT_PLAIN


def convert(value: Any, current: Any, kind: Any, key: str) -> Any:
  """Converts a value to the type of a field.

  Args:
    value: a TOML value.
    current: current value of the field.
    kind: annotation of the field.
    key: key of the field, for messages.

  Raises:
    ValueError: if the field does not accept the value.
  """
  if _is_record(current) and not _is_prior(current):
    if isinstance(value, Mapping):
      return apply(current, value, key)
    fields = ', '.join(_fields(current))
    raise ValueError(
      f'{key} ({value!r}) must be set field by field; choose one of {fields}.'
    )
  if isinstance(current, Mapping) and isinstance(value, Mapping):
    return {**current, **value}
  if _is_prior(current) or _mentions_prior(kind):
    converted = _to_prior(value, current, key)
    if converted is not _NOT_PLAIN:
      return converted
  converted = _fit(value, kind)
  if converted is _NOT_PLAIN:
    raise ValueError(
      f'{key} ({value!r}) must be {_readable(kind)}, but is'
      f' {type(value).__name__}; choose another value.'
    )
  return converted


def _fit(value: Any, kind: Any) -> Any:
  """Converts a value to an annotated type; `_NOT_PLAIN` if it does not fit."""
  origin, arguments = typing.get_origin(kind), typing.get_args(kind)
  if origin in (typing.Union, python_types.UnionType):
    if value == _NONE and python_types.NoneType in arguments:
      return None
    fits = [_fit(value, argument) for argument in arguments]
    return next((fit for fit in fits if fit is not _NOT_PLAIN), _NOT_PLAIN)
  if origin is typing.Literal:
    return value if value in arguments else _NOT_PLAIN
  if origin is tuple and isinstance(value, list):
    if arguments[-1] is Ellipsis:
      arguments = arguments[:1] * len(value)
    if len(arguments) != len(value):
      return _NOT_PLAIN
    entries = tuple(map(_fit, value, arguments))
    return _NOT_PLAIN if _NOT_PLAIN in entries else entries
  # Before numbers, since a bool is an int in Python.
  if isinstance(value, bool) or kind is bool:
    return value if isinstance(value, bool) and kind is bool else _NOT_PLAIN
  if kind is float and isinstance(value, int | float):
    return float(value)
  if kind is int and isinstance(value, float) and value.is_integer():
    return int(value)  # Such as 1e6.
  if kind in (int, str) and isinstance(value, kind):
    return value
  return _NOT_PLAIN


def _mentions_prior(kind: Any) -> bool:
  return kind is hyperparameters.Prior or any(
    map(_mentions_prior, typing.get_args(kind))
  )


def _to_prior(value: Any, current: Any, key: str) -> Any:
  """Converts a value to a prior or a tuple of these, else `_NOT_PLAIN`."""
  if isinstance(value, list):
    return tuple(_to_prior(entry, None, key) for entry in value)
  if isinstance(value, int | float) and not isinstance(value, bool):
    if _is_prior(current):
      return hyperparameters.fix(current, value)
    return hyperparameters.Constant(value)
  if not isinstance(value, str) or value == _NONE:
    return _NOT_PLAIN
  try:
    return _parse_prior(value)
  except (
    SyntaxError,
    TypeError,
    ValueError,
    KeyError,
    AttributeError,
  ) as error:
    raise ValueError(
      f'{key} ({value!r}) must be a number or a prior ({error}); choose'
      f' {key}=0.001 or {key}="LogUniform(low=0.0001, high=0.01)".'
    ) from None


def _parse_prior(text: str) -> Any:
  """Parses the `repr` of a prior."""
  call: Any = ast.parse(text.strip(), mode='eval').body
  made = {prior.__name__: prior for prior in _PRIORS}[call.func.id]
  return made(
    *map(_literal, call.args),
    **{keyword.arg: _literal(keyword.value) for keyword in call.keywords},
  )


def _literal(node: Any) -> Any:
  if isinstance(node, ast.Tuple):
    return tuple(map(_literal, node.elts))
  if isinstance(node, ast.Name) and node.id == 'inf':
    return math.inf
  return ast.literal_eval(node)


def _readable(kind: Any) -> str:
  return str(kind) if typing.get_args(kind) else kind.__name__
