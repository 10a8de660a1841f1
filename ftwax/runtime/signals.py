"""What a run does when it is asked to end."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def sigterm_as_interrupt() -> Iterator[None]:
  """Makes SIGTERM do what Ctrl-C does, if this is the main thread."""
  if threading.current_thread() is not threading.main_thread():
    yield
    return

  def interrupt(signum: int, frame: Any) -> None:
    del frame
    raise KeyboardInterrupt(signal.Signals(signum).name)

  before = signal.signal(signal.SIGTERM, interrupt)
  try:
    yield
  finally:
    signal.signal(signal.SIGTERM, before)
