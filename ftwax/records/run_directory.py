"""The directory of a run: what ran, with which versions, and how to go on.

    runs/<name>/<timestamp>-seed<seed>/
      config.json     the whole configuration, every default resolved
      versions.json   Python, platform and packages at the first start
      command.txt     one line for each start: time and command line

A new directory appears at once and complete, and whoever resumes it must bring
the same configuration. Nothing on disk changes when a function here raises.
"""

import contextlib
import datetime
import importlib.metadata
import json
import os
import pathlib
import platform
import re
import shlex
import shutil
import sys
import time
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from absl import logging

import ftwax
from ftwax.records import config_files, files

CONFIG_FILE = 'config.json'
VERSIONS_FILE = 'versions.json'
COMMAND_FILE = 'command.txt'
LOCK_FILE = 'lock'

# Asked for by their metadata: some of these take seconds to import.
_PACKAGES = (
  'jax',
  'jaxlib',
  'numpy',
  'chex',
  'dm-haiku',
  'optax',
  'orbax-checkpoint',
  'dm-acme',
  'dm-launchpad',
  'dm-reverb',
  'tensorflow',
  'tensorflow-cpu',
)

_TIMESTAMP = '%Y%m%d-%H%M%S'
_RUN_NAME = re.compile(r'(?P<time>\d{8}-\d{6})-seed-?\d+(-(?P<copy>\d+))?')


class RunDirectoryError(RuntimeError):
  """A run directory cannot be made or opened."""


class ConfigMismatchError(RunDirectoryError):
  """A run is resumed with another configuration than it was started with."""


def create(
  root: str | os.PathLike, name: str, seed: int, config: Any
) -> pathlib.Path:
  """Makes `root/name/<timestamp>-seed<seed>` and returns its path.

  Args:
    root: where all runs are; made if it is not there.
    name: of the experiment; letters, digits, `.`, `_` and `-`.
    seed: of the run.
    config: anything that `configs.to_json` takes.

  Returns:
    The path of the directory. The timestamp is UTC; a second run in the same
    second gets `-2` appended.

  Raises:
    TypeError: if `config` holds what has no stable name.
    ValueError: if `name` cannot be the name of a directory.
  """
  _check_name(name)
  text = _dump(config_files.to_json(config))
  stem = f'{time.strftime(_TIMESTAMP, time.gmtime())}-seed{seed}'
  copy = 1
  while True:
    suffix = '' if copy == 1 else f'-{copy}'
    path = pathlib.Path(root) / name / f'{stem}{suffix}'
    if not path.exists() and _populate(path, text):
      return path
    copy += 1


def create_at(path: str | os.PathLike, config: Any) -> pathlib.Path:
  """Makes a run directory at `path`, which must be empty or not there.

  Args:
    path: of the directory.
    config: anything that `configs.to_json` takes.

  Returns:
    The path.

  Raises:
    RunDirectoryError: if there is something at `path` already.
    TypeError: if `config` holds what has no stable name.
  """
  path = pathlib.Path(path)
  text = _dump(config_files.to_json(config))
  if not (_is_free(path) and _populate(path, text)):
    raise RunDirectoryError(
      f'run directory ({path}) must be new or empty, but something is there;'
      ' resume that run with open_existing, or choose another directory.'
    )
  return path


def open_existing(
  path: str | os.PathLike, config: Any, may_differ: Collection[str] = ()
) -> pathlib.Path:
  """Opens the directory of a run to resume it.

  Args:
    path: of a directory that `create` or `create_at` made.
    config: of this session; must be that of the run.
    may_differ: dotted keys that are not compared, e.g. the number of steps of
      a run that shall go on for longer. `config.json` keeps the first values.

  Returns:
    The path. The command line of this session is added to `command.txt`, and
    versions that differ from those of the first start are logged.

  Raises:
    ConfigMismatchError: names every key that differs and both its values.
    RunDirectoryError: if there is no readable run at `path`.
  """
  path = pathlib.Path(path)
  recorded = _read_json(path / CONFIG_FILE)
  current = json.loads(_dump(config_files.to_json(config)))
  _check_same(path, recorded, current, may_differ)
  _log_new_versions(_read_json(path / VERSIONS_FILE))
  command_path = path / COMMAND_FILE
  commands = command_path.read_text('utf-8') if command_path.exists() else ''
  files.write_atomically(command_path, commands + _command_line())
  return path


def newest(root: str | os.PathLike, name: str) -> pathlib.Path | None:
  """Returns the newest run directory of experiment `name`, or None."""
  _check_name(name)
  found = []
  for config_path in (pathlib.Path(root) / name).glob(f'*/{CONFIG_FILE}'):
    path = config_path.parent
    match = _RUN_NAME.fullmatch(path.name)
    if match:
      found.append((match['time'], int(match['copy'] or 1), path))
  return max(found)[-1] if found else None


@contextlib.contextmanager
def lock(path: str | os.PathLike) -> Iterator[None]:
  """Keeps other processes of this machine out of a run directory.

  A context manager; a kill releases the lock too.

  Args:
    path: of a run directory.

  Yields:
    Nothing.

  Raises:
    RunDirectoryError: if another process holds the lock.
  """
  import fcntl  # Only on Unix.

  with open(pathlib.Path(path) / LOCK_FILE, 'a') as file:
    try:
      fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
      raise RunDirectoryError(
        f'run directory ({path}) must be in use by one process at a time, but'
        ' another one is in it; wait for that run to end, or start a new run.'
      ) from error
    yield


def _dump(plain: Any) -> str:
  return json.dumps(plain, indent=2, allow_nan=False) + '\n'


def _check_name(name: str) -> None:
  if not re.fullmatch(r'[A-Za-z0-9_-][A-Za-z0-9._-]*', name):
    raise ValueError(
      f'name ({name!r}) must be of letters, digits, ".", "_" and "-", and not'
      ' begin with "."; choose another.'
    )


def _is_free(path: pathlib.Path) -> bool:
  return not path.exists() or (path.is_dir() and not any(path.iterdir()))


def _populate(path: pathlib.Path, config_text: str) -> bool:
  """Makes a run directory at `path`; False if something came in between."""
  path.parent.mkdir(parents=True, exist_ok=True)
  temporary = path.with_name(f'.{path.name}.{os.getpid()}.tmp')
  try:
    temporary.mkdir()
    files.write_atomically(temporary / CONFIG_FILE, config_text)
    files.write_atomically(temporary / VERSIONS_FILE, _dump(_versions()))
    files.write_atomically(temporary / COMMAND_FILE, _command_line())
    # Fails unless there is nothing at `path`, or an empty directory.
    temporary.rename(path)
  except OSError:
    if _is_free(path):
      raise
    return False
  finally:
    shutil.rmtree(temporary, ignore_errors=True)
  return True


def _versions() -> dict[str, str]:
  versions = {
    'ftwax': ftwax.__version__,
    'python': platform.python_version(),
    'platform': platform.platform(),
  }
  for package in _PACKAGES:
    try:
      versions[package] = importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
      continue
  return versions


def _log_new_versions(recorded: Mapping[str, str]) -> None:
  for key, then, now in config_files.differences(recorded, _versions()):
    logging.warning(
      '%s is %s, but was %s when this run began; results may differ.',
      key,
      now,
      then,
    )


def _command_line() -> str:
  now = datetime.datetime.now(datetime.timezone.utc)
  return f'{now.isoformat(timespec="seconds")} {shlex.join(sys.orig_argv)}\n'


def _read_json(path: pathlib.Path) -> Any:
  try:
    return json.loads(path.read_text('utf-8'))
  except (OSError, ValueError) as error:
    raise RunDirectoryError(
      f'run directory ({path.parent}) must hold a readable {path.name}, but:'
      f' {error}; give the directory of an earlier run, or start a new run.'
    ) from error


def _check_same(
  path: pathlib.Path, recorded: Any, current: Any, may_differ: Collection[str]
) -> None:
  different = [
    f'  {key}: {then!r} in the run directory, {now!r} now'
    for key, then, now in config_files.differences(recorded, current)
    if key not in may_differ
  ]
  if different:
    raise ConfigMismatchError(
      f'config must be that of the run in {path}, but differs in'
      f' {len(different)} of its keys:\n'
      + '\n'.join(different)
      + '\nResume with the values of the run, or start a new run.'
    )
