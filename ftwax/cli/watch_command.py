"""Follows runs in the browser, one or several, running or finished."""

import dataclasses
import importlib
from typing import Any

from ftwax import extras
from ftwax.cli import flags, sources


@dataclasses.dataclass(frozen=True)
class ServerOptions:
  """Flags of the server."""

  save_dir: str = flags.flag('runs/games', 'Directory of saved games.')
  host: str = flags.flag(
    '127.0.0.1',
    'Address to serve on; other machines need the token in the printed link.',
  )
  port: int | None = flags.flag(
    None, 'Port; by default 8700, or any free one if that is taken.'
  )


@dataclasses.dataclass(frozen=True)
class Options(ServerOptions):
  """Flags of `ftwax watch`."""

  runs: tuple[str, ...] = flags.argument(
    'Directories of runs, or of several, which share charts; by default the'
    ' newest run below runs/.',
    default=(),
  )
  end_with_input: bool = flags.flag(False, 'End when the standard input ends.')


def import_server() -> Any:
  """Imports `server`.

  Raises:
    ImportError: if required packages are not installed.
  """
  with extras.required('starlette', 'web'):
    return importlib.import_module('ftwax.web.server')


def run(options: Options) -> int:
  """Serves the page until Ctrl-C."""
  runs = options.runs
  if not options.end_with_input:  # Else it is started before its run.
    runs = (
      tuple(run for source in runs for run in sources.find_runs(source))
      if runs
      else (sources.find_run('runs'),)
    )
  import_server().watch(
    runs,
    _find_game,
    options.save_dir,
    options.host,
    options.port,
    options.end_with_input,
  )
  return 0


def _find_game(directory: str) -> Any:
  from ftwax.cli import past_runs  # Slow import, if anybody plays.

  return past_runs.find_game(directory)
