"""Plays against a population in the browser.

The source is a trained population included in the library, such as
capture_the_flag; the directory of a run; catch, without opponents; or
pettingzoo:NAME, such as pettingzoo:butterfly/cooperative_pong-v6.
"""

import dataclasses
import os
import pathlib

from ftwax.cli import flags, sources, watch_command


@dataclasses.dataclass(frozen=True)
class Options(watch_command.ServerOptions):
  """Flags of `ftwax play`."""

  source: str = flags.argument('What to play.', default='capture_the_flag')
  experiment: str | None = flags.flag(None, sources.EXPERIMENT_HELP)


def run(options: Options) -> int:
  """Serves the game until Ctrl-C."""
  source = options.source
  if pathlib.Path(source).is_dir() or _is_path(source):
    source = sources.find_run(source)
  # Slow imports: a wrong path or flag fails before them.
  from ftwax.cli import past_runs
  from ftwax.runtime import devices

  server = watch_command.import_server()
  devices.keep_compiled_functions()
  playable = past_runs.find_game(source, options.experiment)
  server.play(playable, options.save_dir, options.host, options.port)
  return 0


def _is_path(source: str) -> bool:
  """Returns whether a source can be no game of a library."""
  return os.sep in source and ':' not in source
