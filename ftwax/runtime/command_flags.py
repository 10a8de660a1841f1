"""Command line flags: help on a single screen, and suggestions.

Flags are defined with absl where they are read. Imported libraries define flags
as well; the help shows only ours.
"""

import difflib
import re
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from absl import flags

_EXIT_USAGE = 2

# Width of the column of names with defaults, and of a line.
_NAME_WIDTH, _WIDTH = 32, 80


def make_parser(
  description: str,
  groups: Mapping[str, Sequence[str]],
  module: str,
  arguments: str = '',
) -> Callable[[Sequence[str]], list[str]]:
  """Returns a parser for `app.run`.

  `--help` prints our flags and exits; an invalid flag exits with status 2 and a
  suggestion.

  Args:
    description: text at the top of the help.
    groups: names of flags, by the title of their group.
    module: module whose flags form a group of their own.
    arguments: names of required positional arguments, such as 'RUN'.
  """

  def parse(argv: Sequence[str]) -> list[str]:
    usage, command = argv[0], f'{argv[0]} {arguments}'.strip()
    # absl registers flags of the main module under the program's name.
    own = _flags_of(usage if module == '__main__' else module)
    grouped = {'this experiment': own, **groups} if own else groups
    if any(argument in ('-h', '--help') for argument in argv[1:]):
      print(_help(description, grouped, command))
      raise SystemExit(0)
    names = [name for group in grouped.values() for name in group]
    for name in names:
      flags.FLAGS[name].unparse()  # Set by an earlier command.
    try:
      rest = flags.FLAGS(list(argv))
      if len(rest) - 1 != len(arguments.split()):
        raise flags.Error(
          f'arguments besides flags ({rest[1:]}) must be {arguments or "none"}'
        )
    except flags.Error as error:
      print(f'{usage}: {_message(error, names)}', file=sys.stderr)
      print('--help lists the flags.', file=sys.stderr)
      raise SystemExit(_EXIT_USAGE) from None
    return rest

  return parse


def _flags_of(module: str) -> list[str]:
  """Returns the names of the flags that a module defines."""
  defined = flags.FLAGS.flags_by_module_dict().get(module, ())
  return [flag.name for flag in defined]


def _message(error: flags.Error, names: Sequence[str]) -> str:
  if not isinstance(error, flags.UnrecognizedFlagError):
    return str(error)
  known = [f'--{name}' for name in names]
  known += [
    f'--no{name}' for name in names if flags.FLAGS[name].flag_type() == 'bool'
  ]
  close = difflib.get_close_matches(f'--{error.flagname}', known, n=1)
  suggestion = f'; did you mean {close[0]}?' if close else '.'
  return f'there is no flag --{error.flagname}{suggestion}'


def _help(
  description: str, groups: Mapping[str, Sequence[str]], usage: str
) -> str:
  lines = [f'usage: {usage} [flags]', '', *description.splitlines()]
  for title, names in groups.items():
    lines += ['', f'{title}:']
    for name in names:
      lines += _describe(name, flags.FLAGS[name])
  return '\n'.join(lines)


def _describe(name: str, flag: Any) -> list[str]:
  """Formats a flag with its default and its help, wrapped."""
  if flag.flag_type() == 'bool':
    label = f'--no{name}' if flag.default else f'--{name}'
  elif flag.default in (None, []):
    label = f'--{name}=...'
  else:
    label = f'--{name}={flag.default_unparsed}'
  text = re.split(r';\s+repeat', flag.help)[0]  # absl's note on lists.
  wrapped = textwrap.wrap(text, _WIDTH - _NAME_WIDTH)
  if len(label) + 3 > _NAME_WIDTH:
    return [f'  {label}', *[' ' * _NAME_WIDTH + line for line in wrapped]]
  first, *rest = wrapped or ['']
  return [
    f'  {label:{_NAME_WIDTH - 2}}{first}',
    *[' ' * _NAME_WIDTH + line for line in rest],
  ]
