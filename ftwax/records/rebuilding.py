"""Rebuilds configurations from plain data, and changes them by text.

`rebuild` is the inverse of `config_files.to_json`, by the annotations of the
fields. It also applies changes such as `agent.batch_size=32` to a
configuration.

Data may come from anybody. It may name what is registered, by `registry`, and
nothing else is imported or called.
"""

import ast
import collections.abc
import contextlib
import dataclasses
import difflib
import itertools
import json
import math
import os
import pathlib
import types as python_types
import typing
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from ftwax import errors, hyperparameters, registry, suggestions, version
from ftwax.environments import functional
from ftwax.records import config_files, migrations, run_directory


def rebuild(
  plain: Any, kind: Any = Any, key: str = '', current: Any = None
) -> Any:
  """Rebuilds a value from plain data, or changes one.

  All fields of an object are set at once, so that its checks see them together.

  Args:
    plain: what `to_json` returned, or a part of it; or TOML.
    kind: annotation of the value.
    key: dotted key of the value, for messages.
    current: the value to change: fields that `plain` lacks, and values that it
      describes as they are, stay the same objects. Without it, missing fields
      have their defaults.

  Returns:
    A value of the annotated type. Lists become tuples where the annotation does
    not say otherwise.

  Raises:
    ValueError: if a value does not fit its annotation, or names something that
      is not of this library; names its key and a remedy.
  """
  is_nested = isinstance(plain, str | list | Mapping)
  if is_nested and current is not None and plain == _as_recorded(current):
    return current  # It may be of code that cannot be looked up.
  choices = _choices(kind)
  if plain in (None, config_files.NONE) and python_types.NoneType in choices:
    return None
  is_prior = type(current) in config_files.PRIORS.values()
  if hyperparameters.Prior in choices or is_prior:
    if not isinstance(plain, list):
      return _to_prior(plain, choices, key)
  if isinstance(plain, Mapping):
    return _rebuild_mapping(plain, choices, key, current)
  is_name = isinstance(plain, str) and str in choices
  if _is_record(current) and not is_name:
    raise ValueError(
      f'{key} ({plain!r}) must be set field by field; choose one of'
      f' {", ".join(config_files.fields_of(current) or ())}.'
    )
  for choice in choices:
    with contextlib.suppress(LookupError):
      return _fit(plain, choice, key)
  if isinstance(plain, str) and any(map(_admits_code, choices)):
    return _rebuild_mapping({config_files.TYPE: plain}, choices, key, current)
  raise ValueError(
    f'{key} ({plain!r}) must be {_readable(kind)}, but is'
    f' {type(plain).__name__}; choose another value.'
  )


def read_parts(
  directory: str | os.PathLike[str],
  kinds: Mapping[str, Any],
  without: Sequence[str] = (),
) -> list[Any]:
  """Rebuilds parts of the configuration of a run.

  Args:
    directory: directory of the run.
    kinds: annotation of each part, by dotted key; '' is the whole.
    without: fields of the whole that are left at their defaults.

  Raises:
    RunDirectoryError: if another version of ftwax wrote the run.
    ValueError: if there is no such run, or a part is missing or cannot be
      rebuilt; names the file and the key.
  """
  layout = run_directory.check_layout(directory)
  plain = run_directory.read_config(directory)
  plain = migrations.rename_config(plain, layout)
  plain = {name: plain[name] for name in plain if name not in without}
  agent = plain.get('agent')
  if isinstance(agent, Mapping) and isinstance(agent.get('loss'), Mapping):
    name = agent['loss'].get(config_files.TYPE)
    if registry.find(name) is None:
      warnings.warn(
        f'the loss of the run ({name!r:.80}) is not registered and left out;'
        ' acting needs none.',
        stacklevel=2,
      )
      plain['agent'] = {**agent, 'loss': None}
  parts = []
  try:
    for key, kind in kinds.items():
      part: Any = plain
      for name in key.split('.') if key else ():
        if not isinstance(part, Mapping) or name not in part:
          raise ValueError(
            f'{key} is missing; the run may be of another version of ftwax'
          )
        part = part[name]
      parts.append(rebuild(part, kind, key))
  except (ValueError, OverflowError, RecursionError) as error:
    path = pathlib.Path(directory) / run_directory.CONFIG_FILE
    raise ValueError(f'{path}: {errors.printable(str(error))}') from None
  return parts


def _rebuild_mapping(
  plain: Mapping[str, Any], choices: Sequence[Any], key: str, current: Any
) -> Any:
  name = plain.get(config_files.TYPE)
  part: Any
  if _is_record(current) and name in (None, registry.name_of(type(current))):
    part = type(current)
  elif name is not None:
    part = _find(name, key)
  else:
    records = filter(registry.is_record_class, choices)
    part = next(filter(registry.is_named, records), None)
  if part is None and isinstance(current, tuple):
    return _change_named(plain, key, current)
  if part is None:
    return _to_dict(plain, choices, key, current)
  is_record = registry.is_record_class(part)
  if not _fits(part, choices):
    raise ValueError(
      f'{key} ({name}) must be {_readable(*choices)}; give one of that type.'
    )
  is_change = type(current) is part
  known = registry.fields_of(part)
  values = {}
  for field, value in plain.items():
    if field != config_files.TYPE:
      below = f'{key}.{field}' if key else field
      if field not in known:
        raise ValueError(
          f'{below} is not a field{suggest(field, [*known], current, key)}'
        )
      before = getattr(current, field) if is_change else None
      values[field] = rebuild(value, known[field], below, before)
  try:
    if is_change:
      return _replace(current, values)
    return part(**values) if is_record else registry.bind(part, values)
  except (TypeError, ValueError) as error:
    raise ValueError(f'{key or "configuration"}: {error}') from None


def _fit(plain: Any, kind: Any, key: str) -> Any:
  """Converts a value to one type; raises a LookupError if it does not fit."""
  origin, arguments = typing.get_origin(kind) or kind, typing.get_args(kind)
  if kind is Any or isinstance(kind, typing.TypeVar):
    if isinstance(plain, str) and plain in config_files.NOT_FINITE:
      return float(plain)
    if isinstance(plain, list):
      return tuple(
        rebuild(entry, Any, f'{key}.{i}') for i, entry in enumerate(plain)
      )
    return plain
  if origin is typing.Literal and plain in arguments:
    return plain
  sequences = (tuple, list, collections.abc.Sequence)
  if isinstance(plain, list) and origin in sequences:
    if origin is not tuple or arguments[-1:] == (Ellipsis,):
      arguments = (arguments or (Any,))[:1] * len(plain)
    if len(arguments) == len(plain):
      pairs = enumerate(zip(plain, arguments, strict=True))
      entries = [rebuild(*pair, f'{key}.{i}') for i, pair in pairs]
      return entries if origin is list else tuple(entries)
  # Before numbers, since a bool is an int in Python.
  if isinstance(plain, bool) or kind is bool:
    if isinstance(plain, bool) and kind is bool:
      return plain
  elif kind is float and (
    isinstance(plain, int | float) or plain in config_files.NOT_FINITE
  ):
    return float(plain)
  elif kind is int and isinstance(plain, float) and plain.is_integer():
    return int(plain)  # Such as 1e6.
  elif kind in (int, str) and isinstance(plain, kind):
    if kind is str or abs(plain) < 2**63:
      return plain
  raise LookupError(key)


def _to_prior(plain: Any, choices: Sequence[Any], key: str) -> Any:
  """Converts a number or the `repr` of a prior."""
  if isinstance(plain, str) and plain in config_files.NOT_FINITE:
    plain = float(plain)
  try:
    if isinstance(plain, str):
      call: Any = ast.parse(plain.strip(), mode='eval').body
      if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
        raise ValueError('is neither')
      return config_files.PRIORS[call.func.id](
        *map(_literal, call.args),
        **{str(pair.arg): _literal(pair.value) for pair in call.keywords},
      )
    if isinstance(plain, bool) or not isinstance(plain, int | float):
      raise TypeError(f'is {type(plain).__name__}')
    if float in choices:
      return float(plain)
    if int in choices:
      if not float(plain).is_integer():
        raise TypeError('is no integer')
      return int(plain)
    return hyperparameters.Constant(float(plain))
  except (
    SyntaxError, TypeError, ValueError, KeyError, RecursionError, MemoryError,
  ) as error:  # fmt: skip
    raise ValueError(
      f'{key} ({plain!r:.80}) must be a number or a prior ({error}); choose'
      f' {key}=0.001 or {key}="LogUniform(low=0.0001, high=0.01)".'
    ) from None


def _literal(node: Any) -> Any:
  if isinstance(node, ast.Tuple):
    return tuple(map(_literal, node.elts))
  if isinstance(node, ast.Name) and node.id == 'inf':
    return math.inf
  return ast.literal_eval(node)


def _to_dict(
  plain: Mapping[str, Any], choices: Sequence[Any], key: str, current: Any
) -> dict[str, Any]:
  kinds = [typing.get_origin(choice) or choice for choice in choices]
  mappings = [
    choice
    for choice, kind in zip(choices, kinds, strict=True)
    if kind in (dict, collections.abc.Mapping, Any)
  ]
  if not mappings:
    raise ValueError(
      f'{key} ({plain!r:.80}) must be {_readable(*choices)}, and is a table;'
      ' choose another value.'
    )
  entry = (*typing.get_args(mappings[0]), Any, Any)[1]
  before = current if isinstance(current, Mapping) else {}
  return {
    **before,
    **{
      name: rebuild(value, entry, f'{key}.{name}', before.get(name))
      for name, value in plain.items()
    },
  }


def _change_named(
  plain: Mapping[str, Any], key: str, current: tuple[Any, ...]
) -> tuple[Any, ...]:
  """Changes parts in a tuple by their names, such as `tasks.pixel_control`."""
  known = {part.name: part for part in current if hasattr(part, 'name')}
  for name in plain:
    if name not in known:
      raise ValueError(
        f'{key}.{name} is not among {list(known)}; add it with'
        f' {key}={json.dumps([*known, name])}.'
      )
  changed = {
    name: rebuild(value, Any, f'{key}.{name}', known[name])
    for name, value in plain.items()
  }
  return tuple(changed.get(getattr(part, 'name', ''), part) for part in current)


def _find(name: Any, key: str) -> Any:
  above, _, kind = key.rpartition('.')
  if kind.isdecimal():  # Among others, such as the tasks of an agent.
    kind = above.rpartition('.')[2].removesuffix('s')
  part = registry.find(name) or registry.find(f'{kind}.{name}')
  if part is None:
    raise ValueError(
      f'{key} ({name!r:.80}) must be a registered name, and is none in ftwax'
      f' {version.__version__}; take the version that wrote it, register your'
      ' own part (ftwax.register), or pass the code that has it, with'
      ' --experiment=FILE.py:FUNCTION or, in Python, experiment=...'
    )
  return part


def _choices(kind: Any) -> tuple[Any, ...]:
  """Returns the members of a union; of another type, itself."""
  if typing.get_origin(kind) in (typing.Union, python_types.UnionType):
    return tuple(itertools.chain(*map(_choices, typing.get_args(kind))))
  return (kind,)


def _admits_code(kind: Any) -> bool:
  origin = typing.get_origin(kind) or kind
  return (
    origin in (Any, type, collections.abc.Callable)
    or isinstance(kind, typing.TypeVar)
    or (getattr(kind, '_is_protocol', False) and '__call__' in vars(kind))
  )


def _fits(part: Any, choices: Sequence[Any]) -> bool:
  """Returns whether a record may give a part for a field."""
  if functional.FunctionalGame in choices and not (
    registry.makes_environments(part) or _is_own(part)
  ):
    return False  # Fields for environments take any code otherwise.
  return any(_takes(choice, part) for choice in choices)


def _is_own(part: Any) -> bool:
  """Returns whether a part is that of a program, which vouches for it."""
  return not part.__module__.startswith('ftwax.')


def _takes(kind: Any, part: Any) -> bool:
  """Returns whether a record may give a part where a type is annotated."""
  origin = typing.get_origin(kind) or kind
  if kind is Any or isinstance(kind, typing.TypeVar):
    return True
  is_record = registry.is_record_class(part)
  if _admits_code(kind):
    # Of a record its instance is called, of others they are themselves.
    make = vars(part).get('__call__') if is_record else part
    return make is not None and _makes(part, make, kind)
  if getattr(kind, '_is_protocol', False):
    return is_record and _has_all(part, kind)
  return is_record and isinstance(origin, type) and issubclass(part, origin)


def _makes(part: Any, make: Any, kind: Any) -> bool:
  """Returns whether `make`, of a part, makes what a type of code makes."""
  wanted: Any = (*typing.get_args(kind), Any)[-2:-1] or (Any,)
  if getattr(kind, '_is_protocol', False):
    wanted = (_returned(kind.__call__),)
  (wanted,) = wanted
  made = make if isinstance(make, type) else _returned(make)
  if made is Any:
    return wanted is Any or _is_own(part)
  if wanted in (Any, made):
    return True
  if _admits_code(wanted):
    call = getattr(made, '__call__', None)  # noqa: B004 Of its instances.
    return (
      isinstance(made, type) and call is not None and _makes(part, call, wanted)
    )
  if getattr(wanted, '_is_protocol', False):
    return _has_all(made, wanted)
  origin = typing.get_origin(wanted) or wanted
  return (
    isinstance(made, type)
    and isinstance(origin, type)
    and issubclass(made, origin)
  )


def _returned(function: Any) -> Any:
  """Returns the annotation of what a function returns; Any without one."""
  try:
    return typing.get_type_hints(function).get('return', Any)
  except NameError:  # A name imported under TYPE_CHECKING.
    return function.__annotations__.get('return', Any)


def _has_all(part: Any, protocol: Any) -> bool:
  """Returns whether a class has the attributes of a protocol."""
  names = [name for name in vars(protocol) if not name.startswith('_')]
  known = getattr(part, '__dataclass_fields__', ())
  return bool(names) and all(
    name in known or hasattr(part, name) for name in names
  )


def _is_record(value: Any) -> bool:
  return registry.is_record_class(type(value))


def _replace(config: Any, values: Mapping[str, Any]) -> Any:
  if hasattr(config, '_asdict'):
    return config._replace(**values)
  return dataclasses.replace(config, **values)


def _as_recorded(value: Any) -> Any:
  try:
    return config_files.to_json(value)
  except TypeError:
    return None


def _readable(*kinds: Any) -> str:
  return ' | '.join(
    str(kind) if typing.get_args(kind) else getattr(kind, '__name__', str(kind))
    for kind in kinds
  )


def suggest(name: str, fields: Sequence[str], current: Any, path: str) -> str:
  """Returns the end of an error message about an unknown field.

  Args:
    name: name of the unknown field.
    fields: names of the fields that are there.
    current: the configuration to search, if any: the field may be a nested one.
    path: dotted key of the configuration.
  """
  prefix = f'{path}.' if path else ''
  known = [*fields, *config_files.flatten(_as_recorded(current) or {})]
  keys = {name.rpartition('.')[-1]: f'{prefix}{name}' for name in known[::-1]}
  close = [
    m for m in (name, suggestions.SYNONYMS.get(name, '')) if m in keys
  ] or difflib.get_close_matches(name, keys, n=1)
  if close:
    return f'; did you mean {keys[close[0]]}?'
  return '; another version may have written it, or --print_config prints all.'
