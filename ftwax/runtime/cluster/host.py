"""Ray actor of each host: starts the host's nodes and forwards their ports.

Nodes are forked from a single process, as on one machine, so that they share
the memory of the code and start quickly.
"""

import contextlib
import importlib.metadata
import os
import pathlib
import platform
import signal
import socket
import sys
import threading
import time
import uuid
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from ftwax.runtime.cluster import archives, credentials, gateway
from ftwax.runtime.distributed import (
  forkserver,
  node_commands,
  processes,
  temporary,
)

# Packages whose versions must agree on all hosts.
_PACKAGES = ('ftwax', 'jax', 'dm-reverb', 'dm-launchpad', 'cloudpickle')

_POLL_S = 0.05
_OUTPUT_BYTES = 2**16  # Of a node's output, per report.


class Description(NamedTuple):
  """Properties of a host that the runner needs.

  Attributes:
    peer: gateway of the host.
    versions: versions of Python and of packages.
    shares_run_directory: whether the host sees the runner's run directory.
  """

  peer: gateway.Peer
  versions: dict[str, str]
  shares_run_directory: bool


class Report(NamedTuple):
  """Status of a node's process.

  Attributes:
    returncode: exit status, negative for a signal; None while it runs.
    silent_s: seconds since its last heartbeat or its start.
    output: output since the last report.
  """

  returncode: int | None
  silent_s: float
  output: bytes


def versions() -> dict[str, str]:
  """Returns the versions on this host that all hosts must share."""
  found = {'Python': platform.python_version().rpartition('.')[0]}
  for name in _PACKAGES:
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
      found[name] = importlib.metadata.version(name)
  return found


class Host:
  """Starts and watches the nodes of one host. Runs as a Ray actor."""

  def __init__(self, address: str, token: bytes, paths: Sequence[str]):
    """Opens the gateway.

    Args:
      address: address of this host.
      token: token of the run; see `gateway.Gateway`.
      paths: `sys.path` of the runner, whose modules this host may share.
    """
    sys.path += [path for path in paths if path not in sys.path]
    # A new name tells the runner that an earlier actor of this host died, and
    # its nodes with it.
    self._name = uuid.uuid4().hex
    self._address = address
    self._stack = contextlib.ExitStack()
    self._directory = self._stack.enter_context(temporary.directory())
    self._gateway = self._stack.enter_context(
      gateway.Gateway(address, token, credentials.read())
    )
    self._peer = self._gateway.serve()
    self._server: forkserver.Forkserver | None = None
    self._lock = threading.Lock()  # Guards the server.
    self._nodes: dict[str, _HostNode] = {}

  def describe(self, run_directory: str, mark: str) -> Description:
    """Returns the properties of this host.

    Args:
      run_directory: run directory of the runner.
      mark: name of a file that the runner made in it.
    """
    return Description(
      self._peer, versions(), (pathlib.Path(run_directory) / mark).exists()
    )

  def free_ports(self, ports: Collection[int]) -> list[int]:
    """Returns the given ports on which no process of this host listens."""
    free = []
    for port in ports:
      with contextlib.suppress(OSError), socket.create_server(('', port)):
        free.append(port)
    return free

  def route(
    self,
    own_ports: Collection[int],
    routes: Mapping[int, Sequence[Any]],
    hosts: Collection[str],
  ) -> None:
    """Sets the locations of servers; see `gateway.Gateway.route`."""
    peers = {port: gateway.Peer(*peer) for port, peer in routes.items()}
    self._gateway.route(own_ports, peers, hosts)

  def start(
    self,
    name: str,
    start: str,
    arguments: Sequence[str],
    environment: Mapping[str, str],
    files: Mapping[str, bytes],
  ) -> None:
    """Starts a node; kills the previous process of the same node.

    Args:
      name: name of the node.
      start: unique name of this start of the node.
      arguments: command line of its process.
      environment: environment variables added to those of this host.
      files: contents of the files named in `arguments`, by path.
    """
    # Copied, since other calls may start nodes meanwhile.
    for node in list(self._nodes.values()):
      if node.name == name:
        node.process.send(signal.SIGKILL)
    paths = {}
    for index, (path, content) in enumerate(files.items()):
      own = self._directory / f'{uuid.uuid4().hex}-{index}'
      own.write_bytes(content)
      paths[path] = str(own)
    stem = self._directory / uuid.uuid4().hex
    heart, output = stem.with_suffix('.alive'), stem.with_suffix('.txt')
    variables = {
      # First, so that the host's own setting takes precedence.
      processes.HOST_VARIABLE: self._address,
      **os.environ,
      **environment,
      processes.RUNNER_VARIABLE: str(os.getpid()),
      processes.HEART_VARIABLE: str(heart),
    }
    own_arguments = [paths.get(argument, argument) for argument in arguments]
    with self._lock:
      if self._server is None:
        self._server = self._stack.enter_context(
          forkserver.Forkserver(
            self._directory / 'forkserver.txt',
            node_commands.make_import_environment(self._directory),
          )
        )
      process = self._server.start(own_arguments, variables, output)
    self._nodes[start] = _HostNode(name, process, output, heart)

  def send(self, start: str, signum: int) -> None:
    """Signals a node and the processes that it has started."""
    if start in self._nodes:
      self._nodes[start].process.send(signum)

  def poll(
    self, starts: Collection[str], wait_s: float
  ) -> tuple[str, dict[str, Report]]:
    """Returns reports of nodes that this actor has started.

    Args:
      starts: names of the starts of nodes.
      wait_s: seconds to wait for a node to end.

    Returns:
      The unique name of this actor, and reports by start. Unknown starts are
      left out.
    """
    deadline = time.monotonic() + wait_s
    nodes = {key: self._nodes[key] for key in starts if key in self._nodes}
    while time.monotonic() < deadline:
      if any(node.process.poll() is not None for node in nodes.values()):
        break
      time.sleep(_POLL_S)
    return self._name, {key: node.report() for key, node in nodes.items()}

  def traffic(self) -> tuple[int, int]:
    """Returns the bytes from and to other hosts, and connections refused."""
    return self._gateway.num_bytes, self._gateway.num_refused

  def write_directory(self, path: str, archive: bytes) -> None:
    """Unpacks the result of `read_directory` below `path`."""
    directory = pathlib.Path(path)
    directory.mkdir(parents=True, exist_ok=True)
    archives.unpack(archive, directory)

  def read_directory(self, path: str) -> bytes:
    """Packs the files below a directory."""
    return archives.pack(pathlib.Path(path))

  def stop(self) -> None:
    """Kills running nodes and removes temporary files."""
    for node in list(self._nodes.values()):
      node.process.send(signal.SIGKILL)
      node.process.wait(10.0)
    self._stack.close()


class GpuHolder:
  """Holds the GPUs of a node. Runs as a Ray actor."""

  def ids(self) -> list[str]:
    """Returns the IDs of its GPUs on this host."""
    import ray

    found: list[str] = ray.get_runtime_context().get_accelerator_ids()['GPU']
    return found


class _HostNode:
  """A node's process and its files."""

  def __init__(
    self,
    name: str,
    process: forkserver.Process,
    output: pathlib.Path,
    heart: pathlib.Path,
  ):
    self.name = name
    self.process = process
    self._output = output
    self._heart = heart
    self._started_at = time.time()
    self._num_read = 0

  def report(self) -> Report:
    """Returns the node's status and its output since the last report."""
    returncode = self.process.poll()  # Read before the output: none is missed.
    seen_at = self._started_at
    with contextlib.suppress(OSError):
      seen_at = self._heart.stat().st_mtime
    with open(self._output, 'rb') as file:
      file.seek(self._num_read)
      output = file.read(_OUTPUT_BYTES)
    self._num_read += len(output)
    if output and len(output) == _OUTPUT_BYTES:
      returncode = None  # Hide the end until all output is read.
    return Report(returncode, time.time() - seen_at, output)
