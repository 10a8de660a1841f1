"""Starts a program's nodes as processes and replaces those that die.

Launchpad starts processes, but restarts none and cannot tell how one ended. So
the runner starts the commands that Launchpad makes of a program. A new process
takes over the address, the seeds and the work of the one before, since all of
these stand in the command.
"""

import contextlib
import json
import math
import os
import pathlib
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import launchpad as lp
from launchpad import context
from launchpad.nodes.python import local_multi_processing

from ftwax.runtime.distributed import limits, processes
from ftwax.runtime.distributed import settings as settings_lib

# Nodes that end in turns: those that others still talk to come later.
_STOP_ORDER = (('actor', 'evaluator', 'learner'), ('replay',), ('counter',))

# Who kills nodes that do not end in time is the supervisor.
_NO_NOTICE = '--lp_termination_notice_secs=-1'

_LINES_TOLD = 4

# Between two starts of a process in waiting.
_STANDBY_PERIOD_S = 2.0


class NodeFailedError(ChildProcessError):
  """A node that ended for good."""


class Command(NamedTuple):
  """How a node is started.

  Attributes:
    name: `label`, or `label/index` where there may be several.
    arguments: of the process.
    environment: variables added to those of this process.
  """

  name: str
  arguments: Sequence[str]
  environment: Mapping[str, str]


def make_environments(labels: Sequence[str]) -> dict[str, dict[str, str]]:
  """Returns the variables of each group of nodes: all but learners use a CPU.

  These are small and many, so each keeps to one thread.
  """
  one_thread = {
    'JAX_PLATFORMS': 'cpu',
    'CUDA_VISIBLE_DEVICES': '',
    'OMP_NUM_THREADS': '1',
    'OPENBLAS_NUM_THREADS': '1',
    'MKL_NUM_THREADS': '1',
    'TF_NUM_INTRAOP_THREADS': '1',
    'TF_NUM_INTEROP_THREADS': '1',
    'XLA_FLAGS': '--xla_cpu_multi_thread_eigen=false',
  }
  quiet = {'TF_CPP_MIN_LOG_LEVEL': '2'}
  return {
    label: quiet if label == 'learner' else {**quiet, **one_thread}
    for label in labels
  }


class Commands(NamedTuple):
  """All that it takes to start a program.

  Attributes:
    list: one for each node.
    addresses: of the first node with each label, if it has one.
  """

  list: list[Command]
  addresses: dict[str, str]


def make_commands(program: lp.Program) -> Commands:
  """Does what `launchpad.launch` does up to the start of processes."""
  variables = make_environments(list(program.groups))
  for label, group in program.groups.items():
    config = local_multi_processing.PythonProcess(env=variables[label])
    for node in group:
      node._initialize_context(
        context.LaunchType.LOCAL_MULTI_PROCESSING, launch_config=config
      )
  for label, group in program.groups.items():
    for node in group:
      for handle in node.input_handles:
        handle.connect(node, label)
  for node in program.get_all_nodes():
    node.bind_addresses()
  commands = []
  for label, group in program.groups.items():
    made = group[0].to_executables(group, label, group[0].launch_context)
    for index, command in enumerate(made):
      is_one = len(made) == 1 and label != 'actor'
      commands.append(
        Command(
          label if is_one else f'{label}/{index}',
          [*command.command_as_list, _NO_NOTICE],
          command.env_overrides,
        )
      )
  addresses = {
    label: group[0].addresses[0].resolve()
    for label, group in program.groups.items()
    if group[0].addresses
  }
  return Commands(commands, addresses)


def remove_files(commands: Sequence[Command]) -> None:
  """Removes the files by which Launchpad hands nodes to processes."""
  for command in commands:
    path = command.arguments[command.arguments.index('--data_file') + 1]
    shutil.rmtree(os.path.dirname(path), ignore_errors=True)


class _Node:
  """A node's process, and those before it."""

  def __init__(self, command: Command, output: pathlib.Path, limiter: Any):
    self.command = command
    self.label = command.name.partition('/')[0]
    self.output = output
    self.limiter = limiter
    self.process: subprocess.Popen | None = None
    self.started_at = 0.0

  def start(self, standby: bool = False) -> None:
    """Starts the process, or one in waiting."""
    self.started_at = time.monotonic()
    extra = {processes.STANDBY_VARIABLE: '1'} if standby else {}
    with open(self.output, 'ab') as output:
      # A session of its own, so that Ctrl-C reaches the runner alone.
      self.process = subprocess.Popen(
        self.command.arguments,
        env={
          **os.environ,
          **self.command.environment,
          processes.RUNNER_VARIABLE: str(os.getpid()),
          **extra,
        },
        stdin=subprocess.PIPE if standby else subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,
      )

  def take_from(self, standby: '_Node') -> bool:
    """Takes over a process in waiting, if it lives; it waits no longer."""
    process, standby.process = standby.process, None
    if process is None or process.stdin is None:
      return False
    lives = process.poll() is None
    index = int(self.command.name.rpartition('/')[2])
    place = {'index': index, 'output': str(self.output)}
    with contextlib.suppress(BrokenPipeError), process.stdin:
      if lives:
        process.stdin.write(json.dumps(place).encode() + b'\n')
    if lives:  # Or did just now: that is seen as any other death.
      self.process = process
    return lives

  def is_alive(self) -> bool:
    return self.process is not None and self.process.poll() is None

  def send(self, signum: int) -> None:
    """Signals the node and the processes that it started itself."""
    if self.process is None:
      return
    try:
      os.killpg(self.process.pid, signum)
    except ProcessLookupError:
      pass

  def wait(self, timeout_s: float) -> bool:
    """Returns whether the process has ended in time."""
    if self.process is None:
      return True
    try:
      self.process.wait(timeout_s)
    except subprocess.TimeoutExpired:
      return False
    return True

  def reason(self) -> str:
    """Returns how the process ended and the last lines that it wrote."""
    code = self.process.returncode if self.process else None
    how = f'exit status {code}'
    if code is not None and code < 0:
      how = f'killed by {signal.Signals(-code).name}'
    lines = self.output.read_text('utf-8', 'replace').splitlines()
    told = '\n  '.join(['', *lines[-_LINES_TOLD:]])
    return f'{how}; the end of {self.output}:{told}'


class Supervisor:
  """Keeps the nodes of a program running. A context manager."""

  def __init__(
    self,
    commands: Sequence[Command],
    output_dir: pathlib.Path,
    settings: settings_lib.Settings,
  ):
    """Starts nothing yet.

    Args:
      commands: one for each node.
      output_dir: where what nodes print goes, a file for each.
      settings: limits of restarts, and the time that nodes have to end.
    """
    output_dir.mkdir(parents=True, exist_ok=True)
    self._settings = settings

    def make(command, name):
      return _Node(
        command,
        output_dir / f'{name.replace("/", "-")}.txt',
        limits.RestartLimiter(settings.max_restarts, settings.restart_period_s),
      )

    self._nodes = {
      command.name: make(command, command.name) for command in commands
    }
    actors = [c for c in commands if c.name.startswith('actor/')]
    # Any actor's command will do: who it is it learns later.
    self._standbys = [
      make(actors[0], f'standby/{index}')
      for index in range(settings.num_standbys if actors else 0)
    ]
    self._standby_time = math.inf

  def __enter__(self) -> 'Supervisor':
    try:
      for node in self._nodes.values():
        node.start()
    except BaseException:
      self.kill()
      raise
    self._standby_time = time.monotonic() + self._settings.standby_after_s
    return self

  def __exit__(self, *exception: Any) -> None:
    del exception
    self.kill()

  @property
  def restarts(self) -> dict[str, int]:
    """Restarts of each node."""
    return {
      name: node.limiter.num_restarts for name, node in self._nodes.items()
    }

  @property
  def pids(self) -> dict[str, int]:
    """Process ids of the nodes that run."""
    return {
      name: node.process.pid
      for name, node in self._nodes.items()
      if node.process is not None and node.is_alive()
    }

  def poll(self) -> bool:
    """Replaces nodes that died.

    Returns:
      Whether all nodes have ended as they should.

    Raises:
      NodeFailedError: one ended for good, or died too often.
    """
    # The replay server first: who is connected to it dies of its death.
    nodes = sorted(self._nodes.values(), key=lambda n: n.label != 'replay')
    for node in nodes:
      if node.is_alive() or node.process is None:
        continue
      if node.process.returncode == 0:
        continue
      self._replace(node)
    self._keep_standbys()
    return not any(node.is_alive() for node in nodes)

  def stop(self) -> None:
    """Asks nodes to save and end, in turns, and kills those that do not."""
    deadline = time.monotonic() + self._settings.stop_timeout_s
    for node in self._standbys:
      node.send(signal.SIGKILL)
    for labels in _STOP_ORDER:
      nodes = [n for n in self._nodes.values() if n.label in labels]
      for node in nodes:
        node.send(signal.SIGTERM)
      for node in nodes:
        if node.label == 'learner':
          node.wait(max(deadline - time.monotonic(), 0.0))
      for node in nodes:
        node.wait(2.0)
        node.send(signal.SIGKILL)
        node.wait(10.0)

  def kill(self) -> None:
    """Kills what runs, and what nodes that ended left behind."""
    nodes = [*self._nodes.values(), *self._standbys]
    for node in nodes:
      node.send(signal.SIGKILL)
    for node in nodes:
      node.wait(10.0)
      if node.process is not None and node.process.stdin is not None:
        node.process.stdin.close()

  def _replace(self, node: _Node) -> None:
    reason = node.reason()
    if node.process is not None and node.process.returncode == processes.FATAL:
      raise NodeFailedError(f'{node.command.name} failed for good: {reason}')
    try:
      node.limiter.count(node.command.name, reason)
    except limits.RestartsExceededError as error:
      raise NodeFailedError(str(error)) from None
    node.send(signal.SIGKILL)  # What it may have started.
    if node.label == 'replay':
      self._restart_clients()
    if node.label == 'actor':
      # The one that has waited longest is the likeliest to be ready.
      for standby in sorted(self._standbys, key=lambda n: n.started_at):
        if node.take_from(standby):
          return
    node.start()

  def _keep_standbys(self) -> None:
    """Starts a process in waiting, if it is time to and one is missing."""
    now = time.monotonic()
    for standby in self._standbys:
      if now >= self._standby_time and not standby.is_alive():
        standby.start(standby=True)
        self._standby_time = now + _STANDBY_PERIOD_S

  def _restart_clients(self) -> None:
    """Starts anew who is connected to the replay server; the learner saves.

    Their streams end with the server, and a sampler whose server is gone does
    not return.
    """
    clients = [
      n
      for n in self._nodes.values()
      if n.label in ('actor', 'learner') and n.is_alive()
    ]
    for node in clients:
      node.send(signal.SIGTERM if node.label == 'learner' else signal.SIGKILL)
    for node in clients:
      if not node.wait(self._settings.stop_timeout_s):
        node.send(signal.SIGKILL)
        node.wait(10.0)
      node.start()
