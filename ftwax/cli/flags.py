"""Command lines from dataclasses: each field is a flag.

The type of a field is that of its flag:

  bool                    --name, or --noname
  int, float, str         --name=VALUE, or --name VALUE
  tuple[str, ...]         --name VALUE ... or --name=VALUE,VALUE, which may be
                          repeated
  tuple[tuple[str, ...]]  the same; the values of each stay together

`flag` gives a field its help, and `argument` a place among the arguments. Names
may be written with dashes.
"""

import argparse
import dataclasses
import itertools
import re
import sys
import textwrap
import types as python_types
import typing
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

from ftwax import import_guard, suggestions

EXIT_USAGE = 2

_STEPS = '--max_num_actor_steps'

# Width of the column of names with defaults, and of a line.
_NAME_WIDTH, _WIDTH = 32, 80


class Parsed(NamedTuple):
  """A command line.

  Attributes:
    options: the values of all fields.
    given: names of the fields that the command line sets.
    unknown: the values of flags that no field has, as they were typed.
  """

  options: Any
  given: frozenset[str]
  unknown: Mapping[str, str]


def flag(default: Any, text: str, choices: Sequence[str] = ()) -> Any:
  """Returns a field that is a flag.

  Args:
    default: value of the field.
    text: its help.
    choices: the values that it may have, if not any.
  """
  metadata = {'help': text, 'choices': choices}
  return dataclasses.field(default=default, metadata=metadata)


def argument(
  text: str,
  default: Any = dataclasses.MISSING,
  choices: Sequence[str] = (),
  rest: bool = False,
) -> Any:
  """Returns a field that is given by its position.

  Args:
    text: its help.
    default: value of the field; without one, the argument is required.
    choices: the values that it may have, if not any.
    rest: whether it takes all that follows, flags too.
  """
  position = 'rest' if rest else 'one'
  metadata = {'help': text, 'choices': choices, 'position': position}
  return dataclasses.field(default=default, metadata=metadata)


def check_positive(options: Any, *names: str) -> None:
  """Raises a ValueError if a flag of these names is below 1."""
  for name in names:
    value = getattr(options, name)
    if value < 1:
      raise ValueError(f'--{name} ({value}) must be at least 1; choose 1.')


def check_seed(options: Any, name: str = 'seed', count: int = 1) -> None:
  """Raises a ValueError unless a flag is a seed, and so are those after it."""
  value = getattr(options, name)
  if not 0 <= value <= 2**32 - count:
    raise ValueError(
      f'--{name} ({value}) must be at least 0 and at most {2**32 - count};'
      ' choose 0.'
    )


class _Parser(argparse.ArgumentParser):
  """A parser whose errors suggest the intended flag."""

  def error(self, message: str) -> NoReturn:
    """Prints the message and exits with status 2."""
    print(f'{self.prog}: {message}', file=sys.stderr)
    print(f'`{self.prog} --help` shows the usage.', file=sys.stderr)
    raise SystemExit(EXIT_USAGE)


def parse(
  kind: type,
  argv: Sequence[str],
  command: str,
  description: str | Callable[[Any], str],
  keeps_unknown: bool = False,
) -> Parsed:
  """Parses a command line.

  `--help` prints the flags and exits; a wrong argument exits with status 2 and
  a suggestion. `-v=1` logs more.

  Args:
    kind: dataclass of the options.
    argv: words after the command.
    command: the command, for messages.
    description: text at the top of the help. It may be a function of the
      options if these have a method `defaults`, which returns the defaults that
      depend on other options.
    keeps_unknown: whether to return unknown flags in place of an error.
  """
  fields = dataclasses.fields(kind)
  hints = typing.get_type_hints(kind)
  parser = _Parser(
    prog=command,
    add_help=False,
    allow_abbrev=False,
    argument_default=argparse.SUPPRESS,
  )
  parser.add_argument('-v', '--verbosity', type=int)
  for field in fields:
    _add(parser, field, hints[field.name], _about(kind, field.name))
  rests = [f for f in fields if f.metadata.get('position') == 'rest']
  names = [field.name for field in fields]
  words = _normalize(argv[:1] if rests else argv, names)
  words += argv[1:] if rests else []
  asks = {'-h', '--help'}.intersection(words[:1] if rests else words)
  if asks and not callable(description):
    print(_help(kind, command, description))
    raise SystemExit(0)
  arguments, rest = parser.parse_known_args(
    [word for word in words if word not in asks]
  )
  values = vars(arguments)
  unknown, others = _collect(rest)
  for name in () if keeps_unknown else unknown:
    known = [*parser._option_string_actions, '--help']
    parser.error(f'there is no flag {name}{suggestions.suggest(name, known)}')
  if others:
    positions = [f.name.upper() for f in fields if 'position' in f.metadata]
    wanted = ' '.join(positions) or 'none'
    meant = _suggest_flag(others[0], argv, hints)
    parser.error(f'arguments besides flags ({others}) must be {wanted}{meant}')
  if 'verbosity' in values:
    with import_guard.guarded():
      from absl import logging

    logging.set_verbosity(values.pop('verbosity'))
  for name, value in values.items():
    if typing.get_origin(hints[name]) is tuple:
      values[name] = _to_tuple(value, hints[name])
  options = kind(**values)
  if asks and callable(description):
    print(_help(kind, command, description(options), options.defaults()))
    raise SystemExit(0)
  return Parsed(options, frozenset(values), unknown)


def error(command: str, message: str) -> NoReturn:
  """Prints a message and exits, as after a wrong argument of a command."""
  _Parser(prog=command).error(message)


def _collect(words: Sequence[str]) -> tuple[dict[str, str], list[str]]:
  """Returns unknown flags with their values, and the words besides these.

  Several words behind a flag are a list, with commas.
  """
  others: list[str] = []
  values: dict[str, list[str]] = {}
  last = None  # The values of a flag to which more may be added.
  for word in words:
    if word.startswith('-') and not re.match(r'-[\d.]', word):
      name, equals, value = word.partition('=')
      values[name] = [value] if equals else []
      last = None if equals else values[name]
    elif last is not None:
      last.append(word)
    else:
      others.append(word)
  unknown = {
    name: ','.join(each) if each else 'true' for name, each in values.items()
  }
  return unknown, others


def _normalize(words: Sequence[str], names: Collection[str]) -> list[str]:
  """Replaces dashes in the names of flags by underscores; knows `--steps`."""
  if 'steps' not in names and 'max_num_actor_steps' in names:
    words = [re.sub('^--steps(?==|$)', _STEPS, word) for word in words]
  pairs = [word.partition('=') for word in words]
  return [
    f'--{name[2:].replace("-", "_")}{equals}{value}'
    if name.startswith('--')
    else f'{name}{equals}{value}'
    for name, equals, value in pairs
  ]


def _add(
  parser: argparse.ArgumentParser,
  field: Any,
  kind: Any,
  about: Mapping[str, Any],
) -> None:
  """Adds the argument of a field."""
  name = f'--{field.name}'
  if kind is bool:
    for flag, value in ((name, True), (f'--no{field.name}', False)):
      parser.add_argument(
        flag, dest=field.name, action='store_const', const=value
      )
    return
  member = next(m for m in _members(kind) if m is not type(None))
  options: dict[str, Any] = {'choices': about.get('choices') or None}
  if typing.get_origin(member) is tuple:
    options = {'nargs': '+', 'action': 'append'}
  elif member in (int, float):
    options = {'type': member}
  position = about.get('position')
  if position is None:
    parser.add_argument(name, **options)
    return
  is_optional = field.default is not dataclasses.MISSING
  if position == 'rest':
    options = {'nargs': argparse.REMAINDER}
  elif typing.get_origin(member) is tuple:
    options = {'nargs': '*' if is_optional else '+'}
  elif is_optional:
    options['nargs'] = '?'
  if is_optional:
    options['default'] = field.default
  parser.add_argument(field.name, metavar=field.name.upper(), **options)


def _suggest_flag(
  word: str, argv: Sequence[str], hints: Mapping[str, Any]
) -> str:
  """Returns the flag that is meant by a word that is no argument."""
  if re.match(r'[\w.]+=', word):
    return f'; did you mean --set {word}?'
  for before, after in itertools.pairwise(argv):
    name = before.partition('=')[0].lstrip('-').replace('-', '_')
    is_list = typing.get_origin(hints.get(name)) is tuple
    if after == word and '=' in before and is_list:
      return f'; did you mean {before},{word}?'
  return ''


def _to_tuple(value: Any, kind: Any) -> Any:
  """Converts words: those of arguments, or a list for each time of a flag."""
  entry = typing.get_args(kind)[0]
  if all(isinstance(each, str) for each in value):  # Such as paths.
    return tuple(map(entry, value))
  groups = [
    tuple(part for word in each for part in _split(word)) for each in value
  ]
  if typing.get_origin(entry) is tuple:
    return tuple(groups)
  return tuple(entry(word) for words in groups for word in words)


def _split(word: str) -> list[str]:
  # A change such as `agent.tasks=["clone","replay"]` has commas of its own.
  return [word] if '=' in word else word.split(',')


def _members(kind: Any) -> tuple[Any, ...]:
  """Returns the members of a union; of another type, itself."""
  is_union = typing.get_origin(kind) in (typing.Union, python_types.UnionType)
  return typing.get_args(kind) if is_union else (kind,)


def _help(
  kind: type,
  command: str,
  description: str,
  defaults: Mapping[str, Any] | None = None,
) -> str:
  """Formats the flags, those of this class first, then those of its bases."""
  fields = dataclasses.fields(kind)
  words = []
  for field in fields:
    if 'position' in field.metadata:
      word = field.name.upper()
      is_required = field.default is dataclasses.MISSING
      words.append(word if is_required else f'[{word}]')
  usage = ' '.join(['usage:', command, *words, '[flags]'])
  lines = [usage, '', *description.splitlines()]
  groups: dict[str, list[str]] = {'arguments': [], 'flags': []}
  titles = dict.fromkeys((field.name for field in fields), 'flags')
  for base in kind.__mro__[1:]:
    if dataclasses.is_dataclass(base):
      title = (base.__doc__ or '').partition('.')[0]
      names = [field.name for field in dataclasses.fields(base)]
      titles.update(dict.fromkeys(names, f'{title[:1].lower()}{title[1:]}'))
  for field in fields:
    if 'position' in field.metadata:
      entry = field.name.upper(), _about(kind, field.name).get('help', '')
      groups['arguments'] += _columns(*entry)
    else:
      default = (defaults or {}).get(field.name, field.default)
      label = _label(field.name, default)
      entry = label, _about(kind, field.name).get('help', '')
      groups.setdefault(titles[field.name], []).extend(_columns(*entry))
  for title, rows in groups.items():
    lines += ['', f'{title}:', *rows] if rows else []
  return '\n'.join(lines)


def _label(name: str, default: Any) -> str:
  """Returns a flag with its default."""
  if default is True:
    return f'--no{name}'
  if default is False:
    return f'--{name}'
  if default in (None, ()):
    return f'--{name}=...'
  return f'--{name}={default}'


def _columns(label: str, text: str) -> list[str]:
  """Formats a flag and its help, wrapped."""
  wrapped = textwrap.wrap(text, _WIDTH - _NAME_WIDTH)
  indent = ' ' * _NAME_WIDTH
  if len(label) + 3 > _NAME_WIDTH:
    return [f'  {label}', *(indent + line for line in wrapped)]
  first, *others = wrapped or ['']
  lines = [f'  {label:{_NAME_WIDTH - 2}}{first}']
  return [*lines, *(indent + line for line in others)]


def _about(kind: type, name: str) -> Mapping[str, Any]:
  """Returns the metadata of a field; a class may change its default alone."""
  for base in kind.__mro__:
    field = vars(base).get('__dataclass_fields__', {}).get(name)
    if field is not None and field.metadata:
      metadata: Mapping[str, Any] = field.metadata
      return metadata
  return {}
