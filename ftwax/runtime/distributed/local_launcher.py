"""Starts the processes of nodes, on this machine."""

import os
import pathlib
from typing import Protocol

from ftwax.runtime.distributed import forkserver, node_commands, processes


class Process(Protocol):
  """A node's process.

  Attributes:
    returncode: exit status, negative for a signal; None if it runs.
    is_waiting: whether it has not been started yet, for want of a host.
  """

  returncode: int | None
  is_waiting: bool

  def poll(self) -> int | None:
    """Returns the exit status; None if it runs."""
    ...

  def wait(self, timeout_s: float) -> bool:
    """Returns whether it has ended in time."""
    ...

  def send(self, signum: int) -> None:
    """Signals it and the processes that it started itself."""
    ...


class Launcher(Protocol):
  """Starts the processes of nodes."""

  def start(
    self,
    command: node_commands.Command,
    heart: pathlib.Path,
    output: pathlib.Path,
  ) -> Process:
    """Starts a process.

    Args:
      command: of the node.
      heart: the file that is touched as a sign of life.
      output: the file to which the process writes.
    """
    ...


class LocalLauncher:
  """Forks nodes from a process that has imported what they need."""

  def __init__(self, server: forkserver.Forkserver):
    """Takes that process."""
    self._server = server

  def start(
    self,
    command: node_commands.Command,
    heart: pathlib.Path,
    output: pathlib.Path,
  ) -> Process:
    """Starts a process; see `Launcher.start`."""
    environment = {
      **os.environ,
      **command.environment,
      processes.RUNNER_VARIABLE: str(os.getpid()),
      processes.HEART_VARIABLE: str(heart.absolute()),
    }
    return self._server.start(command.arguments, environment, output)
