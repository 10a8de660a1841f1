"""Where functions and modules are kept between sessions of tests, compiled.

Most of a session's time is XLA's. What was compiled lies in the user's cache,
so that a second session compiles little, of this clone or another, on whichever
Python: JAX finds a function by what it computes. Machine code is of one version
of JAX and one kind of processor; so is the folder.
"""

import contextlib
import hashlib
import importlib.metadata
import os
import pathlib
import platform
import shutil
import stat
import sys
import time

_OWN = pathlib.Path(__file__).parents[1] / '.pytest_cache'

# A session of all fast tests leaves about half of this.
_MAX_BYTES = 3_000_000_000

_SECONDS_KEPT = 86_400


def find_root():
  """Returns where the folders of functions are, made if needed.

  It is in the user's cache; where that cannot be written, in the clone.
  """
  try:
    base = os.environ.get('XDG_CACHE_HOME') or pathlib.Path.home() / '.cache'
    root = pathlib.Path(base) / 'ftwax' / 'tests'
    # Its machine code is run: it is the user's alone.
    root.mkdir(parents=True, exist_ok=True, mode=0o700)
  except (OSError, RuntimeError):  # Without a home.
    return _OWN / 'compiled'
  return root if os.access(root, os.W_OK) else _OWN / 'compiled'


def make_folder(root=None):
  """Returns the folder of this machine and these versions, made if needed.

  Others that no session has added to for a day are removed, since sessions of
  several versions may run at once. A large one loses its older half, which is
  compiled again where it is needed: another session may be reading it.
  """
  root = root or find_root()
  folder = root / _key()
  for other in root.iterdir() if root.is_dir() else ():
    if not other.is_dir():
      continue
    is_old = time.time() - other.stat().st_mtime > _SECONDS_KEPT
    if is_old and other != folder:
      shutil.rmtree(other, ignore_errors=True)
    elif _size(other) > _MAX_BYTES:
      _remove_older_half(other)
  folder.mkdir(parents=True, exist_ok=True, mode=0o700)
  return folder


def add_flags(*flags):
  """Adds flags of XLA, for this process and those that it starts.

  A process of tests inherits them and adds the same: each must stand there
  once, since JAX finds a function by its flags too.
  """
  there = os.environ.get('XLA_FLAGS', '').split()
  os.environ['XLA_FLAGS'] = ' '.join(dict.fromkeys([*there, *flags]))


def keep_modules(folder=_OWN / 'modules'):
  """Keeps compiled modules there, in this process and in those it starts.

  It begins anew once it is large; Python finds out which modules are old.
  """
  if folder.is_dir() and _size(folder) > _MAX_BYTES:
    shutil.rmtree(folder, ignore_errors=True)
  os.environ.pop('PYTHONDONTWRITEBYTECODE', None)
  os.environ['PYTHONPYCACHEPREFIX'] = sys.pycache_prefix = str(folder)
  sys.dont_write_bytecode = False


def _key():
  versions = [importlib.metadata.version(name) for name in ('jax', 'jaxlib')]
  processor = platform.processor() or platform.machine()
  about = pathlib.Path('/proc/cpuinfo')
  if about.exists():
    lines = about.read_text().splitlines()
    kinds = ('model name', 'flags', 'Features')
    processor += '\n'.join(sorted({x for x in lines if x.startswith(kinds)}))
  words = '\n'.join([*versions, processor])
  return hashlib.sha256(words.encode()).hexdigest()[:16]


def _remove_older_half(folder):
  """Removes files, oldest first, until half of what is kept at most is left."""
  files = sorted(_files(folder), key=lambda file: file[1].st_mtime)
  size = sum(status.st_size for _, status in files)
  for path, status in files:
    if size <= _MAX_BYTES / 2:
      return
    path.unlink(missing_ok=True)
    size -= status.st_size


def _size(folder):
  return sum(status.st_size for _, status in _files(folder))


def _files(folder):
  """Returns files and their status, without those that others remove."""
  found = []
  for path in folder.rglob('*'):
    with contextlib.suppress(FileNotFoundError):
      found.append((path, path.stat()))
  return [file for file in found if stat.S_ISREG(file[1].st_mode)]
