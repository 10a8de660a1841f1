"""The subcommands of `ftwax`, and their shared code.

A subcommand is a module with two functions: `add_arguments(parser)` adds its
arguments to an `argparse.ArgumentParser`, and `run(arguments)` executes it and
returns the exit status. The module docstring is its help text. To add a
subcommand, write the module and list it in `COMMANDS`.
"""

import argparse
import contextlib
import difflib
import importlib
import inspect
import os
import select
import signal
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple, NoReturn, Protocol, cast

_EXIT_USAGE = 2


class Command(Protocol):
  """The module of a subcommand."""

  def add_arguments(self, parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the subcommand."""

  def run(self, arguments: argparse.Namespace) -> int:
    """Executes the subcommand; returns the exit status."""


class Entry(NamedTuple):
  """A row of the table of subcommands.

  Attributes:
    module: name of the module, imported when the subcommand is called.
    summary: line in `ftwax --help`.
  """

  module: str
  summary: str


COMMANDS: Mapping[str, Entry] = {
  'list': Entry(
    'ftwax.cli.list_command', 'list experiments, agents and environments'
  ),
  'train': Entry('ftwax.cli.train_command', 'run an experiment'),
  'evaluate': Entry('ftwax.cli.evaluate_command', 'evaluate a run'),
  'film': Entry('ftwax.cli.film_command', 'film an episode of a run'),
  'report': Entry(
    'ftwax.cli.report_command', 'draw curves and write reports of runs'
  ),
  'compare': Entry('ftwax.cli.compare_command', 'compare several runs'),
  'watch': Entry('ftwax.cli.watch_command', 'follow runs in the browser'),
  'play': Entry('ftwax.cli.play_command', 'play against a population'),
  'bench': Entry(
    'ftwax.cli.bench_command', 'list or run the benchmarks of a clone'
  ),
  'doctor': Entry('ftwax.cli.doctor_command', 'check that ftwax can run here'),
}


class Parser(argparse.ArgumentParser):
  """A parser whose errors suggest the intended argument."""

  def parse(self, argv: Sequence[str]) -> argparse.Namespace:
    """Parses arguments; an unknown flag exits with a suggestion."""
    arguments, unknown = self.parse_known_args(argv)
    if unknown:
      typed = unknown[0].split('=')[0]
      known = list(self._option_string_actions)
      self.error(f'there is no {typed}{suggest(typed, known)}')
    return arguments

  def error(self, message: str) -> NoReturn:
    """Prints the message and exits with status 2."""
    print(f'{self.prog}: {message}', file=sys.stderr)
    print(f'`{self.prog} --help` shows the usage.', file=sys.stderr)
    raise SystemExit(_EXIT_USAGE)


def suggest(typed: str, known: Collection[str]) -> str:
  """Returns the end of an error message about an unknown name."""
  close = difflib.get_close_matches(typed, known, n=1)
  return f'; did you mean {close[0]}?' if close else '.'


def main(argv: Sequence[str] | None = None) -> int:
  """Runs a subcommand.

  Args:
    argv: the arguments after `ftwax`; by default those of the process.

  Returns:
    The exit status: 0, or 1 after an error, whose message is printed.

  Raises:
    SystemExit: after `--help`, or with status 2 after an invalid argument.
  """
  argv = list(sys.argv[1:] if argv is None else argv)
  if not argv or argv[0] in ('-h', '--help', 'help'):
    with _readers_may_leave():
      print(_overview())
    return 0
  name, *rest = argv
  if name not in COMMANDS:
    _make_parser('', None).error(
      f'there is no command {name!r}{suggest(name, COMMANDS)}'
    )
  try:
    module = importlib.import_module(COMMANDS[name].module)
  except ImportError as error:
    print(f'ftwax {name}: {error}; see `ftwax doctor`.', file=sys.stderr)
    return 1
  command = cast(Command, module)
  parser = _make_parser(f' {name}', inspect.getdoc(module))
  command.add_arguments(parser)
  arguments = parser.parse(rest)
  with contextlib.ExitStack() as stack:
    # Needs JAX: import it after --help, and do without it if it is missing.
    with contextlib.suppress(ImportError):
      launch = importlib.import_module('ftwax.runtime.launch')
      stack.enter_context(launch.errors_told())
    stack.enter_context(_readers_may_leave())
    return command.run(arguments)


@contextlib.contextmanager
def _readers_may_leave() -> Iterator[None]:
  """Ends the program quietly once its output is closed, as `head` does."""
  try:
    yield
    sys.stdout.flush()
  except BrokenPipeError:
    poll = select.poll()
    poll.register(sys.stdout, 0)
    if not poll.poll(0):
      raise  # Another pipe is broken.
    # Python flushes once more at its end.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    raise SystemExit(128 + signal.SIGPIPE) from None


def _make_parser(command: str, description: str | None) -> Parser:
  return Parser(
    prog=f'ftwax{command}',
    description=description,
    formatter_class=argparse.RawDescriptionHelpFormatter,
    allow_abbrev=False,
  )


def _overview() -> str:
  width = max(map(len, COMMANDS))
  rows = [
    f'  {name:{width}}  {entry.summary}' for name, entry in COMMANDS.items()
  ]
  return '\n'.join(
    [
      'usage: ftwax COMMAND ...   (`ftwax COMMAND --help` for each)',
      '',
      *rows,
      '',
      'A first run, which takes a minute: ftwax train catch',
    ]
  )
