"""Defers interrupts until a run can save, but not indefinitely."""

import contextlib
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

# Ctrl-C, a request to terminate, and a closed terminal. By name, since other
# systems have fewer signals.
_REQUESTS = 'SIGINT', 'SIGTERM', 'SIGHUP'

# What clusters send before they end a job, and limits of CPU time every second.
NOTICES = 'SIGUSR1', 'SIGUSR2', 'SIGXCPU'

# Exit status of an interrupted run: 128 + SIGINT, as in shells.
INTERRUPTED = 130

# Seconds that an interrupt waits for an answer, and then for the end.
_PATIENCE_S = 4.0
_END_S = 60.0


@contextlib.contextmanager
def deferred_interrupts() -> Iterator[Callable[[], None]]:
  """Defers signals that end a run until the caller checks for them.

  These are Ctrl-C, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2 and SIGXCPU. Those that
  are ignored, such as SIGHUP under `nohup`, stay ignored, and SIGUSR1, SIGUSR2
  and SIGXCPU stay with a program that handles them itself.

  An exception raised at an arbitrary point may be lost: Python ignores those in
  callbacks of extensions and in finalizers. A second Ctrl-C, SIGTERM or SIGHUP
  is not deferred.

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
    if len(received) > 1 and received[-1] in _REQUESTS:
      raise KeyboardInterrupt(received[-1])

  def check() -> None:
    if received:
      raise KeyboardInterrupt(received[0])

  before = {signum: signal.signal(signum, handle) for signum in _find()}
  try:
    yield check
  finally:
    for signum, handler in before.items():
      # The next second of CPU time brings another one.
      is_limit = signum.name == 'SIGXCPU' and signum.name in received
      signal.signal(signum, signal.SIG_IGN if is_limit else handler)


def _find() -> list[signal.Signals]:
  """Returns the signals that end a run: neither ignored nor another's."""
  found = []
  for name in (*_REQUESTS, *NOTICES):
    if (signum := getattr(signal, name, None)) is None:
      continue
    handler = signal.getsignal(signum)
    is_free = name in _REQUESTS or handler is signal.SIG_DFL
    if handler is not signal.SIG_IGN and is_free:
      found.append(signum)
  return found


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
  ends_run = _find()
  answered, ended = threading.Event(), threading.Event()

  def watch() -> None:
    # Every signal with a handler in Python is written, also e.g. SIGCHLD.
    while (received := ours.recv(1)) and received[0] not in ends_run:
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
