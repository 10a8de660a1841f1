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
  with contextlib.ExitStack() as stack:
    path = _make(root, stack)
    try:
      yield path
    finally:
      shutil.rmtree(path, ignore_errors=True)


def _make(root: pathlib.Path, stack: contextlib.ExitStack) -> pathlib.Path:
  """Makes a directory and locks it until the stack is closed."""
  while True:
    path = pathlib.Path(tempfile.mkdtemp(prefix=_PREFIX, dir=root))
    # Before it is locked, another run that starts may take it for that of a
    # killed run.
    with contextlib.suppress(OSError):
      stack.enter_context(_locked(path))
      if path.is_dir():
        return path


@contextlib.contextmanager
def _locked(path: pathlib.Path) -> Iterator[None]:
  """Locks a directory; raises an OSError if another process holds the lock."""
  descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
  try:
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    yield
  finally:
    os.close(descriptor)
