"""Runs and experiments as users name them, found without JAX.

Commands look here first, so that a wrong path fails at once.
"""

import dataclasses
import pathlib
import sys
from collections.abc import Iterable

import ftwax
from ftwax import import_guard, suggestions
from ftwax.cli import flags

_PACKAGE = pathlib.Path(ftwax.__file__).parent
_TRAINED = _PACKAGE / 'trained'
EXPERIMENTS = _PACKAGE / 'experiments'

# What a run has from its start on, and shared agents, too.
_CONFIG_FILE = 'config.json'

EXPERIMENT_HELP = (
  'FILE.py:FUNCTION that builds the experiment, if it has code of other'
  ' libraries.'
)
HELD_OUT_HELP = (
  'Scripts, or agents RUN@MEMBER, that evaluations meet and training never.'
)


@dataclasses.dataclass(frozen=True)
class RunOptions:
  """Flags of commands on a run."""

  run: str = flags.argument(
    'Directory of the run, or of several, of which it takes the newest; or the'
    ' name of a population of the library.'
  )
  experiment: str | None = flags.flag(None, EXPERIMENT_HELP)
  step: str | None = flags.flag(
    None, 'Step of the checkpoint, or best; by default the newest.'
  )

  @property
  def checkpoint(self) -> int | str | None:
    """The step as a number, `best`, or None."""
    if self.step is None or self.step == 'best':
      return self.step
    try:
      return int(self.step)
    except ValueError:
      raise ValueError(
        f'step ({self.step}) must be an integer or best; choose best.'
      ) from None


def find_run(source: str) -> str:
  """Returns the run that a path means, or the name of shipped agents.

  A folder that holds runs, and is none itself, means the run below it that was
  started last, which is printed.

  Raises:
    ValueError: if there is nothing at this path.
  """
  path = pathlib.Path(source)
  if len(path.parts) == 1 and (_TRAINED / path).is_dir():
    return source
  if not path.is_dir():
    known = sorted(each.name for each in _TRAINED.glob('[a-z]*'))
    raise ValueError(
      f'there is no {source}; give the directory of a run, such as'
      f' runs/NAME/TIME-seed0, or one of {known}.'
    )
  if (path / _CONFIG_FILE).exists() or (path / 'logs').exists():
    return source
  runs = [*path.glob(f'*/{_CONFIG_FILE}'), *path.glob(f'*/*/{_CONFIG_FILE}')]
  if not runs:
    raise ValueError(
      f'there is no run in {source}; start an experiment, such as `ftwax train'
      ' catch`, or give the directory of a run.'
    )
  newest = max(runs, key=lambda config: config.stat().st_mtime).parent
  print(f'The newest run in {source}: {newest}', file=sys.stderr)
  return str(newest)


def experiments() -> list[str]:
  """Returns the names of the library's experiments."""
  return sorted(path.stem for path in EXPERIMENTS.glob('[a-z]*.py'))


def check_experiment(source: str, others: Iterable[str] = ()) -> None:
  """Raises a ValueError if nothing that can be trained has this name.

  Args:
    source: see `launch.find`.
    others: names of tasks.
  """
  file, colon, _ = source.partition(':')
  path = pathlib.Path(file)
  if path.suffix == '.py':
    if not path.is_file():
      raise ValueError(
        f'{source!r} must name a file, and there is no {path}; give its path.'
      )
    return
  known = [*experiments(), *others]
  if colon or source in known:
    return  # A package is looked for later.
  with import_guard.guarded():  # All else is known without it.
    import gymnasium

  if source not in gymnasium.registry:
    meant = suggestions.suggest(source, [*known, *gymnasium.registry])
    raise ValueError(
      f'experiment ({source!r}) must be a name listed by `ftwax list`, the id'
      f' of a Gymnasium environment, FILE.py:NAME or MODULE:NAME{meant}'
    )
