"""The supervisor's view of a node's process on another host."""

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
  """A process on another host; see `local_launcher.Process`.

  Its output and heartbeats are copied to files on this host, where the
  supervisor expects them.

  Attributes:
    command: command of the node.
    start_name: unique name of this start of the node.
    returncode: exit status, negative for a signal; None while it runs or waits.
    is_waiting: whether it has not been started yet because it lacks a host.
    node_id: Ray's ID of its host; empty until it has one.
    started: Ray's reference to the pending start.
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
      command: command of the node.
      heart: file to touch on a heartbeat.
      output: file to which the output of the process is appended.
      send: signals the process on its host.
      check: raises the error that ended the launcher, if any.
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
    """Whether it has been started and has not ended."""
    return not self.is_waiting and self.returncode is None

  def poll(self) -> int | None:
    """Returns the exit status; None while it runs or waits."""
    self._check()
    return self.returncode

  def wait(self, timeout_s: float) -> bool:
    """Waits for the process; returns whether it has ended in time."""
    deadline = time.monotonic() + timeout_s
    while self.returncode is None and time.monotonic() < deadline:
      time.sleep(_POLL_S)
    return self.returncode is not None

  def send(self, signum: int) -> None:
    """Signals it and its children; a process that waits ends at once."""
    if self.is_waiting and self.returncode is None:
      if signum in (signal.SIGTERM, signal.SIGKILL):
        self.returncode = -signum
    if self.started is not None:
      self._send(self, signum)

  def touch(self) -> None:
    """Records a heartbeat."""
    self._heart.touch()

  def take(self, report: host.Report) -> None:
    """Applies a report of its host."""
    self._append(report.output)
    now = time.time()
    with contextlib.suppress(OSError):
      self._heart.touch()
      # By the clock of this host, which may differ from the other one's.
      os.utime(self._heart, (now, now - report.silent_s))
    # Set last: who sees the end may read the whole output.
    self.returncode = report.returncode

  def end(self, returncode: int, reason: str) -> None:
    """Marks it as ended and appends the reason to its output."""
    self._append(reason.encode())
    self.returncode = returncode

  def _append(self, output: bytes) -> None:
    if output:
      with open(self._output, 'ab') as file:
        file.write(output)
