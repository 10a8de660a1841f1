"""What a record may name: parts by short names, and nothing else.

A folder of a run may come from anybody. Its records name cores, torsos, losses,
rules, configs and makers of environments only by the names that these were
registered by, where they are defined; a name is never a path in Python, and
nothing is imported for it. Whatever is registered must be harmless with any
arguments.
"""

import dataclasses
import functools
import importlib
import inspect
import re
import typing
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

_Part = TypeVar('_Part')

_NAME = re.compile(r'[a-z][a-z0-9_]*(\.[a-z0-9_]+)*')

# Modules that register the library's own parts, by the start of their names.
# Each is imported when a record first names such a part.
_PART_HOMES: Mapping[str, str] = {
  'agent': 'ftwax.agents.named',
  'checkpointing': 'ftwax.records.checkpoints',
  'core': 'ftwax.networks',
  'curriculum': 'ftwax.environments.curricula',
  'experiment': 'ftwax.runtime.experiment',
  'exploration': 'ftwax.agents.named',
  'evaluation': 'ftwax.runtime.experiment',
  'heads': 'ftwax.networks',
  'loss': 'ftwax.losses',
  'optimizer': 'ftwax.agents.named',
  'replay': 'ftwax.replay.replay_options',
  'schedule': 'ftwax.agents.named',
  'target': 'ftwax.agents.named',
  'task': 'ftwax.agents.named',
  'rule': 'ftwax.population',
  'stepping': 'ftwax.environments.process_games',
  'torso': 'ftwax.networks',
}

# Those of makers of environments.
_ENVIRONMENT_HOMES: Mapping[str, str] = {
  'any_game': 'ftwax.experiments.any_environment',
  'atari': 'ftwax.environments.atari',
  'atari_vector': 'ftwax.experiments.atari',
  'bandits': 'ftwax.environments.bandits',
  'capture_the_flag': 'ftwax.experiments.capture_the_flag',
  'catch': 'ftwax.environments.catch',
  'copying': 'ftwax.environments.copying',
  'ftw_catch': 'ftwax.experiments.ftw_catch',
  'memory_chain': 'ftwax.environments.memory_chain',
  'pgx': 'ftwax.environments.pgx_adapter',
  'recall': 'ftwax.environments.recall',
  'vector': 'ftwax.environments.vector',
}

_HOMES = {**_PART_HOMES, **_ENVIRONMENT_HOMES}

_parts: dict[str, Any] = {}
_names: dict[Any, str] = {}


def register(name: str) -> Callable[[_Part], _Part]:
  """Returns a decorator with which records may name a function or class.

  Whoever reads a run that names it must have registered it too, by importing
  your module before. Do not register what runs, imports, reads or writes what
  its arguments name: these may come from a stranger's folder.

  Args:
    name: its name in records: letters, digits, `_` and `.`.

  Raises:
    ValueError: if it is another part's name, or no name.
  """
  if not isinstance(name, str) or not _NAME.fullmatch(name):
    raise ValueError(
      f'name ({name!r}) must consist of lower-case letters, digits, "_" and "."'
      " to be registered; choose e.g. 'my_core'."
    )

  def add(part: _Part) -> _Part:
    path, is_own = path_of(part), name.partition('.')[0] in _HOMES
    known = path_of(_parts.get(name, part))
    # A script that is imported again as a module replaces its own parts.
    if known not in (path, f'__main__:{path.partition(":")[2]}') or (
      is_own and not path.startswith(('ftwax.', '__main__:'))
    ):
      raise ValueError(
        f'name ({name}) must be registered once, and is that of'
        f' {"the library" if is_own else known}; choose another.'
      )
    _parts[name], _names[part] = part, name
    return part

  return add


def find(name: Any) -> Any:
  """Returns the part of a name; None if there is none."""
  if not isinstance(name, str):
    return None
  home = _HOMES.get(name.partition('.')[0])
  if name not in _parts and home is not None:
    importlib.import_module(home)
  return _parts.get(name)


def is_named(part: Any) -> bool:
  """Returns whether a function or class is registered."""
  try:
    return part in _names
  except TypeError:  # It cannot be hashed.
    return False


def name_of(part: Any) -> str:
  """Returns the name of a function or class, or `module:name` without one."""
  return _names[part] if is_named(part) else path_of(part)


def makes_environments(part: Any) -> bool:
  """Returns whether a part of the library makes environments or games."""
  name = _names[part] if is_named(part) else ''
  return name.partition('.')[0] in _ENVIRONMENT_HOMES


def names() -> tuple[str, ...]:
  """Returns all names that are registered by now."""
  return tuple(_parts)


def path_of(value: Any) -> str:
  """Returns `module:name` of a function or class."""
  # Before NumPy 2, universal functions have no module and no qualified name.
  module = getattr(value, '__module__', None) or type(value).__module__
  return f'{module}:{getattr(value, "__qualname__", value.__name__)}'


def is_record_class(value: Any) -> bool:
  """Returns whether a value is a dataclass or a NamedTuple's class."""
  return isinstance(value, type) and (
    dataclasses.is_dataclass(value) or hasattr(value, '_asdict')
  )


def fields_of(part: Any) -> Mapping[str, Any]:
  """Returns the fields that a record may give, with their annotations.

  Those of a dataclass or NamedTuple are its own; those of a function, or of
  another class, are its parameters.
  """
  is_plain_class = isinstance(part, type) and not is_record_class(part)
  try:
    hints = typing.get_type_hints(part.__init__ if is_plain_class else part)
  except NameError:  # A name imported under TYPE_CHECKING.
    hints = {}
  if dataclasses.is_dataclass(part):
    names = [field.name for field in dataclasses.fields(part) if field.init]
  elif is_record_class(part):
    names = list(part._fields)
  else:
    names = [
      parameter.name
      for parameter in inspect.signature(part).parameters.values()
      if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]
  return {name: hints.get(name, Any) for name in names}


def bind(part: Any, values: Mapping[str, Any]) -> Any:
  """Returns a maker with some arguments bound, which may be none.

  Arguments are positional as long as all before them are bound, so that those
  that follow can be.
  """
  if not values:
    return part
  rest, first = dict(values), []
  for name, parameter in inspect.signature(part).parameters.items():
    if name not in rest or parameter.kind is parameter.KEYWORD_ONLY:
      break
    first.append(rest.pop(name))
  return functools.partial(part, *first, **rest)


def bound(maker: functools.partial[Any]) -> dict[str, Any]:
  """Returns the arguments that a partial function binds, by name."""
  try:
    signature = inspect.signature(maker.func)
    return signature.bind_partial(*maker.args, **maker.keywords).arguments
  except (TypeError, ValueError):  # Of some built-in functions.
    return {'args': maker.args, **maker.keywords}
