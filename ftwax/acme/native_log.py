"""Removes uninformative lines from Reverb's log.

Reverb's C++ code writes to the standard error of the process and has no option
to select messages. Warnings and errors are kept.
"""

import contextlib
import os
import re
import sys
import tempfile
import threading
from collections.abc import Iterator

_NOISE = re.compile(
  rb'\[reverb/cc/.*\]\s+('
  rb'Initializing TFRecordCheckpointer'
  rb'|Loading latest checkpoint from'
  rb'|Started replay server on'
  rb'|Shutting down replay server'
  rb'|Sampler and server are owned by the same process'
  rb')'
)

_STDERR = 2
_lock = threading.Lock()


@contextlib.contextmanager
def filtered() -> Iterator[None]:
  """Drops such lines from the output within the context.

  Other lines are written at its end, including those of other threads.
  """
  # A file, since a pipe whose buffer is full would block Reverb's threads.
  with _lock, tempfile.TemporaryFile() as written:
    sys.stderr.flush()
    original = os.dup(_STDERR)
    os.dup2(written.fileno(), _STDERR)
    try:
      yield
    finally:
      sys.stderr.flush()
      os.dup2(original, _STDERR)
      os.close(original)
      written.seek(0)
      for line in written:
        if not _NOISE.match(line):
          os.write(_STDERR, line)
