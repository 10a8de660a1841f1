"""Starts a program's nodes as processes and replaces nodes that die.

Launchpad starts processes, but does not restart them and cannot tell how one
ended. The runner therefore starts the commands of `node_commands` itself. A new
process takes over the address, the seeds and the work of its predecessor, since
the command contains them all.
"""

import pathlib
import signal
import time
from collections.abc import Mapping, Sequence
from typing import Any

from ftwax.runtime import limits
from ftwax.runtime.distributed import (
  local_launcher,
  node_commands,
  processes,
)
from ftwax.runtime.distributed import settings as settings_lib

# Nodes end group by group: those that others still call end later.
_STOP_ORDER = (
  ('actor', 'evaluator', 'inference', 'learner'),
  ('replay', 'keeper'),
  ('counter',),
)

# Labels of nodes that save before they end.
_SAVING = ('learner', 'replay', 'keeper')

_LINES_TOLD = 4


class NodeFailedError(ChildProcessError):
  """A node failed and cannot be restarted."""


class _Node:
  """The process of a node, and its history."""

  def __init__(
    self,
    command: node_commands.Command,
    output: pathlib.Path,
    limiter: limits.RestartLimiter,
  ):
    self.command = command
    self.label = command.name.partition('/')[0]
    self.output = output
    self.limiter = limiter  # Shared by all actors.
    self.process: local_launcher.Process | None = None
    self.num_restarts = 0
    self._heart = output.with_suffix('.alive')
    self._started_at = 0.0

  def start(self, launcher: local_launcher.Launcher) -> None:
    """Starts the process."""
    self._heart.unlink(missing_ok=True)
    self._started_at = time.time()
    self.process = launcher.start(self.command, self._heart, self.output)

  @property
  def is_waiting(self) -> bool:
    """Whether its process has not been started yet because it lacks a host."""
    return self.process is not None and self.process.is_waiting

  def is_alive(self) -> bool:
    return self.process is not None and self.process.poll() is None

  def send(self, signum: int) -> None:
    """Signals the node and the processes that it has started."""
    if self.process is not None:
      self.process.send(signum)

  def wait(self, timeout_s: float) -> bool:
    """Waits for the process; returns whether it has ended in time."""
    return self.process is None or self.process.wait(timeout_s)

  def silent_s(self) -> float:
    """Returns the seconds since its last heartbeat or its start."""
    try:
      # Wall-clock time, unlike elsewhere, to be comparable to that of files.
      seen_at = self._heart.stat().st_mtime
    except OSError:
      seen_at = self._started_at
    return time.time() - seen_at

  def reason(self) -> tuple[str, str]:
    """Returns how the process ended, and the error that it raised itself.

    Being killed is not an error of its own. For a fatal failure, the last line
    of output is the complete message.
    """
    code = self.process.returncode if self.process else None
    lines = self.output.read_text('utf-8', 'replace').splitlines()
    last = lines[-1] if lines else ''
    if code == processes.FATAL:
      return f'{last or "no output"} (see {self.output})', last
    how, error = f'exit status {code}', last
    if code is not None and code < 0:
      how, error = f'killed by {signal.Signals(-code).name}', ''
    tail = '\n  '.join(['', *lines[-_LINES_TOLD:]])
    return f'{how}; the end of {self.output}:{tail}', error


class Supervisor:
  """Keeps the nodes of a program running. A context manager."""

  def __init__(
    self,
    commands: Sequence[node_commands.Command],
    output_dir: pathlib.Path,
    settings: settings_lib.Settings,
    launcher: local_launcher.Launcher,
    dependents: Mapping[str, Sequence[str]],
  ):
    """Stores the arguments; entering the context starts the nodes.

    Args:
      commands: one command for each node.
      output_dir: directory for the output of nodes, one file each.
      settings: restart limits, and the time that nodes have to end.
      launcher: starts processes.
      dependents: names of nodes to restart together with a node that died, by
        its name.
    """
    self._settings = settings
    self._launcher = launcher
    self._dependents = dependents
    labels = [command.name.partition('/')[0] for command in commands]
    limiters = {
      label: limits.RestartLimiter(
        settings.max_restarts * labels.count(label), settings.restart_period_s
      )
      for label in set(labels)
    }
    self._nodes = {
      command.name: _Node(
        command,
        output_dir / f'{command.name.replace("/", "-")}.txt',
        limiters[label],
      )
      for command, label in zip(commands, labels, strict=True)
    }
    self._polled_at = time.time()
    self._patient_until = 0.0

  def __enter__(self) -> 'Supervisor':
    try:
      for node in self._nodes.values():
        node.start(self._launcher)
    except BaseException:
      self.kill()
      raise
    return self

  def __exit__(self, *exception: Any) -> None:
    del exception
    self.kill()

  @property
  def restarts(self) -> dict[str, int]:
    """Number of restarts of each node."""
    return {name: node.num_restarts for name, node in self._nodes.items()}

  @property
  def waiting(self) -> list[str]:
    """Names of the nodes that wait for a host."""
    return [name for name, node in self._nodes.items() if node.is_waiting]

  def poll(self) -> bool:
    """Replaces nodes that died.

    Returns:
      Whether all nodes have ended normally.

    Raises:
      NodeFailedError: if a node failed fatally or died too often.
    """
    self._kill_silent()
    # Replay servers first, since their death takes connected nodes down.
    nodes = sorted(self._nodes.values(), key=lambda n: n.label != 'replay')
    for node in nodes:
      if node.is_alive() or node.process is None:
        continue
      # A node that has finished its work is not replaced.
      if node.process.returncode == 0:
        continue
      self._replace(node)
    # The run may end without actors that still wait for a host.
    return not any(
      node.is_alive()
      for node in nodes
      if not (node.label == 'actor' and node.is_waiting)
    )

  def stop(self) -> None:
    """Asks nodes to save and end, group by group; kills those that do not."""
    deadline = time.monotonic() + self._settings.stop_timeout_s
    for labels in _STOP_ORDER:
      nodes = [n for n in self._nodes.values() if n.label in labels]
      for node in nodes:
        node.send(signal.SIGTERM)
      for node in nodes:
        if node.label in _SAVING:
          node.wait(max(deadline - time.monotonic(), 0.0))
      for node in nodes:
        node.wait(2.0)
        node.send(signal.SIGKILL)
        node.wait(10.0)

  def kill(self) -> None:
    """Kills all nodes, and any processes that ended nodes left behind."""
    for node in self._nodes.values():
      node.send(signal.SIGKILL)
    for node in self._nodes.values():
      node.wait(10.0)

  def _kill_silent(self) -> None:
    """Kills nodes whose heartbeat is overdue."""
    # If this process was suspended, as on a sleeping machine, so were the
    # nodes: give them time for a heartbeat.
    before, self._polled_at = self._polled_at, time.time()
    timeout_s = self._settings.heartbeat_timeout_s
    if self._polled_at - before > timeout_s / 4:
      self._patient_until = self._polled_at + timeout_s
    if self._polled_at < self._patient_until:
      return
    for node in self._nodes.values():
      if node.is_alive() and node.silent_s() > timeout_s:
        with open(node.output, 'a', encoding='utf-8') as output:
          output.write(
            f'{node.command.name} gave no sign of life for {timeout_s:g} s and'
            ' was killed.\n'
          )
        node.send(signal.SIGKILL)
        node.wait(10.0)

  def _replace(self, node: _Node) -> None:
    _check_not_fatal(node)
    reason, error = node.reason()
    try:
      node.limiter.count(node.command.name, reason, error)
    except limits.RestartsExceededError as error:
      raise NodeFailedError(str(error)) from None
    node.num_restarts += 1
    node.send(signal.SIGKILL)  # Also kills processes it started.
    self._restart_dependents(node)
    node.start(self._launcher)

  def _restart_dependents(self, died: _Node) -> None:
    """Restarts the nodes that depend on a node that died; learners save.

    The other learners of a learner that died restart even if they have ended.
    """
    shares_fate = died.label == 'learner'
    names = self._dependents.get(died.command.name, ())
    nodes = [self._nodes[name] for name in names]
    nodes = [node for node in nodes if shares_fate or node.is_alive()]
    for node in nodes:
      node.send(signal.SIGTERM if node.label == 'learner' else signal.SIGKILL)
    for node in nodes:
      if not node.wait(self._settings.stop_timeout_s):
        node.send(signal.SIGKILL)
        node.wait(10.0)
    for node in nodes:
      if shares_fate:  # Its error may have killed the other.
        _check_not_fatal(node)
      node.start(self._launcher)


def _check_not_fatal(node: _Node) -> None:
  if node.process is not None and node.process.returncode == processes.FATAL:
    reason, _ = node.reason()
    raise NodeFailedError(f'{node.command.name} failed for good: {reason}')
