"""What a test process holds, and how it frees what it compiled."""

import ctypes
import gc
import os
import pathlib

import jax


def measure() -> tuple[int, int]:
  """Returns the resident bytes and the memory maps of this process."""
  process = pathlib.Path('/proc/self')
  pages = int((process / 'statm').read_text().split()[1])
  maps = (process / 'maps').read_bytes().count(b'\n')
  return pages * os.sysconf('SC_PAGE_SIZE'), maps


def free() -> None:
  """Frees compiled functions: JAX keeps them as long as what they compute.

  The library's functions live as long as the process, and each compiled one
  has memory maps of its own, of which Linux allows 65,530.
  """
  jax.clear_caches()
  gc.collect()
  libc = ctypes.CDLL(None)
  if hasattr(libc, 'malloc_trim'):  # This is glibc's.
    libc.malloc_trim(0)
