"""Where functions and modules are kept between sessions of tests, compiled.

Most of a session's time is XLA's. What was compiled lies in `.pytest_cache`,
beside what pytest keeps, so that a second session compiles little. Machine code
is of one version of JAX and one kind of processor; so is the folder.
"""

import hashlib
import importlib.metadata
import os
import pathlib
import platform
import shutil
import sys
import time

_CACHE = pathlib.Path(__file__).parents[1] / '.pytest_cache'
_ROOT = _CACHE / 'compiled'

# A session of all fast tests leaves about half of this.
_MAX_BYTES = 3_000_000_000

_SECONDS_KEPT = 86_400


def make_folder(root=_ROOT):
  """Returns the folder of this machine and these versions, made if needed.

  Those of other versions are removed a day after something was added, since
  sessions of several versions may run at once. It begins anew once it is large.
  """
  folder = root / _key()
  for other in root.iterdir() if root.is_dir() else ():
    is_old = time.time() - other.stat().st_mtime > _SECONDS_KEPT
    if (is_old and other != folder) or _size(other) > _MAX_BYTES:
      shutil.rmtree(other, ignore_errors=True)
  folder.mkdir(parents=True, exist_ok=True)
  return folder


def keep_modules(folder=_CACHE / 'modules'):
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
  words = '\n'.join([*versions, platform.python_version(), processor])
  return hashlib.sha256(words.encode()).hexdigest()[:16]


def _size(folder):
  return sum(path.stat().st_size for path in folder.rglob('*'))
