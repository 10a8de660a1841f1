"""Finds and runs experiment files: the library's, by name, and users' own."""

import contextlib
import importlib
import pathlib
import sys
import types
from collections.abc import Iterator, Sequence

import cloudpickle
from absl import flags

from ftwax.cli import commands
from ftwax.runtime import experiment as experiment_lib
from ftwax.runtime import launch

# Used if no function of a file is named.
_DEFAULT_FUNCTION = 'build_experiment'


def named() -> dict[str, pathlib.Path]:
  """Returns the paths of the library's experiments, by name."""
  folder = pathlib.Path(__file__).parents[1] / 'experiments'
  files = sorted(folder.glob('[a-z]*.py'))
  return {path.stem: path for path in files}


def run(experiment: str, arguments: Sequence[str]) -> None:
  """Runs an experiment and exits, like `launch.run`.

  Args:
    experiment: name of the experiment, or FILE:FUNCTION.
    arguments: flags of the experiment.
  """
  with _command_line(f'ftwax train {experiment}', arguments):
    _execute(experiment)


@contextlib.contextmanager
def built(
  experiment: str, arguments: Sequence[str]
) -> Iterator[Sequence[experiment_lib.ExperimentConfig]]:
  """Makes an experiment without running it.

  A context manager: the flags, which the experiment's environment may read,
  stay defined inside the context.

  Args:
    experiment: name of the experiment, or FILE:FUNCTION.
    arguments: flags of the experiment.

  Yields:
    A sequence with the experiment; with `--compare`, one for each of its runs.
  """
  with _command_line(f'ftwax train {experiment}', arguments):
    with launch.collected() as made:
      try:
        _execute(experiment)
      except SystemExit as error:
        if error.code:
          raise
    if not made:
      raise ValueError(
        f'experiment ({experiment}) must call `launch.run` in its file, and'
        ' does not; choose another.'
      )
    yield made


def _execute(experiment: str) -> None:
  if '.py' in experiment:
    _run_function(experiment)
  else:
    _run_script(_find(experiment))


def _run_script(path: pathlib.Path) -> None:
  """Runs a file like `python path`, but keeps `sys.argv`."""
  script = types.ModuleType('__main__')
  script.__file__ = str(path)
  before = sys.modules['__main__']
  sys.modules['__main__'] = script
  try:
    exec(compile(path.read_text('utf-8'), path, 'exec'), script.__dict__)
  finally:
    sys.modules['__main__'] = before


def _find(name: str) -> pathlib.Path:
  files = named()
  if name not in files:
    raise ValueError(
      f'experiment ({name!r}) must be a name listed by `ftwax list` or'
      f' FILE.py:FUNCTION{commands.suggest(name, files)}'
    )
  return files[name]


def _run_function(experiment: str) -> None:
  """Runs the experiment that a function in a user's file builds."""
  file, _, function = experiment.partition(':')
  path = pathlib.Path(file)
  if not path.is_file():
    raise ValueError(
      f'experiment ({experiment!r}) must name a file, and there is no {file};'
      ' give its path.'
    )
  sys.path.insert(0, str(path.resolve().parent))
  module = importlib.import_module(path.stem)
  # Pickled by value, since other processes may not find the file.
  cloudpickle.register_pickle_by_value(module)
  build = getattr(module, function or _DEFAULT_FUNCTION, None)
  if not callable(build):
    raise ValueError(
      f'experiment ({experiment!r}) must name a function of {file} that returns'
      ' an ExperimentConfig, and there is no such function; write'
      f' {file}:FUNCTION.'
    )
  launch.run_function(build)


@contextlib.contextmanager
def _command_line(command: str, arguments: Sequence[str]) -> Iterator[None]:
  """Sets `sys.argv`, and restores it, `sys.path` and the flags at exit.

  A context manager.
  """
  argv, path, before = sys.argv, list(sys.path), set(flags.FLAGS)
  sys.argv = [command, *arguments]
  try:
    yield
  finally:
    sys.argv, sys.path[:] = argv, path
    for name in set(flags.FLAGS) - before:
      delattr(flags.FLAGS, name)
