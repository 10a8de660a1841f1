"""Rebuilds experiments of earlier runs from the commands that started them."""

import argparse
import contextlib
import json
import pathlib
import shlex
from collections.abc import Iterator, Sequence

from ftwax.cli import experiment_files
from ftwax.records import config_files, run_directory
from ftwax.runtime import experiment as experiment_lib
from ftwax.runtime import playable as playable_lib

EXPERIMENT_HELP = (
  'the experiment of the run, if its recorded command does not name it: a name,'
  ' or FILE:FUNCTION'
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the arguments: a run and its experiment."""
  parser.add_argument('run', metavar='RUN', help='directory of the run')
  parser.add_argument('--experiment', help=EXPERIMENT_HELP)
  parser.add_argument(
    '--step',
    type=_step,
    help='step of the checkpoint, or best; by default the newest',
  )


def _step(text: str) -> int | str:
  return text if text == 'best' else int(text)


@contextlib.contextmanager
def rebuilt(
  run_dir: str, experiment: str | None
) -> Iterator[experiment_lib.ExperimentConfig]:
  """Rebuilds the experiment of a run.

  A context manager; see `experiment_files.built`.

  Args:
    run_dir: directory of the run.
    experiment: name of the experiment, or FILE:FUNCTION; None to take it from
      the command of the run.

  Yields:
    The experiment.

  Raises:
    ValueError: if there is no such run or its experiment cannot be made.
  """
  directory = pathlib.Path(run_dir)
  run_directory.check_layout(directory)
  recorded = run_directory.read_config(directory)
  arguments: Sequence[str] = ()
  if experiment is None:
    experiment, arguments = parse_command(directory)
  with experiment_files.built(experiment, arguments) as made:
    for candidate in made:
      plain = json.loads(json.dumps(config_files.to_json(candidate)))
      different = [
        difference
        for difference in config_files.differences(recorded, plain)
        if difference[1] != config_files.ABSENT  # Newer than the run.
      ]
      if not different:
        yield candidate
        return
    if arguments:
      raise ValueError(
        f'{run_dir} must match the experiment that its command builds now, but'
        f' {different[0][0]} was {different[0][1]!r} and is now'
        f' {different[0][2]!r}; pass --experiment=NAME.'
      )
    yield made[0]


def find_game(
  source: str, experiment: str | None = None
) -> playable_lib.PlayableGame:
  """Finds a game and its players.

  Args:
    source: see `playable.find`.
    experiment: experiment of a run; see `rebuilt`.

  Raises:
    ValueError: if the source does not exist or its game cannot be shown.
  """
  if not (pathlib.Path(source) / run_directory.COMMAND_FILE).exists():
    return playable_lib.find(source)
  try:
    with rebuilt(source, experiment) as made:
      return playable_lib.find(source, made)
  except (ValueError, ImportError, SystemExit) as error:
    if experiment is None:
      # The run may come from another machine or an older version; its records
      # may suffice.
      with contextlib.suppress(ValueError):
        return playable_lib.find(source)
    raise ValueError(f'{source} cannot be played: {error}') from None


def parse_command(directory: pathlib.Path) -> tuple[str, list[str]]:
  """Parses the command of a run into its experiment and flags."""
  path = directory / run_directory.COMMAND_FILE
  first = path.read_text('utf-8').partition('\n')[0] if path.exists() else ''
  words = shlex.split(first)[1:]  # After the time.
  known = experiment_files.named()
  for index, word in enumerate(words):
    here = pathlib.PurePath(word)
    if (
      here.name == 'train'
      and 'ftwax' in pathlib.PurePath(words[index - 1]).name
    ):
      return words[index + 1], words[index + 2 :]
    if here.suffix == '.py' and here.parent.name == 'experiments':
      if here.stem in known:
        return here.stem, words[index + 1 :]
  raise ValueError(
    f'run ({directory}) must record a command that names its experiment, and'
    f' records `{shlex.join(words)}`; pass --experiment=NAME or'
    ' --experiment=FILE.py:FUNCTION.'
  )
