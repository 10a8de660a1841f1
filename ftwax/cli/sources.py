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
from ftwax.records import run_directory

_PACKAGE = pathlib.Path(ftwax.__file__).parent
_TRAINED = _PACKAGE / 'trained'
EXPERIMENTS = _PACKAGE / 'experiments'

# Most runs that a page shows at once.
MAX_RUNS = 20

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
  if _is_run(path):
    return source
  newest = _runs_in(path)[-1]
  print(f'The newest run in {source}: {newest}', file=sys.stderr)
  return str(newest)


def find_runs(source: str) -> list[str]:
  """Returns the runs that a path means to a page that shows several.

  A folder that holds runs means the newest of them, in the order of their
  start.

  Raises:
    ValueError: if there is no run at this path.
  """
  path = pathlib.Path(source)
  if not path.is_dir() or _is_run(path):
    return [find_run(source)]
  runs = _runs_in(path)
  if len(runs) > MAX_RUNS:
    print(
      f'{source} has {len(runs)} runs; these are the newest {MAX_RUNS}. Name'
      ' other ones to see them.',
      file=sys.stderr,
    )
  return [str(run) for run in runs[-MAX_RUNS:]]


def _is_run(path: pathlib.Path) -> bool:
  return (path / _CONFIG_FILE).exists() or (path / 'logs').exists()


def _runs_in(path: pathlib.Path) -> list[pathlib.Path]:
  """Returns the runs below a folder, those that were started last at the end.

  Raises:
    ValueError: if there are none.
  """
  runs = [
    config.parent
    for pattern in ('*', '*/*')
    for config in path.glob(f'{pattern}/{_CONFIG_FILE}')
  ]
  if not runs:
    raise ValueError(
      f'there is no run in {path}; start an experiment, such as `ftwax train'
      ' catch`, or give the directory of a run.'
    )
  return sorted(runs, key=_start_of)


def _start_of(run: pathlib.Path) -> str:
  """Returns when a run was started, as text in the order of time."""
  # Not the time of a file, which is another one in a copy.
  started = run_directory.started_at(run)
  stamp = (
    started.timestamp() if started else (run / _CONFIG_FILE).stat().st_mtime
  )
  return f'{stamp:020.3f} {run.name}'


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
