"""Interrupts that wait until a run can save, but not for ever."""

import contextlib
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

# Ctrl-C, a request to end, and the end of the terminal.
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

# Exit status of a run that was interrupted: 128 + SIGINT, as shells have it.
INTERRUPTED = 130

# Seconds that an interrupt waits for an answer, and then for the end.
_PATIENCE_S = 4.0
_END_S = 60.0


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


@contextlib.contextmanager
def answered_in_time(
  save: Callable[[], object],
  status: int = INTERRUPTED,
  patience_s: float = _PATIENCE_S,
) -> Iterator[Callable[[], None]]:
  """Ends the process if a signal comes and the body does not end in time.

  Python's handlers wait for the main thread, which may be in a simulator that
  hangs or in a function that XLA compiles for minutes. A thread reads of the
  signal from a pipe, into which the interpreter writes at once. Sessions at a
  prompt, as of a notebook, are left alone.

  A context manager.

  Args:
    save: saves what can be saved; called in the thread.
    status: of the process's exit.
    patience_s: seconds that the body has to end once a signal has come.

  Yields:
    A function to be called when the body has seen the signal, which gives it a
    minute more.
  """
  is_main = threading.current_thread() is threading.main_thread()
  if not is_main or hasattr(sys, 'ps1'):
    yield lambda: None
    return
  ours, theirs = socket.socketpair()
  theirs.setblocking(False)
  answered, ended = threading.Event(), threading.Event()

  def watch() -> None:
    while (received := ours.recv(1)) and received[0] not in _SIGNALS:
      pass
    if not received or ended.wait(patience_s):
      return
    if answered.is_set() and ended.wait(_END_S):
      return
    try:
      save()
    finally:
      if sys.stdout.isatty():
        sys.stdout.write('\x1b[?25h')  # The cursor, which progress bars hide.
      sys.stdout.flush()
      sys.stderr.flush()
      os._exit(status)

  thread = threading.Thread(target=watch, name='signals', daemon=True)
  thread.start()
  before = signal.set_wakeup_fd(theirs.fileno(), warn_on_full_buffer=False)
  try:
    yield answered.set
  finally:
    ended.set()
    signal.set_wakeup_fd(before)
    theirs.close()
    thread.join()
    ours.close()
