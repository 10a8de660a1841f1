"""A node's process on another host, as the supervisor sees it."""

import contextlib
import os
import pathlib
import signal
import time
import uuid
from collections.abc import Callable
from typing import Any

from ftwax.runtime.cluster import host
from ftwax.runtime.distributed import node_commands

_POLL_S = 0.05


class RemoteProcess:
  """A process; see `supervision.Process`.

  What it writes and its signs of life are copied to files of this host, where
  the supervisor looks for them.

  Attributes:
    command: of the node.
    start_name: of this start of the node.
    returncode: exit status, negative for a signal; None if it runs or waits.
    is_waiting: whether it has not been started yet, since it has no host.
    node_id: Ray's name of its host; empty before it has one.
    started: the start that it waits for.
  """

  def __init__(
    self,
    command: node_commands.Command,
    heart: pathlib.Path,
    output: pathlib.Path,
    send: Callable[['RemoteProcess', int], None],
    check: Callable[[], None],
  ):
    """Makes a process that waits for its host.

    Args:
      command: of the node.
      heart: touched at a sign of life.
      output: to which what it writes is appended.
      send: signals the process at its host.
      check: raises what ended the launcher.
    """
    self.command = command
    self.start_name = uuid.uuid4().hex
    self._heart = heart
    self._output = output
    self._send = send
    self._check = check
    self.returncode: int | None = None
    self.is_waiting = True
    self.node_id = ''
    self.started: Any = None

  @property
  def is_running(self) -> bool:
    """Whether it was started and has not ended."""
    return not self.is_waiting and self.returncode is None

  def poll(self) -> int | None:
    """Returns the exit status; None if it runs or waits."""
    self._check()
    return self.returncode

  def wait(self, timeout_s: float) -> bool:
    """Returns whether it has ended in time."""
    deadline = time.monotonic() + timeout_s
    while self.returncode is None and time.monotonic() < deadline:
      time.sleep(_POLL_S)
    return self.returncode is not None

  def send(self, signum: int) -> None:
    """Signals it and what it started; one that waits ends at once."""
    if self.is_waiting and self.returncode is None:
      if signum in (signal.SIGTERM, signal.SIGKILL):
        self.returncode = -signum
    if self.started is not None:
      self._send(self, signum)

  def touch(self) -> None:
    """Takes a sign of life."""
    self._heart.touch()

  def take(self, report: host.Report) -> None:
    """Takes in what its host says."""
    self._append(report.output)
    now = time.time()
    with contextlib.suppress(OSError):
      self._heart.touch()
      os.utime(self._heart, (now, now - report.silent_s))
    self.returncode = report.returncode

  def end(self, returncode: int, reason: str) -> None:
    """Takes it for ended, for a reason that its output tells."""
    self._append(reason.encode())
    self.returncode = returncode

  def _append(self, output: bytes) -> None:
    if output:
      with open(self._output, 'ab') as file:
        file.write(output)
