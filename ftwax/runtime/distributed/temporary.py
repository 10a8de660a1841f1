"""Temporary directory of a run; after a kill, the next run removes it."""

import contextlib
import fcntl
import os
import pathlib
import shutil
import tempfile
from collections.abc import Iterator

_PREFIX = f'ftwax-run-{os.getuid()}-'


@contextlib.contextmanager
def directory() -> Iterator[pathlib.Path]:
  """Makes a temporary directory; removes those of runs that were killed.

  A running process holds a lock on its directory, which the kernel releases
  when it dies. A context manager.

  Yields:
    The directory, which is removed at the end.
  """
  root = pathlib.Path(tempfile.gettempdir())
  for path in root.glob(f'{_PREFIX}*'):
    with contextlib.suppress(OSError), _locked(path):
      shutil.rmtree(path)
  path = pathlib.Path(tempfile.mkdtemp(prefix=_PREFIX, dir=root))
  with _locked(path):
    try:
      yield path
    finally:
      shutil.rmtree(path, ignore_errors=True)


@contextlib.contextmanager
def _locked(path: pathlib.Path) -> Iterator[None]:
  """Locks a directory; raises an OSError if another process holds the lock."""
  descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
  try:
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    yield
  finally:
    os.close(descriptor)
