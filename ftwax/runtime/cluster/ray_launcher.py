"""Starts the nodes of a run on the hosts of a Ray cluster.

Ray places nodes by what they take and accounts for it (a placement group); a
bundle whose host is lost is placed on another. On each host an actor of Ray's
(`host.Host`) starts the processes there. A thread here follows where bundles
are, starts what waits, and takes in how processes do.
"""

import contextlib
import os
import pathlib
import secrets
import signal
import socket
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any

import ray
from absl import logging
from ray import exceptions
from ray.util import scheduling_strategies

from ftwax.runtime.cluster import (
  archives,
  bundles,
  credentials,
  gateway,
  host,
  remote_process,
)
from ftwax.runtime.distributed import node_commands
from ftwax.runtime.distributed import settings as settings_lib

_PLACE_S = 60.0  # Until all nodes of a run that starts have a place.
_CALL_S = 60.0
_STOP_S = 20.0
_POLL_S = 0.2
_HOST_POLL_S = 0.3
_REFRESH_S = 1.0
_NUM_CANDIDATES = 64  # Ports that hosts are asked about at a time.


class ClusterError(ConnectionError):
  """The cluster cannot be reached, or has no room for the run."""


class _HostHandle:
  """A host, its actor and what it has to answer."""

  def __init__(self, node_id: str, address: str, actor: Any):
    self.node_id = node_id
    self.address = address
    self.actor = actor
    self.name = ''  # Of the actor; a new one has another.
    self.description: host.Description | None = None
    self.routes: Any = None  # As last sent.
    self.reports: Any = None  # Asked for.


class RayLauncher:
  """Starts the processes of nodes on a cluster. A context manager."""

  def __init__(self, settings: settings_lib.Settings, directory: pathlib.Path):
    """Connects to the cluster.

    Args:
      settings: of the run: address of the cluster, resources of nodes.
      directory: of the run, on this host.

    Raises:
      ClusterError: there is no cluster.
      ValueError: hosts could not know each other, and nobody accepted that.
    """
    self._settings = settings
    self._directory = directory
    self._contexts = credentials.read()
    if self._contexts is None and not settings.expose:
      raise ValueError(
        f'{credentials.USE_TLS} must be 1, with certificates of the cluster'
        ' (docs/clusters.md), and is not: whoever reaches this cluster can run'
        ' code on it; choose --expose where only you can reach it.'
      )
    self._token = secrets.token_bytes(gateway.TOKEN_BYTES)
    self._mark = f'.cluster-{secrets.token_hex(8)}'
    self._lock = threading.RLock()
    self._hosts: dict[str, _HostHandle] = {}
    self._nodes: dict[str, remote_process.RemoteProcess] = {}
    self._ports: dict[str, Sequence[int]] = {}
    self._bundles = bundles.Bundles([], {})
    self._group: Any = None
    self._places: dict[int, str] = {}
    self._alive: dict[str, str] = {}  # Addresses of hosts, by Ray's names.
    self._refreshed_at = 0.0
    self._error: Exception | None = None
    self._stopped = threading.Event()
    self._has_learned = False
    self._stack = contextlib.ExitStack()
    self._thread = threading.Thread(
      target=self._watch, name='watch_hosts', daemon=True
    )

  def __enter__(self) -> 'RayLauncher':
    with contextlib.ExitStack() as stack:
      self._connect(stack)
      (self._directory / self._mark).touch()
      stack.callback((self._directory / self._mark).unlink, missing_ok=True)
      self._stack = stack.pop_all()
    return self

  def __exit__(self, *exception: Any) -> None:
    del exception
    self._stopped.set()
    if self._thread.is_alive():
      self._thread.join(_STOP_S)
    stops = [handle.actor.stop.remote() for handle in self._hosts.values()]
    with contextlib.suppress(exceptions.RayError):
      ray.wait(stops, num_returns=len(stops), timeout=_STOP_S)
    for handle in self._hosts.values():
      with contextlib.suppress(exceptions.RayError):
        ray.kill(handle.actor)
    if self._group is not None:
      with contextlib.suppress(exceptions.RayError):
        ray.util.remove_placement_group(self._group)
    self._stack.close()

  def _connect(self, stack: contextlib.ExitStack) -> None:
    address = self._settings.cluster
    try:
      if not ray.is_initialized():
        ray.init(address, log_to_driver=False, logging_level='ERROR')
        stack.callback(ray.shutdown)
    except (ConnectionError, RuntimeError, ValueError) as error:
      raise ClusterError(
        f'cluster ({address}) must be the address of a Ray cluster that runs,'
        f' and cannot be reached ({error}); start one with'
        ' `ray start --head`, see docs/clusters.md.'
      ) from error
    self._refresh()
    if ray.util.client.ray.is_connected():
      # This host is none of the cluster's: its own gateway reaches those.
      own = stack.enter_context(
        gateway.Gateway(
          _address_towards(self._alive), self._token, self._contexts
        )
      )
      self._own_gateway: gateway.Gateway | None = own
      self._own_address = _address_towards(self._alive)
    else:
      self._own_gateway = None
      self._own_address = ''
      self._open_host(ray.get_runtime_context().get_node_id())

  def pick_port(self) -> int:
    """Returns a port that is free on all hosts of the cluster.

    Raises:
      ClusterError: there is none.
    """
    for node_id in list(self._alive):
      self._open_host(node_id)
    taken = {port for ports in self._ports.values() for port in ports}
    low, high = 20_000, 32_000  # Below those that systems give to clients.
    candidates = {
      low + secrets.randbelow(high - low) for _ in range(_NUM_CANDIDATES)
    } - taken
    for handle in self._hosts.values():
      candidates &= set(self._call(handle, 'free_ports', sorted(candidates)))
    if not candidates:
      raise ClusterError(
        f'a port from {low} to {high} must be free on all hosts of the cluster,'
        ' and none of many was; see what listens there.'
      )
    port = min(candidates)
    self._ports[f'picked {port}'] = [port]
    return port

  def place(self, commands: Sequence[node_commands.Command]) -> None:
    """Has Ray find room for the nodes of a run.

    Args:
      commands: of all nodes.

    Raises:
      ClusterError: the cluster has no room for them.
    """
    self._ports = {command.name: command.ports for command in commands}
    self._bundles = bundles.make(
      [command.name for command in commands], self._settings.resources
    )
    self._group = ray.util.placement_group(
      self._bundles.resources, strategy='PACK'
    )
    if not self._group.wait(_PLACE_S):
      raise ClusterError(
        f'the cluster must have room for {self._bundles.resources} within'
        f' {_PLACE_S:g} s, and has {ray.available_resources()} free of'
        f' {ray.cluster_resources()}; choose fewer actors, or other --resources.'
      )
    self._refresh()
    self._thread.start()

  def start(
    self,
    command: node_commands.Command,
    heart: pathlib.Path,
    output: pathlib.Path,
  ) -> 'remote_process.RemoteProcess':
    """Starts a node as soon as its host is there; see `Launcher.start`."""
    output.touch()
    process = remote_process.RemoteProcess(
      command, heart, output, self._send, self._check
    )
    with self._lock:
      self._nodes[command.name] = process
    return process

  def _check(self) -> None:
    """Raises what went wrong while nobody called."""
    if self._error is not None:
      raise self._error

  def _send(self, process: 'remote_process.RemoteProcess', signum: int) -> None:
    """Signals a process, wherever it is; see `RemoteProcess.send`."""
    with self._lock:
      handle = self._hosts.get(process.node_id)
      if handle is not None:
        handle.actor.send.remote(process.command.name, signum)

  def _watch(self) -> None:
    while not self._stopped.is_set():
      try:
        if time.monotonic() - self._refreshed_at >= _REFRESH_S:
          self._refresh()
        with self._lock:
          self._lose_hosts()
          self._start_waiting()
        self._poll_hosts()
      except exceptions.RayError as error:
        # For instance one that is just lost; the next round will tell.
        logging.warning('Ray: %s', error)
        self._stopped.wait(_REFRESH_S)
      except Exception as error:
        self._error = error
        return

  def _refresh(self) -> None:
    """Looks which hosts there are and where bundles are placed."""
    self._alive = {
      node['NodeID']: node['NodeManagerAddress']
      for node in ray.nodes()
      if node['Alive']
    }
    if self._group is not None:
      table = ray.util.placement_group_table(self._group)
      self._places = {
        index: node_id
        for index, node_id in table['bundles_to_node_id'].items()
        if node_id in self._alive
      }
    self._refreshed_at = time.monotonic()

  def _lose_hosts(self) -> None:
    """Takes the nodes of hosts that are gone for dead."""
    for node_id in [name for name in self._hosts if name not in self._alive]:
      handle = self._hosts.pop(node_id)
      self._lose_nodes(handle, 'is lost')

  def _lose_nodes(self, handle: _HostHandle, reason: str) -> None:
    logging.warning('host %s %s.', handle.address, reason)
    for process in self._nodes.values():
      if process.node_id == handle.node_id and process.returncode is None:
        process.end(-signal.SIGKILL, f'Its host {handle.address} {reason}.\n')

  def _open_host(self, node_id: str) -> _HostHandle:
    """Returns a host, whose actor is made if there is none.

    Raises:
      ClusterError: it has other versions than this one.
    """
    if node_id in self._hosts:
      return self._hosts[node_id]
    address = self._alive[node_id]
    actor = (
      ray.remote(host.Host)
      .options(  # type: ignore[attr-defined]
        num_cpus=0,
        max_restarts=-1,
        max_concurrency=8,
        scheduling_strategy=(
          scheduling_strategies.NodeAffinitySchedulingStrategy(
            node_id, soft=False
          )
        ),
      )
      .remote(address, self._token, list(sys.path))
    )
    handle = _HostHandle(node_id, address, actor)
    handle.description = self._call(
      handle, 'describe', str(self._directory), self._mark
    )
    theirs, ours = handle.description.versions, host.versions()
    if theirs != ours:
      raise ClusterError(
        f'host {address} must have the versions of this one, {ours}, and has'
        f' {theirs}; install the same ones there.'
      )
    self._hosts[node_id] = handle
    return handle

  def _call(self, handle: _HostHandle, method: str, *args: Any) -> Any:
    reference = getattr(handle.actor, method).remote(*args)
    try:
      return ray.get(reference, timeout=_CALL_S)
    except exceptions.RayTaskError as error:
      raise ClusterError(f'host {handle.address}: {error.cause}') from error

  def _start_waiting(self) -> None:
    """Starts nodes that have a place, once all hosts know where servers are."""
    waiting = []
    for name, process in self._nodes.items():
      if process.returncode is None and process.is_waiting:
        process.touch()
        node_id = self._places.get(self._bundles.of_node[name])
        if node_id is not None and process.started is None:
          waiting.append((process, self._open_host(node_id)))
    self._route()
    for process, handle in waiting:
      process.node_id = handle.node_id
      if process.command.name in ('learner', 'learner/0'):
        self._bring_directory(handle)
      process.started = handle.actor.start.remote(
        process.command.name,
        list(process.command.arguments),
        dict(process.command.environment),
        _read_files(process.command.arguments),
      )

  def _route(self) -> None:
    """Tells gateways where servers are, new hosts of servers first."""
    at = {
      port: self._places.get(self._bundles.of_node[name])
      for name, ports in self._ports.items()
      for port in ports
    }
    hosts = sorted({*self._alive.values(), self._own_address} - {''})
    # A host that servers move to must free their ports first.
    handles = sorted(
      self._hosts.values(), key=lambda h: h.node_id not in at.values()
    )
    for handle in handles:
      own = [port for port, node_id in at.items() if node_id == handle.node_id]
      routes = (own, self._peers(at, handle.node_id), hosts)
      if routes != handle.routes:
        self._call(handle, 'route', *routes)
        handle.routes = routes
    if self._own_gateway is not None:
      with contextlib.suppress(OSError):  # It is a host of the cluster as well.
        self._own_gateway.route([], self._peers(at, ''), hosts)

  def _peers(self, at: dict[int, Any], own: str) -> dict[int, gateway.Peer]:
    """Returns the gateways of servers on other hosts than `own`."""
    peers = {}
    for port, node_id in at.items():
      handle = self._hosts.get(node_id)
      if node_id != own and handle is not None and handle.description:
        peers[port] = handle.description.peer
    return peers

  def _bring_directory(self, handle: _HostHandle) -> None:
    """Gives the run directory to a learner's host that does not see it.

    Raises:
      ClusterError: the learner's checkpoints are on a host that is lost.
    """
    assert handle.description is not None
    if handle.description.shares_run_directory:
      return
    if self._has_learned:
      raise ClusterError(
        f'{self._directory} must be on storage that all hosts share for a'
        f' learner to go on on another host, and {handle.address} does not see'
        ' it: the checkpoints are on the host that was lost. Bring that back and'
        ' resume, or choose a --run_dir that hosts share.'
      )
    self._has_learned = True
    self._call(
      handle,
      'write_directory',
      str(self._directory),
      archives.pack(self._directory),
    )

  def _fetch_directory(self, handle: _HostHandle) -> None:
    """Copies the run directory from a host that does not share it."""
    description = handle.description
    if description is None or description.shares_run_directory:
      return
    packed = self._call(handle, 'read_directory', str(self._directory))
    archives.unpack(packed, self._directory)

  def _poll_hosts(self) -> None:
    """Takes in reports of processes, which hosts are asked for in turns."""
    with self._lock:
      self._take_started()
      for handle in self._hosts.values():
        names = [
          name
          for name, process in self._nodes.items()
          if process.is_running and process.node_id == handle.node_id
        ]
        if names and handle.reports is None:
          handle.reports = handle.actor.poll.remote(names, _HOST_POLL_S)
      asked = {
        handle.reports: handle
        for handle in self._hosts.values()
        if handle.reports is not None
      }
    if not asked:
      self._stopped.wait(_POLL_S)
      return
    ready, _ = ray.wait(list(asked), timeout=_POLL_S)
    for reference in ready:
      self._take_reports(asked[reference])

  def _take_started(self) -> None:
    """Notes which processes have been started."""
    for process in self._nodes.values():
      if not process.is_waiting or process.started is None:
        continue
      if process.returncode is not None:
        continue
      ready, _ = ray.wait([process.started], timeout=0)
      if not ready:
        continue
      try:
        ray.get(process.started)
        process.is_waiting = False
      except exceptions.RayTaskError as error:
        process.end(1, f'It could not be started: {error.cause}\n')
      except exceptions.RayError as error:
        process.end(-signal.SIGKILL, f'It could not be started: {error}\n')

  def _take_reports(self, handle: _HostHandle) -> None:
    reference, handle.reports = handle.reports, None
    try:
      name, reports = ray.get(reference)
    except exceptions.ActorUnavailableError:
      return  # It may come back; silence is judged by the supervisor.
    except exceptions.RayActorError as error:
      with self._lock:
        self._hosts.pop(handle.node_id, None)
        self._lose_nodes(handle, f'has lost its actor ({error})')
      return
    with self._lock:
      if handle.name not in ('', name):
        handle.routes = None
        handle.description = None
        self._hosts.pop(handle.node_id, None)
        self._lose_nodes(handle, 'has a new actor')
        return
      handle.name = name
      for process in self._nodes.values():
        report = reports.get(process.command.name)
        if report is None or process.node_id != handle.node_id:
          continue
        report = host.Report(*report)
        if report.returncode is not None and process.command.name in (
          'learner',
          'learner/0',
          'counter',
        ):
          self._fetch_directory(handle)
        process.take(report)


def _read_files(arguments: Sequence[str]) -> dict[str, bytes]:
  """Returns the files among the arguments of a process but its interpreter."""
  return {
    argument: pathlib.Path(argument).read_bytes()
    for argument in arguments[1:]
    if os.path.isabs(argument) and os.path.isfile(argument)
  }


def _address_towards(hosts: dict[str, str]) -> str:
  """Returns this host's address on the network of the cluster."""
  with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
    probe.connect((next(iter(hosts.values())), 9))  # Sends nothing.
    address: str = probe.getsockname()[0]
    return address
