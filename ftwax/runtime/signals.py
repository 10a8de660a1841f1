"""Defers interrupts until a run can save, but not indefinitely."""

import contextlib
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

# Ctrl-C, a request to terminate, and a closed terminal.
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

# Exit status of an interrupted run: 128 + SIGINT, as in shells.
INTERRUPTED = 130

# Seconds that an interrupt waits for an answer, and then for the end.
_PATIENCE_S = 4.0
_END_S = 60.0


@contextlib.contextmanager
def deferred_interrupts() -> Iterator[Callable[[], None]]:
  """Defers Ctrl-C, SIGTERM and SIGHUP until the caller checks for them.

  Signals that are ignored, such as SIGHUP under `nohup`, stay ignored.

  An exception raised at an arbitrary point may be lost: Python ignores those in
  callbacks of extensions and in finalizers. A second signal is not deferred.

  Yields:
    A function that raises KeyboardInterrupt if a signal has arrived. Outside
    the main thread, where Python delivers no signals, it never does.
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
  patience_s: float = _PATIENCE_S,
) -> Iterator[Callable[[], None]]:
  """Exits the process if a signal arrives and the body does not end in time.

  Python's signal handlers wait for the main thread, which may be in a hanging
  simulator or in a compilation by XLA that takes minutes. A thread therefore
  reads the signal from a pipe, to which the interpreter writes immediately.
  Interactive sessions, such as notebooks, are not affected.

  A context manager.

  Args:
    save: saves as much as possible; called in the thread.
    patience_s: seconds that the body has to end after a signal.

  Yields:
    A function to call once the body has seen the signal; it extends the
    deadline by a minute.
  """
  is_main = threading.current_thread() is threading.main_thread()
  if not is_main or hasattr(sys, 'ps1'):
    yield lambda: None
    return
  ours, theirs = socket.socketpair()
  theirs.setblocking(False)
  answered, ended = threading.Event(), threading.Event()

  def watch() -> None:
    # Every signal with a handler in Python is written, also e.g. SIGCHLD.
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
        sys.stdout.write('\x1b[?25h')  # Show the cursor again.
      sys.stdout.flush()
      sys.stderr.flush()
      os._exit(INTERRUPTED)

  thread = threading.Thread(target=watch, name='signals', daemon=True)
  thread.start()
  before = signal.set_wakeup_fd(theirs.fileno(), warn_on_full_buffer=False)
  try:
    yield answered.set
  finally:
    ended.set()
    signal.set_wakeup_fd(before)
    # Ends `recv` in the thread. If it is saving already, it exits the process
    # while this one waits.
    theirs.close()
    thread.join()
    ours.close()
