"""Ends and removes what a run leaves if it is killed.

A run locks its temporary folder: the lock ends with the process, in whatever
container it is. What it starts has the folder in its environment, and so has
all that is started by that. As a script, this file waits for its parent's death
and ends them. It imports nothing of the library, so that it starts at once.
"""

import contextlib
import fcntl
import os
import pathlib
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import IO

_PREFIX = 'ftwax-'
_LOCK_FILE = '.ftwax-temporary'
_VARIABLE = 'FTWAX_STARTED_IN'

# Paths of sockets have at most 107 characters, of which Ray takes 66.
_MAX_PATH = 38

_PERIOD_S = 1.0

# Seconds for which a run waits until another one has started.
_PATIENCE_S = 120.0
_NUM_ATTEMPTS = 10


@contextlib.contextmanager
def folder() -> Iterator[str]:
  """Makes a folder of this user's alone, and removes those of killed runs.

  A context manager, which removes it.

  Yields:
    The path of the folder.
  """
  root = tempfile.gettempdir()
  root = root if len(root) + len('/ftwax-12345678') < _MAX_PATH else '/tmp'
  _remove_unlocked(root)
  # It has its name only once it is locked, or another run would remove it.
  hidden = tempfile.mkdtemp(prefix=f'.{_PREFIX}', dir=root)
  path = os.path.join(root, os.path.basename(hidden)[1:])
  with open(os.path.join(hidden, _LOCK_FILE), 'w') as file:
    fcntl.flock(file, fcntl.LOCK_EX)
    os.rename(hidden, path)
    try:
      yield path
    finally:
      shutil.rmtree(path, ignore_errors=True)


@contextlib.contextmanager
def one_at_a_time(what: str) -> Iterator[None]:
  """Waits while another run of this user starts something, and says so.

  It waits for two minutes at most: the other run may have been stopped. The
  lock is in a folder that no other user can enter.
  """
  flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
  with contextlib.ExitStack() as stack:
    try:
      path = os.path.join(_own_folder(), 'starts')
      file = stack.enter_context(os.fdopen(os.open(path, flags, 0o600), 'w'))
    except OSError:  # No home, or a read-only one: nobody waits.
      yield
      return
    if not _try_to_lock(file):
      print(f'Another run starts {what}; this one waits for it.', flush=True)
      deadline = time.monotonic() + _PATIENCE_S
      while not _try_to_lock(file):
        if time.monotonic() > deadline:
          print(
            f'It has not ended in {_PATIENCE_S:.0f} s, and may be stopped; this'
            f' run starts {what} beside it.',
            flush=True,
          )
          break
        time.sleep(_PERIOD_S)
    yield


def _own_folder() -> str:
  """Returns a folder that only this user can enter.

  Raises:
    OSError: if there is none, or it is another user's.
  """
  cache = os.environ.get('XDG_CACHE_HOME') or os.path.expanduser('~/.cache')
  path = os.path.join(cache, 'ftwax', 'locks')
  os.makedirs(path, mode=0o700, exist_ok=True)
  status = os.lstat(path)
  if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
    raise PermissionError(f'{path} must be a folder of this user')
  os.chmod(path, 0o700)
  return path


def _try_to_lock(file: IO[str]) -> bool:
  try:
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
  except BlockingIOError:
    return False
  return True


def _remove_unlocked(root: str) -> None:
  for entry in os.scandir(root):
    if entry.name.startswith(_PREFIX) and entry.is_dir(follow_symlinks=False):
      if entry.stat(follow_symlinks=False).st_uid == os.getuid():
        with contextlib.suppress(OSError):  # Locked, or of another kind.
          flags = os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK
          file = os.open(os.path.join(entry.path, _LOCK_FILE), flags)
          with os.fdopen(file, 'w'):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(entry.path, ignore_errors=True)


@contextlib.contextmanager
def marking(path: str) -> Iterator[None]:
  """Marks all processes that this one starts within as those of a folder.

  They do not look for modules in the current directory.
  """
  before = dict(os.environ)
  os.environ.update({_VARIABLE: path, 'PYTHONSAFEPATH': '1'})
  try:
    yield
  finally:
    for name in (_VARIABLE, 'PYTHONSAFEPATH'):
      os.environ.pop(name)
      os.environ.update({name: before[name]} if name in before else {})


def kill(path: str) -> None:
  """Kills the processes of a folder, and those that they start meanwhile."""
  mark, num_empty = f'{_VARIABLE}={path}'.encode(), 0
  for _ in range(_NUM_ATTEMPTS):
    pids = set()
    for process in pathlib.Path('/proc').glob('[0-9]*'):
      with contextlib.suppress(OSError):
        if mark in (process / 'environ').read_bytes().split(b'\0'):
          pids.add(int(process.name))
    for pid in pids - {os.getpid()}:
      with contextlib.suppress(OSError):
        os.kill(pid, signal.SIGKILL)
    # One that is just starting has no environment yet.
    num_empty = 0 if pids else num_empty + 1
    if num_empty == 2:
      return
    time.sleep(0.1)


@contextlib.contextmanager
def ended(path: str, *others: str) -> Iterator[None]:
  """Ends the processes of a folder, even if this process is killed.

  Args:
    path: the folder, which is removed if this process is killed.
    *others: folders that are removed as well then.
  """
  command = [sys.executable, '-I', __file__, str(os.getpid()), path, *others]
  watcher = subprocess.Popen(
    command, stdin=subprocess.DEVNULL, start_new_session=True
  )
  try:
    yield
  finally:
    watcher.kill()
    watcher.wait()
    kill(path)


if __name__ == '__main__':
  while os.getppid() == int(sys.argv[1]):
    time.sleep(_PERIOD_S)
  kill(sys.argv[2])
  for folder_of_run in sys.argv[2:]:
    shutil.rmtree(folder_of_run, ignore_errors=True)
