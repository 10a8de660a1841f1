"""The subcommands of `ftwax`, and their shared code.

A subcommand is a module with a dataclass `Options`, whose fields are its flags,
and a function `run(options)` that executes it and returns the exit status. The
module docstring is its help text. To add a subcommand, write the module and
list it in `COMMANDS`.
"""

import ast
import contextlib
import errno
import importlib
import inspect
import os
import pathlib
import select
import signal
import sys
import traceback
import warnings
from collections.abc import Iterator, Sequence

from ftwax import errors, import_guard, suggestions, version
from ftwax.cli import flags

_INTERRUPTED = 128 + signal.SIGINT
_CLOSED = 128 + 13  # SIGPIPE, which not all systems have.


# Each is the module `NAME_command`; the first line of its docstring is its line
# in `ftwax --help`.
COMMANDS = (
  'list',
  'check',
  'train',
  'sweep',
  'evaluate',
  'film',
  'record',
  'exploit',
  'export',
  'report',
  'watch',
  'play',
  'doctor',
)


def main(argv: Sequence[str] | None = None) -> int:
  """Runs a subcommand.

  Args:
    argv: the arguments after `ftwax`; by default those of the process.

  Returns:
    The exit status: 0, or 1 after an error, whose message is printed.

  Raises:
    SystemExit: after `NAME --help`, or with status 2 after an invalid argument.
  """
  argv = list(sys.argv[1:] if argv is None else argv)
  if not argv or argv[0] in ('-h', '--help', 'help'):
    with errors_told():
      print(_overview())
    return 0
  if argv[0] in ('-V', '--version', 'version'):
    with errors_told():
      print(f'ftwax {version.__version__}')
    return 0
  name, *rest = argv
  if name not in COMMANDS:
    if name.startswith('-'):
      wrong = f'flags follow a command, as in `ftwax COMMAND {name}`.'
    else:
      meant = suggestions.suggest(name, COMMANDS)
      wrong = f'there is no command {name!r}{meant}'
    print(f'ftwax: {wrong}', file=sys.stderr)
    raise SystemExit(flags.EXIT_USAGE)
  # No program of the user's has asked: what it names itself is not guarded.
  guarded = import_guard.guarded(all_threads=True)
  with errors_told(), _warnings_told(), guarded:
    try:
      module = importlib.import_module(f'ftwax.cli.{name}_command')
    except ImportError as error:
      raise ImportError(f'{error}; see `ftwax doctor`.') from None
    description = inspect.getdoc(module) or ''
    parsed = flags.parse(module.Options, rest, f'ftwax {name}', description)
    status: int = module.run(parsed.options)
    return status


# What to do about errors of the system, whose own messages do not say it.
_REMEDIES = {
  errno.ENOSPC: '; free some space, then go on with --resume.',
  errno.EDQUOT: '; delete some of your files, then go on with --resume.',
  errno.EROFS: '; choose a directory on a disk that can be written.',
}


@contextlib.contextmanager
def errors_told() -> Iterator[None]:
  """Exits with a single message on errors that the user can fix.

  A context manager. It also ends the program quietly once its output is closed,
  as `head` does.
  """
  if sys.stdout is None:  # Closed by `>&-`; a file would take its place.
    sys.stdout = open(os.devnull, 'w')
  try:
    yield
    sys.stdout.flush()
  except KeyboardInterrupt:
    raise SystemExit(_INTERRUPTED) from None
  except Exception as error:
    if isinstance(error, BrokenPipeError) and _output_is_closed():
      # Python flushes once more at its end.
      os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
      raise SystemExit(_CLOSED) from None
    if not isinstance(error, errors.EXPECTED):
      raise
    with import_guard.guarded():
      from absl import logging

    # To find a position, Python opens `<unknown>` in the working directory,
    # which may be a pipe.
    if logging.vlog_is_on(1):
      logging.vlog(1, traceback.format_exc())
    remedy = ''
    if isinstance(error, OSError):
      remedy = _REMEDIES.get(error.errno or 0, '')
    # What a record says may be in it.
    message = f'{type(error).__name__}: {errors.printable(str(error))}'
    raise SystemExit(
      f'{message}{remedy}\n(-v=1 prints the traceback.)'
    ) from None


@contextlib.contextmanager
def _warnings_told() -> Iterator[None]:
  """Prints warnings without the line of code; a context manager."""
  before = warnings.formatwarning
  warnings.formatwarning = lambda message, kind, *_: (
    f'{kind.__name__}: {errors.printable(str(message))}\n'
  )
  try:
    yield
  finally:
    warnings.formatwarning = before


def _output_is_closed() -> bool:
  if not hasattr(select, 'poll'):  # Windows: who else would close it?
    return True
  poll = select.poll()
  poll.register(sys.stdout, 0)
  return bool(poll.poll(0))


def _overview() -> str:
  folder = pathlib.Path(__file__).parent
  rows = '\n'.join(
    f'  {name:10}{first_line(folder / f"{name}_command.py")}'
    for name in COMMANDS
  )
  return (
    'usage: ftwax COMMAND ...   (`ftwax COMMAND --help` for each)\n\n'
    f'{rows}\n\nA first run, which takes a minute: ftwax train catch\n'
    '`ftwax --version` prints the version.'
  )


def first_line(path: pathlib.Path) -> str:
  """Returns the first line of a module's docstring, without importing it."""
  path = path / '__init__.py' if path.is_dir() else path
  tree = ast.parse(path.read_text('utf-8'))
  return (ast.get_docstring(tree) or '').partition('\n')[0]
