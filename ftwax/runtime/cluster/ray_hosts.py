"""The hosts of a Ray cluster used by a run, and the gateways between them."""

import contextlib
import pathlib
import secrets
import signal
import socket
import sys
import threading
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import ray
from ray import exceptions
from ray.util import scheduling_strategies

from ftwax.runtime.cluster import archives, credentials, gateway, host

_CALL_S = 60.0
_STOP_S = 20.0


class ClusterError(ConnectionError):
  """The cluster cannot be reached or lacks resources for the run."""


class HostHandle:
  """The runner's handle of a host.

  Attributes:
    node_id: Ray's ID of the host.
    address: address of the host.
    actor: Ray actor of a `host.Host`.
    actor_name: unique name of the actor; empty until its first report.
    description: properties of the host.
    routes: routes last sent to its gateway.
    reports: pending request for reports of its nodes; None if there is none.
  """

  def __init__(self, node_id: str, address: str, actor: Any):
    """Wraps a host whose actor already exists."""
    self.node_id = node_id
    self.address = address
    self.actor = actor
    self.actor_name = ''
    self.description: host.Description | None = None
    self.routes: Any = None
    self.reports: Any = None

  def call(self, method: str, *args: Any) -> Any:
    """Calls a method of the host's actor and returns the result.

    Raises:
      ClusterError: if the method raises.
      RayError: if the host is lost.
    """
    return self.result(getattr(self.actor, method).remote(*args))

  def result(self, reference: Any) -> Any:
    """Returns the result of a call; see `call`."""
    try:
      return ray.get(reference, timeout=_CALL_S)
    except exceptions.RayTaskError as error:
      raise ClusterError(f'host {self.address}: {error.cause!r}') from error

  @property
  def shares_directory(self) -> bool:
    """Whether the host sees the runner's run directory."""
    return self.description is None or self.description.shares_run_directory


class Hosts:
  """The hosts of a cluster, with an actor on each host in use.

  A context manager.
  """

  def __init__(self, address: str, expose: bool, directory: pathlib.Path):
    """Prepares a connection.

    Args:
      address: address of the cluster, as accepted by `ray.init`.
      expose: whether hosts may connect without authentication.
      directory: run directory on this host.

    Raises:
      ValueError: if hosts cannot authenticate each other and `expose` is False.
    """
    self._cluster = address
    self._directory = directory
    self._contexts = credentials.read()
    if self._contexts is None and not expose:
      raise ValueError(
        f'{credentials.USE_TLS} must be 1, with certificates of the cluster'
        ' (docs/clusters.md), but is not: anyone who can reach this cluster can'
        ' run code on it; choose --expose if only you can reach it.'
      )
    self._token = secrets.token_bytes(gateway.TOKEN_BYTES)
    self._mark = f'.cluster-{secrets.token_hex(8)}'
    # Gateway and address of this host if it is outside the cluster.
    self._own: gateway.Gateway | None = None
    self._own_address: str | None = None
    self._stack = contextlib.ExitStack()
    self.alive: dict[str, str] = {}
    self.handles: dict[str, HostHandle] = {}

  def __enter__(self) -> 'Hosts':
    """Connects to the cluster.

    Raises:
      ClusterError: if there is no cluster.
    """
    with contextlib.ExitStack() as stack:
      self._connect(stack)
      mark = self._directory / self._mark
      mark.touch()
      stack.callback(mark.unlink, missing_ok=True)
      self.refresh()
      self._open_here(stack)
      self._stack = stack.pop_all()
    return self

  def __exit__(self, *exception: Any) -> None:
    del exception
    with contextlib.suppress(exceptions.RayError):
      stops = [handle.actor.stop.remote() for handle in self.handles.values()]
      ray.wait(stops, num_returns=len(stops), timeout=_STOP_S)
    for handle in self.handles.values():
      with contextlib.suppress(exceptions.RayError):
        ray.kill(handle.actor)
    self._stack.close()

  def _connect(self, stack: contextlib.ExitStack) -> None:
    if ray.is_initialized():
      return
    try:
      with _handlers_kept():
        ray.init(self._cluster, log_to_driver=False, logging_level='ERROR')
    except (ConnectionError, RuntimeError, ValueError) as error:
      raise ClusterError(
        f'cluster ({self._cluster}) must be the address of a Ray cluster, and'
        f' cannot be reached ({error}); start one with `ray start --head`, see'
        ' docs/clusters.md.'
      ) from error
    stack.callback(ray.shutdown)

  def _open_here(self, stack: contextlib.ExitStack) -> None:
    """Makes the actor of this host, or a gateway if it is outside the cluster.

    A client of a cluster (`ray://`) may run on one of its hosts or elsewhere.
    """
    if not ray.util.client.ray.is_connected():  # type: ignore[no-untyped-call]
      self.open([ray.get_runtime_context().get_node_id()])
      return
    own = _address_towards(next(iter(self.alive.values())))
    here = [node_id for node_id, at in self.alive.items() if at == own]
    if here:
      self.open(here[:1])
      return
    self._own_address = own
    self._own = stack.enter_context(
      gateway.Gateway(own, self._token, self._contexts)
    )

  def refresh(self) -> None:
    """Updates the list of live hosts."""
    self.alive = {
      node['NodeID']: node['NodeManagerAddress']
      for node in ray.nodes()
      if node['Alive']
    }

  def open(self, node_ids: Collection[str]) -> None:
    """Makes actors on hosts that have none.

    Raises:
      ClusterError: if a host has other versions than this one.
    """
    opened = {}
    for node_id in node_ids:
      if node_id not in self.handles and node_id in self.alive:
        address = self.alive[node_id]
        opened[node_id] = HostHandle(
          node_id, address, self._make_actor(node_id, address)
        )
    references = [
      handle.actor.describe.remote(str(self._directory), self._mark)
      for handle in opened.values()
    ]
    for handle, reference in zip(opened.values(), references, strict=True):
      self._take_description(handle, reference)
    self.handles |= opened

  def describe(self, handle: HostHandle) -> None:
    """Updates the description of a host after its actor has restarted."""
    handle.routes = None
    self._take_description(
      handle, handle.actor.describe.remote(str(self._directory), self._mark)
    )

  def _take_description(self, handle: HostHandle, reference: Any) -> None:
    description = host.Description(*handle.result(reference))
    theirs, ours = description.versions, host.versions()
    if theirs != ours:
      raise ClusterError(
        f'host {handle.address} must have the same versions as this one,'
        f' {ours}, but has {theirs}; install the same versions there.'
      )
    handle.description = description

  def _make_actor(self, node_id: str, address: str) -> Any:
    strategy = scheduling_strategies.NodeAffinitySchedulingStrategy(
      node_id, soft=False
    )
    actor: Any = ray.remote(host.Host)
    return actor.options(
      # Takes nothing from what nodes are placed by. `poll` waits, and other
      # calls must not wait for it.
      num_cpus=0,
      max_restarts=-1,
      max_concurrency=8,
      scheduling_strategy=strategy,
    ).remote(address, self._token, list(sys.path))

  def free_ports(self, candidates: Collection[int]) -> list[int]:
    """Returns the given ports that are free on all live hosts."""
    self.open(list(self.alive))
    free = set(candidates)
    references = [
      (handle, handle.actor.free_ports.remote(sorted(free)))
      for handle in self.handles.values()
    ]
    for handle, reference in references:
      free &= set(handle.result(reference))
    return sorted(free)

  def route(self, places: Mapping[int, str | None]) -> None:
    """Sends the locations of servers to all gateways.

    Args:
      places: Ray's ID of each server's host, by port; None for servers without
        a host.
    """
    addresses = sorted(
      {*self.alive.values(), *filter(None, [self._own_address])}
    )
    # Hosts that servers move to go first, to free the servers' ports.
    handles = sorted(
      self.handles.values(), key=lambda h: h.node_id not in places.values()
    )
    for handle in handles:
      own = [port for port, at in places.items() if at == handle.node_id]
      routes = (own, self._peers(places, handle.node_id), addresses)
      if routes != handle.routes:
        handle.call('route', *routes)
        handle.routes = routes
    if self._own is not None:
      # A port taken here belongs to a host of the cluster on this machine.
      with contextlib.suppress(OSError):
        self._own.route([], self._peers(places, None), addresses)

  def _peers(
    self, places: Mapping[int, str | None], own: str | None
  ) -> dict[int, gateway.Peer]:
    """Returns the gateways of servers on hosts other than `own`, by port."""
    peers = {}
    for port, node_id in places.items():
      handle = self.handles.get(node_id or '')
      if handle is not None and handle.description and node_id != own:
        peers[port] = gateway.Peer(*handle.description.peer)
    return peers

  def send_directory(self, handle: HostHandle) -> None:
    """Copies the run directory to a host that does not share it."""
    handle.call(
      'write_directory', str(self._directory), archives.pack(self._directory)
    )

  def fetch_directory(self, handle: HostHandle) -> None:
    """Copies the run directory from a host that does not share it."""
    if not handle.shares_directory:
      packed = handle.call('read_directory', str(self._directory))
      archives.unpack(packed, self._directory)

  def traffic(self) -> dict[str, dict[str, int]]:
    """Returns transferred bytes and refused connections, by host address."""
    found = {}
    for handle in self.handles.values():
      num_bytes, num_refused = handle.call('traffic')
      found[handle.address] = {'bytes': num_bytes, 'refused': num_refused}
    return found


@contextlib.contextmanager
def _handlers_kept() -> Iterator[None]:
  """Restores signal handlers that Ray replaces.

  Ray's handlers would end the process on SIGTERM before it has saved.
  """
  signums = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
  handlers = {signum: signal.getsignal(signum) for signum in signums}
  try:
    yield
  finally:
    if threading.current_thread() is threading.main_thread():
      for signum, handler in handlers.items():
        signal.signal(signum, handler)


def _address_towards(address: str) -> str:
  """Returns this host's address on the route to another host."""
  with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
    probe.connect((address, 9))  # Sends nothing.
    own: str = probe.getsockname()[0]
    return own
