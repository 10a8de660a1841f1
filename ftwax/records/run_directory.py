"""The directory of a run: its configuration, versions and commands.

    runs/<name>/<timestamp>-seed<seed>/
      config.json     the whole configuration, every default resolved
      versions.json   layout, commit, Python and packages at the first start
      command.txt     one line for each start: time and command line
      number.txt      position among the runs of this name, counted from 1
      sources.json    digests of recorded games, if the run learns from them

A new directory is created atomically and complete. A run is resumed with the
configuration that it was started with. If a function here raises an error,
nothing on disk has changed.
"""

import contextlib
import dataclasses
import datetime
import importlib.metadata
import json
import os
import pathlib
import platform
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Collection, Iterator
from typing import IO, Any

from absl import logging

from ftwax import errors, import_guard, version
from ftwax.records import files

CONFIG_FILE = 'config.json'
VERSIONS_FILE = 'versions.json'
COMMAND_FILE = 'command.txt'
NUMBER_FILE = 'number.txt'
LOCK_FILE = 'lock'
ENDED_FILE = 'ended.txt'  # When the last process of the run ended.
ERROR_FILE = 'error.txt'
GAME_FILE = 'game.json'  # Specs of the game.
SOURCES_FILE = 'sources.json'  # Digests of what a run learns from.
ABOUT_FILE = 'about.json'  # What is known of shared agents.
NODES_FILE = 'output/nodes.json'  # Status of a distributed run's nodes.

# Versions are read from metadata, since some packages take seconds to import.
_PACKAGES = (
  'jax',
  'jaxlib',
  'numpy',
  'chex',
  'dm-haiku',
  'optax',
  'dm-acme',
  'dm-launchpad',
  'dm-reverb',
  'tensorflow',
  'tensorflow-cpu',
)

_TIMESTAMP = '%Y%m%d-%H%M%S'

# No save takes this long.
_LEFTOVER_S = 86_400.0
_RUN_NAME = re.compile(r'(?P<time>\d{8}-\d{6})-seed-?\d+(-(?P<copy>\d+))?')


class RunDirectoryError(errors.UserError):
  """Raised if a run directory cannot be made or opened."""


class ConfigMismatchError(RunDirectoryError):
  """Raised if a run is resumed with a configuration other than its own."""


def create(
  root: str | os.PathLike[str], name: str, seed: int, config: Any
) -> pathlib.Path:
  """Makes `root/name/<timestamp>-seed<seed>` and returns its path.

  Args:
    root: directory of all runs; made if it does not exist.
    name: name of the experiment; letters, digits, `.`, `_` and `-`.
    seed: seed of the run.
    config: anything that `config_files.to_json` accepts.

  Returns:
    The path of the directory. The timestamp is in UTC; the second run in the
    same second has `-2` appended.

  Raises:
    RunDirectoryError: if nothing can be written there.
    TypeError: if `config` holds a value without a stable name.
    ValueError: if `name` cannot be the name of a directory.
  """
  _check_name(name)
  from ftwax.records import config_files  # Slow import.

  text = _dump(config_files.to_json(config))
  stem = f'{time.strftime(_TIMESTAMP, time.gmtime())}-seed{seed}'
  copy = 1
  while True:
    suffix = '' if copy == 1 else f'-{copy}'
    path = pathlib.Path(root) / name / f'{stem}{suffix}'
    with _reported(path):
      if not path.exists() and _populate(path, text):
        return path
    copy += 1


def create_at(path: str | os.PathLike[str], config: Any) -> pathlib.Path:
  """Makes a run directory at `path`, which must be new or empty.

  Args:
    path: path of the directory.
    config: anything that `config_files.to_json` accepts.

  Returns:
    The path.

  Raises:
    RunDirectoryError: if `path` is neither new nor empty, or nothing can be
      written there.
    TypeError: if `config` holds a value without a stable name.
  """
  directory = _check_path(path)
  from ftwax.records import config_files  # Slow import.

  text = _dump(config_files.to_json(config))
  with _reported(path):
    is_made = _is_free(directory) and _populate(directory, text)
  if not is_made:
    raise RunDirectoryError(
      f'run directory ({os.fspath(path)}) must be new or empty, but something'
      ' is there; resume that run with --resume (resume=True in Python), or'
      ' choose another directory.'
    )
  return directory


def open_existing(
  path: str | os.PathLike[str], config: Any, may_differ: Collection[str] = ()
) -> pathlib.Path:
  """Opens the directory of a run to resume it.

  Appends the command line of this process to `command.txt`, and logs versions
  that differ from those of the first start.

  Args:
    path: a directory made by `create` or `create_at`.
    config: configuration of this process; must equal that of the run. A field
      that the run does not know, since it is newer, must have its default.
    may_differ: dotted keys that are not compared, e.g. the number of steps of a
      run to extend. `config.json` keeps the first values.

  Returns:
    The path.

  Raises:
    ConfigMismatchError: if the configurations differ; names every key that
      differs and both values.
    RunDirectoryError: if there is no readable run at `path`, or it has another
      layout.
  """
  from ftwax.records import config_files  # Slow import.

  directory = _check_path(path)
  typed = os.fspath(path)
  recorded = _read_json(typed, CONFIG_FILE)
  versions = _read_json(typed, VERSIONS_FILE)
  check_layout(typed, resumes=True)
  _check_same(typed, recorded, config, may_differ)
  for key, then, now in config_files.differences(versions, _versions()):
    logging.warning(
      '%s is %s, but was %s when this run began; results may differ.',
      key,
      now,
      then,
    )
  _remove_leftovers(directory)
  command_path = directory / COMMAND_FILE
  with _reported(path):
    commands = files.read(command_path) if command_path.exists() else ''
    files.write_atomically(command_path, commands + _command_line())
  return directory


def check_layout(path: str | os.PathLike[str], resumes: bool = False) -> int:
  """Checks that this version of ftwax can read a run.

  Args:
    path: path of the run directory.
    resumes: whether to resume it, too, which needs today's layout.

  Returns:
    The layout of the run; today's, if the run does not say it.

  Raises:
    RunDirectoryError: if the run has another layout.
  """
  if not (pathlib.Path(path) / VERSIONS_FILE).exists():
    return _layout()
  from ftwax.records import array_files  # Slow import.

  versions = _read_json(os.fspath(path), VERSIONS_FILE)
  # Versions of ftwax that wrote layout 1 did not record it.
  layout = versions.get('layout', 1) if isinstance(versions, dict) else 1
  if layout != array_files.LAYOUT:
    if resumes or not array_files.can_read(layout):
      raise RunDirectoryError(
        f'run directory ({os.fspath(path)})'
        f' {array_files.layout_message(layout, versions)}'
      )
  return int(layout)


def read_config(path: str | os.PathLike[str]) -> dict[str, Any]:
  """Reads the configuration of a run as JSON; see `config_files.to_json`.

  No name may stand in it twice.

  Raises:
    ValueError: if there is none at `path`, or it is damaged.
  """
  file = pathlib.Path(path) / CONFIG_FILE
  if not file.exists():
    raise ValueError(
      f'run ({os.fspath(path)}) must be the directory of a run, and has no'
      f' {CONFIG_FILE}; give one below runs/.'
    )

  def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    plain = dict(pairs)
    if len(plain) < len(pairs):
      names = [name for name, _ in pairs]
      twice = next(name for name in names if names.count(name) > 1)
      raise ValueError(f'the key {twice!r} stands there twice')
    return plain

  with files.reading(file, 'the configuration of a run as JSON'):
    text = files.read(file, 'strict')
    return files.to_object(files.parse_text(text, object_pairs_hook=unique))


def read_game(path: str | os.PathLike[str], name: str) -> list[Any] | None:
  """Reads a list in the specs of a run's game; None if there are no specs.

  Args:
    path: path of the run directory.
    name: 'event_names', or 'teams' for the team of each seat.

  Raises:
    ValueError: if the specs of the game are damaged.
  """
  game = pathlib.Path(path) / GAME_FILE
  if not game.exists():
    return None
  return files.parse_json(
    game, lambda plain: list(plain[name]), 'the specs of a game'
  )


def newest(root: str | os.PathLike[str], name: str) -> pathlib.Path | None:
  """Returns the latest run of an experiment, or None.

  Runs are ordered by `number.txt`, so that setting back the clock does not
  matter; timestamps decide between runs with the same number.

  Args:
    root: directory of all runs.
    name: name of the experiment.
  """
  _check_name(name)
  found = []
  for config_path in (pathlib.Path(root) / name).glob(f'*/{CONFIG_FILE}'):
    path = config_path.parent
    match = _RUN_NAME.fullmatch(path.name)
    if match:
      copy = int(match['copy'] or 1)
      found.append((_number(path), match['time'], copy, path))
  return max(found)[-1] if found else None


@contextlib.contextmanager
def lock(path: str | os.PathLike[str]) -> Iterator[None]:
  """Locks a run directory against other processes on this machine.

  It is a context manager; a kill releases the lock too. At its end it records
  the time, see `ended_at`.

  Args:
    path: path of the run directory.

  Yields:
    Nothing.

  Raises:
    RunDirectoryError: if another process holds the lock.
  """
  with contextlib.ExitStack() as stack:
    with _reported(path):
      path_of_lock = pathlib.Path(path) / LOCK_FILE
      file = stack.enter_context(files.opened(path_of_lock, 'ab'))
    try:
      _lock_now(file)
    except OSError as error:
      raise RunDirectoryError(
        f'run directory ({os.fspath(path)}) must be used by one process at a'
        ' time, but another one is using it; wait for that run to end, or start'
        ' a new run.'
      ) from error
    ended = pathlib.Path(path) / ENDED_FILE
    ended.unlink(missing_ok=True)
    try:
      yield
    finally:
      with contextlib.suppress(OSError):  # Of a full disk, which is known.
        files.write_atomically(ended, f'{_now()}\n')


def _lock_now(file: IO[Any]) -> None:
  """Locks a file until it is closed; raises an OSError if another did."""
  with import_guard.guarded():
    try:
      import fcntl
    except ImportError:  # Windows.
      import msvcrt

      msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined,unused-ignore]
      return
  fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def ended_at(path: str | os.PathLike[str]) -> datetime.datetime | None:
  """Returns when the last process of a run ended; None if it was killed."""
  ended = pathlib.Path(path) / ENDED_FILE
  return _read_time(ended) if ended.exists() else None


def started_at(path: str | os.PathLike[str]) -> datetime.datetime | None:
  """Returns when a run was started first; None if it is not recorded."""
  command = pathlib.Path(path) / COMMAND_FILE
  return _read_time(command) if command.exists() else None


def _read_time(path: pathlib.Path) -> datetime.datetime | None:
  """Returns the time at the beginning of a file, which may be damaged."""
  try:
    read = datetime.datetime.fromisoformat(files.read(path).split()[0])
  except (OSError, ValueError, IndexError):
    return None
  return read if read.tzinfo else read.replace(tzinfo=datetime.timezone.utc)


def is_locked(path: str | os.PathLike[str]) -> bool | None:
  """Returns whether a process on this machine uses a run directory.

  Takes no lock for it, which could fail a run that starts now.

  Args:
    path: path of the run directory.

  Returns:
    None if the system does not tell.
  """
  try:
    inode = os.stat(pathlib.Path(path) / LOCK_FILE).st_ino
    locks = pathlib.Path('/proc/locks').read_text().splitlines()
  except OSError:
    return None
  return any(f':{inode} ' in line for line in locks if 'FLOCK' in line)


@contextlib.contextmanager
def _reported(path: str | os.PathLike[str]) -> Iterator[None]:
  """Converts file system errors to a RunDirectoryError that names the path."""
  try:
    yield
  except (OSError, ValueError) as error:  # ValueError: a name with '\0'.
    raise RunDirectoryError(
      f'run directory ({os.fspath(path)}) must be writable, but: {error};'
      ' choose another directory.'
    ) from error


def _check_path(path: str | os.PathLike[str]) -> pathlib.Path:
  if not os.fspath(path):
    raise RunDirectoryError(
      "run directory ('') must be a path, but is empty; write . for the current"
      ' directory, or leave it out for a new one in runs/.'
    )
  return pathlib.Path(path)


def _dump(plain: Any) -> str:
  return json.dumps(plain, indent=2, allow_nan=False) + '\n'


def _check_name(name: str) -> None:
  if not re.fullmatch(r'[A-Za-z0-9_-][A-Za-z0-9._-]*', name):
    raise ValueError(
      f'name ({name!r}) must consist of letters, digits, ".", "_" and "-", and'
      ' not start with "."; choose another.'
    )


def _is_free(path: pathlib.Path) -> bool:
  return not path.exists() or (path.is_dir() and not any(path.iterdir()))


def _populate(path: pathlib.Path, config_text: str) -> bool:
  """Makes a run directory; returns False if another process was faster."""
  path.parent.mkdir(parents=True, exist_ok=True)
  _remove_leftovers(path.parent)
  temporary = path.with_name(f'.{path.name}.{os.getpid()}.tmp')
  try:
    temporary.mkdir(mode=0o700)  # Nobody else reads a run.
    files.write_atomically(temporary / CONFIG_FILE, config_text)
    files.write_atomically(temporary / VERSIONS_FILE, _dump(_versions()))
    files.write_atomically(temporary / COMMAND_FILE, _command_line())
    number = 1 + max(map(_number, path.parent.iterdir()), default=0)
    files.write_atomically(temporary / NUMBER_FILE, f'{number}\n')
    # Fails if `path` is a file or a directory that is not empty.
    temporary.rename(path)
  except OSError:
    if _is_free(path):
      raise
    return False
  finally:
    shutil.rmtree(temporary, ignore_errors=True)
  return True


def _remove_leftovers(directory: pathlib.Path) -> None:
  """Removes `.<name>.<pid>.tmp` of killed writers."""
  for path in directory.glob('.*.tmp'):
    pid = path.name.split('.')[-2]
    if not pid.isdigit() or os.path.exists(f'/proc/{pid}'):
      continue
    # Systems without /proc do not say whether their writer lives.
    age = time.time() - path.lstat().st_mtime
    if not os.path.isdir('/proc/self') and age < _LEFTOVER_S:
      continue
    if path.is_dir() and not path.is_symlink():
      shutil.rmtree(path, ignore_errors=True)
    else:
      with contextlib.suppress(OSError):  # Of another user.
        path.unlink()


def _number(path: pathlib.Path) -> int:
  """Returns the number of a run; 0 if it has none, or is not a run."""
  try:
    return int(files.read(path / NUMBER_FILE))
  except (OSError, ValueError):
    return 0


def _versions() -> dict[str, Any]:
  versions: dict[str, Any] = {
    'layout': _layout(),
    'ftwax': version.__version__,
    'python': platform.python_version(),
    'platform': platform.platform(),
  }
  for package in _PACKAGES:
    try:
      versions[package] = importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
      continue
  commit = _commit()
  if commit:
    versions['commit'] = commit
  return versions


def _commit() -> str:
  """Returns the commit of a checkout of ftwax; '' if it is installed."""
  root = pathlib.Path(__file__).parents[2]
  if not (root / '.git').exists():
    return ''
  try:
    return subprocess.check_output(
      ['git', '-C', str(root), 'rev-parse', 'HEAD'],
      stderr=subprocess.DEVNULL,
      text=True,
      timeout=5.0,
    ).strip()
  except (OSError, subprocess.SubprocessError):
    return ''


def _layout() -> int:
  from ftwax.records import array_files  # Slow import.

  return array_files.LAYOUT


def _command_line() -> str:
  return f'{_now()} {shlex.join(sys.orig_argv)}\n'


def _now() -> str:
  now = datetime.datetime.now(datetime.timezone.utc)
  return now.isoformat(timespec='seconds')


def _read_json(typed: str, name: str) -> Any:
  try:
    return files.parse_text(files.read(pathlib.Path(typed) / name))
  except (OSError, ValueError, RecursionError) as error:
    raise RunDirectoryError(
      f'run directory ({typed}) must hold a readable {name}, but:'
      f' {errors.printable(str(error))};'
      ' give the directory of an earlier run, or start a new run.'
    ) from error


def _check_same(
  typed: str, recorded: Any, config: Any, may_differ: Collection[str]
) -> None:
  from ftwax.records import config_files  # Slow import.

  current = json.loads(_dump(config_files.to_json(config)))
  different = [
    f'  {key}: {then!r} in the run directory, {now!r} now'
    for key, then, now in config_files.differences(recorded, current)
    if key not in may_differ
    and not (then == config_files.ABSENT and _is_added(recorded, config, key))
  ]
  if different:
    raise ConfigMismatchError(
      f'config must be that of the run in {typed}, but differs in'
      f' {len(different)} of its keys:\n'
      + '\n'.join(map(errors.printable, different))
      + '\nResume with the values of the run, or start a new run; init_from'
      ' starts one from what this one has learned.'
    )


def _is_added(recorded: Any, config: Any, key: str) -> bool:
  """Returns whether only the field of a known part is new, at its default."""
  *path, name = key.split('.')
  for step in path:
    if isinstance(recorded, dict) and step in recorded:
      recorded, config = recorded[step], getattr(config, step, None)
    elif isinstance(recorded, list) and isinstance(config, tuple | list):
      if not 0 <= int(step) < min(len(recorded), len(config)):
        return False
      recorded, config = recorded[int(step)], config[int(step)]
    else:
      return False
  if not dataclasses.is_dataclass(config):
    return False
  defaults = {field.name: field.default for field in dataclasses.fields(config)}
  return name in defaults and getattr(config, name) == defaults[name]


def read_members(directory: pathlib.Path) -> list[int]:
  """Returns the members in a folder; empty for the directory of a run.

  Raises:
    ValueError: if the file that lists them is damaged.
  """
  path = directory / ABOUT_FILE
  if not path.exists():
    return []
  return files.parse_json(
    path,
    lambda plain: [int(member) for member in plain['members']],
    'what is known of shared agents',
  )
