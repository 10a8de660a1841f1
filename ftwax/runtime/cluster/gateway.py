"""Forwards loopback ports between the hosts of a run.

Servers of nodes (Courier, Reverb) do not authenticate clients, so they are
reachable over loopback only. A gateway on each host listens on the loopback
ports of servers on other hosts and forwards connections to the gateway of the
other host, which connects to the server. A node thus has the same address,
`localhost` and its port, wherever it and its clients run.

Gateways connect by TLS, in which both sides present a certificate of the
cluster, and then send the run's token. Hosts outside the cluster are refused
before any of that.
"""

import asyncio
import contextlib
import hmac
import socket
import ssl
import struct
import threading
from collections.abc import (
  Callable,
  Collection,
  Coroutine,
  Iterator,
  Mapping,
)
from typing import Any, NamedTuple, TypeVar

from absl import logging

from ftwax.runtime.cluster import credentials

TOKEN_BYTES = 32

_HEADER = struct.Struct(f'!{TOKEN_BYTES}sH')
_CHUNK_BYTES = 2**18
_CONNECT_S = 10.0  # For each of connect, handshake and header.
_CALL_S = 30.0
_ACCEPT_AGAIN_S = 0.1
_CLOSE_S = 0.05

# A link may be down for half a minute without losing connections.
_OPTIONS = {
  socket.TCP_NODELAY: 1,
  socket.TCP_KEEPIDLE: 15,
  socket.TCP_KEEPINTVL: 10,
  socket.TCP_KEEPCNT: 4,
  socket.TCP_USER_TIMEOUT: 60_000,  # Milliseconds.
}

# Maximum number of connections that have not shown a token yet.
_MAX_UNKNOWN = 64
_BACKLOG = 1024

# Number of refused connections per line of the log.
_REFUSED_PER_LINE = 1000

_T = TypeVar('_T')


class Peer(NamedTuple):
  """The gateway of another host.

  Attributes:
    host: address of the host.
    port: port of the gateway.
  """

  host: str
  port: int


class Gateway:
  """The gateway of a host. A context manager.

  Attributes:
    loopback: address of servers and clients on this host.
    num_refused: number of refused connections.
    num_bytes: number of bytes received from and sent to other hosts.
  """

  loopback = '127.0.0.1'

  def __init__(
    self,
    host: str,
    token: bytes,
    contexts: credentials.Contexts | None,
  ):
    """Prepares a gateway.

    Args:
      host: the only address on which other gateways can reach it.
      token: token of the run, `TOKEN_BYTES` long.
      contexts: TLS contexts; None for unencrypted connections, whose token can
        be intercepted.
    """
    if len(token) != TOKEN_BYTES:
      raise ValueError(
        f'token must have {TOKEN_BYTES} bytes and has {len(token)}; choose'
        f' secrets.token_bytes({TOKEN_BYTES}).'
      )
    self._host = host
    self._token = token
    self._contexts = contexts
    self._loop = asyncio.new_event_loop()
    self._thread = threading.Thread(
      target=self._loop.run_forever, name='gateway', daemon=True
    )
    self._socket: socket.socket | None = None
    self._listeners: dict[int, asyncio.Server] = {}
    self._routes: dict[int, Peer] = {}
    self._own_ports: frozenset[int] = frozenset()
    self._hosts: frozenset[str] = frozenset()
    self._tasks: set[Any] = set()
    self._num_unknown = 0
    self.num_refused = 0
    self.num_bytes = 0

  def __enter__(self) -> 'Gateway':
    self._thread.start()
    return self

  def __exit__(self, *exception: Any) -> None:
    del exception
    with contextlib.suppress(RuntimeError, TimeoutError):
      self._run(self._close())
    self._loop.call_soon_threadsafe(self._loop.stop)
    self._thread.join(_CALL_S)
    self._loop.close()

  def serve(self) -> Peer:
    """Starts to accept other gateways; returns this gateway's address."""
    self._socket = socket.create_server((self._host, 0), backlog=_BACKLOG)
    self._socket.setblocking(False)
    asyncio.run_coroutine_threadsafe(self._accept_all(self._socket), self._loop)
    return Peer(self._host, self._socket.getsockname()[1])

  def route(
    self,
    own_ports: Collection[int],
    routes: Mapping[int, Peer],
    hosts: Collection[str],
  ) -> None:
    """Sets the locations of the run's servers.

    Args:
      own_ports: ports of servers on this host, which others may reach.
      routes: gateway of each server on another host, by the server's port.
      hosts: addresses of all hosts of the cluster; others are refused.

    Raises:
      OSError: if a port is taken on this host.
    """
    self._run(self._route(frozenset(own_ports), dict(routes), frozenset(hosts)))

  def _run(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
    future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
    return future.result(_CALL_S)

  async def _route(
    self,
    own_ports: frozenset[int],
    routes: dict[int, Peer],
    hosts: frozenset[str],
  ) -> None:
    self._own_ports, self._hosts = own_ports, hosts
    # Closed first: a server that moves to this host needs its port.
    for port in [port for port in self._listeners if port not in routes]:
      self._listeners.pop(port).close()
    self._routes = routes
    for port in routes:
      if port not in self._listeners:
        self._listeners[port] = await asyncio.start_server(
          self._make_forward(port), self.loopback, port, limit=_CHUNK_BYTES
        )

  async def _close(self) -> None:
    for listener in self._listeners.values():
      listener.close()
    self._listeners.clear()
    while tasks := asyncio.all_tasks() - {asyncio.current_task()}:
      for task in tasks:
        task.cancel()
      await asyncio.wait(tasks)
    await asyncio.sleep(_CLOSE_S)  # Transports close in the loop.
    if self._socket is not None:
      self._socket.close()

  def _make_forward(
    self, port: int
  ) -> Callable[
    [asyncio.StreamReader, asyncio.StreamWriter], Coroutine[Any, Any, None]
  ]:
    """Returns the handler that forwards connections to another host."""

    async def forward(
      reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
      with self._kept(), _closing(writer):
        if port not in self._routes:
          return
        context = self._contexts.client if self._contexts else None
        far = await _connect(self._routes[port], context)
        with _closing(far[1]):
          far[1].write(_HEADER.pack(self._token, port))
          await self._splice((reader, writer), far)

    return forward

  async def _accept_all(self, server: socket.socket) -> None:
    """Accepts connections; refuses strangers before doing any work for them."""
    while True:
      try:
        connection, address = await self._loop.sock_accept(server)
      except OSError:  # For example no free descriptor.
        await asyncio.sleep(_ACCEPT_AGAIN_S)
        continue
      if address[0] not in self._hosts:
        self._refuse(address, 'it is not a host of the cluster')
        connection.close()
      elif self._num_unknown >= _MAX_UNKNOWN:
        self._refuse(address, 'too many connections have not sent a token yet')
        connection.close()
      else:
        # Counted here, since several connections may be accepted before a task
        # runs.
        self._num_unknown += 1
        task = self._loop.create_task(self._welcome(connection, address))
        self._tasks.add(task)  # Removes itself, see `_kept`.

  async def _welcome(self, connection: socket.socket, address: Any) -> None:
    """Authenticates another gateway and connects it to a local server."""
    _set_options(connection)
    with self._kept(), contextlib.ExitStack() as stack:
      try:
        reader, writer = await self._open(connection)
        stack.enter_context(_closing(writer))
        token, port = _HEADER.unpack(
          await asyncio.wait_for(reader.readexactly(_HEADER.size), _CONNECT_S)
        )
      except (OSError, EOFError, asyncio.TimeoutError) as error:
        self._refuse(address, f'it did not send a token ({error!r})')
        return
      finally:
        self._num_unknown -= 1
      if not hmac.compare_digest(token, self._token):
        self._refuse(address, 'its token is not that of the run')
        return
      if port not in self._own_ports:
        return  # The server moved; the peer's routes will change.
      near = await _connect(Peer(self.loopback, port), None)
      with _closing(near[1]):
        await self._splice((reader, writer), near)

  async def _open(
    self, connection: socket.socket
  ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Returns the streams of an accepted connection."""
    context = self._contexts.server if self._contexts else None
    reader = asyncio.StreamReader(_CHUNK_BYTES, self._loop)
    protocol = asyncio.StreamReaderProtocol(reader, loop=self._loop)
    # Closes the connection if it fails.
    transport, _ = await self._loop.connect_accepted_socket(
      lambda: protocol,
      connection,
      ssl=context,
      ssl_handshake_timeout=_CONNECT_S if context else None,
    )
    return reader, asyncio.StreamWriter(transport, protocol, reader, self._loop)

  def _refuse(self, address: Any, reason: str) -> None:
    """Counts a refused connection and logs some of them."""
    if self.num_refused % _REFUSED_PER_LINE == 0:
      logging.warning(
        'refused a connection from %s, since %s (%d refused so far).',
        address[0],
        reason,
        self.num_refused + 1,
      )
    self.num_refused += 1

  @contextlib.contextmanager
  def _kept(self) -> Iterator[None]:
    """Keeps a reference to the current task, since loops hold weak ones.

    Suppresses errors of broken connections, which are expected.
    """
    task = asyncio.current_task()
    self._tasks.add(task)
    try:
      with contextlib.suppress(OSError, EOFError, asyncio.TimeoutError):
        yield
    finally:
      self._tasks.discard(task)

  async def _splice(self, one: Any, other: Any) -> None:
    """Copies in both directions until one side ends."""
    copies = [
      asyncio.ensure_future(self._copy(one[0], other[1])),
      asyncio.ensure_future(self._copy(other[0], one[1])),
    ]
    try:
      # Clients must notice at once when a server is gone.
      await asyncio.wait(copies, return_when=asyncio.FIRST_COMPLETED)
    finally:
      for copy in copies:
        copy.cancel()
      await asyncio.gather(*copies, return_exceptions=True)

  async def _copy(
    self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
  ) -> None:
    while chunk := await reader.read(_CHUNK_BYTES):
      self.num_bytes += len(chunk)
      writer.write(chunk)
      await writer.drain()


async def _connect(
  peer: Peer, context: ssl.SSLContext | None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
  reader, writer = await asyncio.wait_for(
    asyncio.open_connection(*peer, ssl=context, limit=_CHUNK_BYTES), _CONNECT_S
  )
  _set_options(writer.get_extra_info('socket'))
  return reader, writer


def _set_options(connection: Any) -> None:
  """Disables Nagle's algorithm and bounds the time to detect a lost host."""
  for option, value in _OPTIONS.items():
    connection.setsockopt(socket.IPPROTO_TCP, option, value)
  connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)


@contextlib.contextmanager
def _closing(writer: asyncio.StreamWriter) -> Iterator[None]:
  try:
    yield
  except asyncio.CancelledError:
    writer.transport.abort()  # Do not wait until all is sent.
    raise
  finally:
    writer.close()
