"""What a test process holds, and how it frees what it compiled."""

import ctypes
import gc
import os
import pathlib

import jax

_PROCESS = pathlib.Path('/proc/self')

# What JAX has said that it did, since memory was freed.
_events: set[str] = set()
jax.monitoring.register_event_duration_secs_listener(
  lambda event, seconds, **_: _events.add(event)
)


def holds_compiled() -> bool:
  """Returns whether anything was compiled since memory was freed."""
  return any(event.startswith('/jax/core/compile/') for event in _events)


def resident_bytes() -> int:
  """Returns the resident bytes of this process."""
  pages = int((_PROCESS / 'statm').read_text().split()[1])
  return pages * os.sysconf('SC_PAGE_SIZE')


def measure() -> tuple[int, int]:
  """Returns the resident bytes and the memory maps of this process."""
  return resident_bytes(), (_PROCESS / 'maps').read_bytes().count(b'\n')


def free() -> None:
  """Frees compiled functions: JAX keeps them as long as what they compute.

  The library's functions live as long as the process, and each compiled one
  has memory maps of its own, of which Linux allows 65,530.
  """
  jax.clear_caches()
  _events.clear()
  gc.collect()
  libc = ctypes.CDLL(None)
  if hasattr(libc, 'malloc_trim'):  # This is glibc's.
    libc.malloc_trim(0)
