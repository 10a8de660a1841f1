"""What Ray runs on each host: starts the nodes there and forwards their ports.

Nodes are forked from one process, as on a single machine, so that they share
the memory of the code and start at once.
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

# What hosts must have the same versions of.
_PACKAGES = ('ftwax', 'jax', 'dm-reverb', 'dm-launchpad', 'cloudpickle')

_POLL_S = 0.05
_OUTPUT_BYTES = 2**16  # Of a node's output in one report.


class Description(NamedTuple):
  """A host, as the runner must know it.

  Attributes:
    peer: its gateway.
    versions: of Python and of packages.
    shares_run_directory: whether it sees the runner's run directory.
  """

  peer: gateway.Peer
  versions: dict[str, str]
  shares_run_directory: bool


class Report(NamedTuple):
  """A node's process.

  Attributes:
    returncode: exit status, negative for a signal; None if it runs.
    silent_s: seconds since its last sign of life, or its start.
    output: what it wrote since the last report.
  """

  returncode: int | None
  silent_s: float
  output: bytes


def versions() -> dict[str, str]:
  """Returns the versions here of what hosts must have in common."""
  found = {'Python': platform.python_version().rpartition('.')[0]}
  for name in _PACKAGES:
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
      found[name] = importlib.metadata.version(name)
  return found


class Host:
  """Starts and watches the nodes of one host. An actor of Ray's."""

  def __init__(self, address: str, token: bytes, paths: Sequence[str]):
    """Opens the gateway.

    Args:
      address: of this host.
      token: of the run; see `gateway.Gateway`.
      paths: of the runner's modules, which this host may share.
    """
    sys.path += [path for path in paths if path not in sys.path]
    # Nodes of an earlier actor of this host ended with it.
    self._name = uuid.uuid4().hex
    self._address = address
    self._stack = contextlib.ExitStack()
    self._directory = self._stack.enter_context(temporary.directory())
    self._gateway = self._stack.enter_context(
      gateway.Gateway(address, token, credentials.read())
    )
    self._peer = self._gateway.serve()
    self._server: forkserver.Forkserver | None = None
    self._lock = threading.Lock()  # Of the server, made for the first node.
    self._nodes: dict[str, _HostNode] = {}

  def describe(self, run_directory: str, mark: str) -> Description:
    """Returns what the runner must know of this host.

    Args:
      run_directory: of the runner.
      mark: name of a file that the runner made in it.
    """
    return Description(
      self._peer, versions(), (pathlib.Path(run_directory) / mark).exists()
    )

  def free_ports(self, ports: Collection[int]) -> list[int]:
    """Returns those of the ports that no process of this host listens on."""
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
    """Says where servers are; see `gateway.Gateway.route`."""
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
    """Starts a node; one of this name that still runs here is killed.

    Args:
      name: of the node.
      start: name of this start of it.
      arguments: of its process.
      environment: variables beside those of this host.
      files: contents of files that stand in `arguments`, by their paths there.
    """
    for node in self._nodes.values():
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
            node_commands.IMPORT_ENVIRONMENT,
          )
        )
      process = self._server.start(own_arguments, variables, output)
    self._nodes[start] = _HostNode(name, process, output, heart)

  def send(self, start: str, signum: int) -> None:
    """Signals a node and the processes that it started itself."""
    if start in self._nodes:
      self._nodes[start].process.send(signum)

  def poll(
    self, starts: Collection[str], wait_s: float
  ) -> tuple[str, dict[str, Report]]:
    """Returns reports of nodes, those apart that this actor did not start.

    Args:
      starts: of nodes.
      wait_s: that it waits for a node to end.

    Returns:
      The name of this actor, which a new one does not share, and reports.
    """
    deadline = time.monotonic() + wait_s
    nodes = {key: self._nodes[key] for key in starts if key in self._nodes}
    while time.monotonic() < deadline:
      if any(node.process.poll() is not None for node in nodes.values()):
        break
      time.sleep(_POLL_S)
    return self._name, {key: node.report() for key, node in nodes.items()}

  def traffic(self) -> tuple[int, int]:
    """Returns bytes from and to other hosts, and connections refused."""
    return self._gateway.num_bytes, self._gateway.num_refused

  def write_directory(self, path: str, archive: bytes) -> None:
    """Unpacks what `read_directory` returned, below `path`."""
    directory = pathlib.Path(path)
    directory.mkdir(parents=True, exist_ok=True)
    archives.unpack(archive, directory)

  def read_directory(self, path: str) -> bytes:
    """Returns the files below a directory, packed."""
    return archives.pack(pathlib.Path(path))

  def stop(self) -> None:
    """Kills what still runs and removes what is left."""
    for node in self._nodes.values():
      node.process.send(signal.SIGKILL)
      node.process.wait(10.0)
    self._stack.close()


class GpuHolder:
  """Holds the GPUs of a node. An actor of Ray's."""

  def ids(self) -> list[str]:
    """Returns the numbers of the GPUs on this host."""
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
    """Returns how it is, with what it wrote since the last report."""
    returncode = self.process.poll()  # Before the output, to have all of it.
    seen_at = self._started_at
    with contextlib.suppress(OSError):
      seen_at = self._heart.stat().st_mtime
    with open(self._output, 'rb') as file:
      file.seek(self._num_read)
      output = file.read(_OUTPUT_BYTES)
    self._num_read += len(output)
    if output and len(output) == _OUTPUT_BYTES:
      returncode = None  # Until all of it is read.
    return Report(returncode, time.time() - seen_at, output)
