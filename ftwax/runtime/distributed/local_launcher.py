"""Starts the processes of nodes on this machine."""

import os
import pathlib
from typing import Protocol

from ftwax.runtime.distributed import forkserver, node_commands, processes


class Process(Protocol):
  """Process of a node.

  Attributes:
    returncode: exit status, negative for a signal; None while it runs.
    is_waiting: whether it has not been started yet because it lacks a host.
  """

  returncode: int | None
  is_waiting: bool

  def poll(self) -> int | None:
    """Returns the exit status; None while it runs."""
    ...

  def wait(self, timeout_s: float) -> bool:
    """Waits for the process; returns whether it has ended in time."""
    ...

  def send(self, signum: int) -> None:
    """Signals the process and the processes that it has started."""
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
      command: command of the node.
      heart: file that the node touches as a heartbeat.
      output: file for the output of the process.
    """
    ...


class LocalLauncher:
  """Forks nodes from a process that has already imported their modules."""

  def __init__(self, server: forkserver.Forkserver):
    """Uses `server` to fork processes."""
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
