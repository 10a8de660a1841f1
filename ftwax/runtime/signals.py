"""What a run does when it is asked to end."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def raising_interrupts() -> Iterator[None]:
  """Makes Ctrl-C and SIGTERM raise KeyboardInterrupt, in the main thread.

  Ctrl-C does so by itself, unless somebody has replaced its handler: acme's
  loops leave Launchpad's behind.
  """
  if threading.current_thread() is not threading.main_thread():
    yield
    return

  def interrupt(signum: int, frame: Any) -> None:
    del frame
    raise KeyboardInterrupt(signal.Signals(signum).name)

  before = {
    signum: signal.signal(signum, interrupt)
    for signum in (signal.SIGINT, signal.SIGTERM)
  }
  try:
    yield
  finally:
    for signum, handler in before.items():
      signal.signal(signum, handler)
