"""Interrupts that wait until a run can save."""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

# Ctrl-C, a request to end, and the end of the terminal.
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def deferred_interrupts() -> Iterator[Callable[[], None]]:
  """Holds Ctrl-C, SIGTERM and SIGHUP back until the caller asks for them.

  One that is ignored, as SIGHUP is below `nohup`, stays so.

  An exception raised wherever a signal happens to come may be lost: Python
  ignores those in callbacks of extensions and in finalizers. A second signal
  does not wait.

  Yields:
    A function that raises KeyboardInterrupt if a signal has come. It never
    does outside the main thread, where Python delivers no signals.
  """
  if threading.current_thread() is not threading.main_thread():
    yield lambda: None
    return
  received: list[str] = []

  def handle(signum: int, frame: Any) -> None:
    del frame
    received.append(signal.Signals(signum).name)
    if len(received) > 1:
      raise KeyboardInterrupt(received[-1])

  def check() -> None:
    if received:
      raise KeyboardInterrupt(received[0])

  before = {
    signum: signal.signal(signum, handle)
    for signum in _SIGNALS
    if signal.getsignal(signum) is not signal.SIG_IGN
  }
  try:
    yield check
  finally:
    for signum, handler in before.items():
      signal.signal(signum, handler)
