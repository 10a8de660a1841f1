"""Plays against a population in the browser.

The source is a trained population included in the library, such as
capture_the_flag; the directory of a run; catch, without opponents; or
pettingzoo:NAME, such as pettingzoo:butterfly/cooperative_pong-v6.
"""

import dataclasses

from ftwax.cli import flags, past_runs, watch_command
from ftwax.runtime import devices


@dataclasses.dataclass(frozen=True)
class Options(watch_command.ServerOptions):
  """Flags of `ftwax play`."""

  source: str = flags.argument('What to play.', default='capture_the_flag')
  experiment: str | None = flags.flag(None, past_runs.EXPERIMENT_HELP)


def run(options: Options) -> int:
  """Serves the game until Ctrl-C."""
  server = watch_command.import_server()
  devices.keep_compiled_functions()
  playable = past_runs.find_game(options.source, options.experiment)
  server.play(playable, options.save_dir, options.host, options.port)
  return 0
