"""Rebuilds experiments of earlier runs from their records."""

import contextlib
import pathlib

from ftwax.cli import launch
from ftwax.inference import loading
from ftwax.inference import playable as playable_lib
from ftwax.records import files, rebuilding, run_directory
from ftwax.runtime import experiment as experiment_lib

# Fields that only concern the run itself: they may be of other code, or open
# ports, read and upload what a stranger chose.
_OF_THE_RUN = (
  'observers', 'loggers', 'replay', 'expose', 'init_from', 'stepping', 'watch',
  'held_out', 'demonstrations',
)  # fmt: skip


def rebuild(
  run: str, experiment: str | None
) -> experiment_lib.ExperimentConfig:
  """Rebuilds the experiment of a run.

  Args:
    run: see `loading.load`.
    experiment: code that builds the experiment, see `launch.find`; None to
      rebuild it from the records, which may name no other code than ftwax.

  Raises:
    ValueError: if there is no such run or its experiment cannot be rebuilt.
  """
  source = loading.find(run)
  if experiment is not None:
    run_directory.check_layout(source)
    run_directory.read_config(source)
    return launch.find(experiment).build()
  made: experiment_lib.ExperimentConfig
  (made,) = rebuilding.read_parts(
    source, {'': experiment_lib.ExperimentConfig}, without=_OF_THE_RUN
  )
  # Scripts alone: no folder says which agents of other folders to load.
  held_out = run_directory.read_config(source).get('held_out')
  with files.reading(source / run_directory.CONFIG_FILE, 'held-out opponents'):
    named = held_out.values() if isinstance(held_out, dict) else held_out or ()
    scripts = tuple(each for each in named if isinstance(each, str))
  return made.replace(held_out=scripts)


def find_game(
  source: str, experiment: str | None = None
) -> playable_lib.PlayableGame:
  """Finds a game and its players.

  Args:
    source: see `playable.find`.
    experiment: experiment of a run; see `rebuild`.

  Raises:
    ValueError: if the source does not exist or its game cannot be shown.
  """
  if not (pathlib.Path(source) / run_directory.CONFIG_FILE).exists():
    return playable_lib.find(source)
  try:
    return playable_lib.find(source, rebuild(source, experiment))
  except ValueError as error:
    if experiment is None:  # The records may suffice to know the game.
      with contextlib.suppress(ValueError):
        return playable_lib.find(source)
    raise ValueError(f'{source} cannot be played: {error}') from None
