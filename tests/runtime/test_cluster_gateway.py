"""Ports forwarded between hosts, and strangers turned away."""

import contextlib
import secrets
import socket
import socketserver
import struct
import threading
import time

import pytest
import ray_clusters

from ftwax.runtime.cluster import credentials, gateway

_TOKEN = bytes(range(gateway.TOKEN_BYTES))  # The same in all processes.
_HOST = '127.0.0.1'


class _Echo(socketserver.BaseRequestHandler):
  def handle(self):
    while data := self.request.recv(2**16):
      self.request.sendall(data)


class _FarGateway(gateway.Gateway):
  """A gateway whose servers are not where those of the other one are."""

  loopback = '127.0.0.2'


@pytest.fixture
def port():
  """The port of a server that returns what it gets, at the far gateway."""
  server = socketserver.ThreadingTCPServer((_FarGateway.loopback, 0), _Echo)
  server.daemon_threads = True
  with server:
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_address[1]
    server.shutdown()


@pytest.fixture
def contexts(tmp_path, monkeypatch):
  for name, value in ray_clusters.make_certificates(tmp_path, []).items():
    monkeypatch.setenv(name, value)
  return credentials.read()


@pytest.fixture
def join(port):
  """Makes two gateways, of which the near one leads to the far one's server."""
  with contextlib.ExitStack() as stack:

    def make(contexts=None, near_contexts=None, token=_TOKEN, hosts=(_HOST,)):
      far = stack.enter_context(_FarGateway(_HOST, _TOKEN, contexts))
      near = stack.enter_context(
        gateway.Gateway(_HOST, token, near_contexts or contexts)
      )
      peer = far.serve()
      far.route([port], {}, hosts)
      near.route([], {port: peer}, hosts)
      return near, far, peer

    yield make


def _exchange(port, data=b'hello'):
  """Returns what comes back of data sent to a port of this host."""
  received = b''
  with socket.create_connection((_HOST, port), timeout=10.0) as connection:
    sender = threading.Thread(target=_send, args=(connection, data))
    sender.start()
    with contextlib.suppress(ConnectionError):
      while len(received) < len(data):
        chunk = connection.recv(2**16)
        if not chunk:
          break
        received += chunk
    with contextlib.suppress(OSError):  # Of one that is closed already.
      connection.shutdown(socket.SHUT_RDWR)
    sender.join()
  return received


def _send(connection, data):
  """Sends as much as a server takes that may refuse the connection."""
  with contextlib.suppress(ConnectionError):
    connection.sendall(data)


def _wait_until(condition):
  deadline = time.monotonic() + 10.0
  while not condition():
    assert time.monotonic() < deadline
    time.sleep(0.01)


def test_a_port_leads_to_the_server_on_another_host(join, port, contexts):
  _, far, _ = join(contexts)
  assert _exchange(port) == b'hello'
  data = secrets.token_bytes(3_000_000)
  assert _exchange(port, data) == data
  assert far.num_bytes == 2 * (len(data) + len(b'hello'))
  assert far.num_refused == 0


def test_a_gateway_without_the_token_is_refused(join, port, contexts):
  token = bytes(gateway.TOKEN_BYTES)
  _, far, _ = join(contexts, token=token)
  assert _exchange(port) == b''
  _wait_until(lambda: far.num_refused == 1)
  assert far.num_bytes == 0


def test_a_gateway_with_certificates_of_others_is_refused(
  join, port, contexts, tmp_path, monkeypatch
):
  (tmp_path / 'others').mkdir()
  others = ray_clusters.make_certificates(tmp_path / 'others', [])
  for name, value in others.items():
    monkeypatch.setenv(name, value)
  _, far, _ = join(contexts, credentials.read())
  assert _exchange(port) == b''
  _wait_until(lambda: far.num_refused == 1)
  assert far.num_bytes == 0


def test_hosts_outside_the_cluster_are_refused(join, port):
  _, far, peer = join(hosts=('192.0.2.1',))
  assert _exchange(port) == b''
  _wait_until(lambda: far.num_refused == 1)
  with socket.create_connection(peer, timeout=10.0) as connection:
    assert connection.recv(1) == b''


def test_a_burst_of_strangers_is_refused_beyond_a_limit(
  join, port, monkeypatch
):
  monkeypatch.setattr(gateway, '_MAX_UNKNOWN', 3)
  _, far, peer = join()
  with contextlib.ExitStack() as stack:
    for _ in range(8):
      stack.enter_context(
        socket.create_connection((_HOST, peer.port), timeout=10.0)
      )
    _wait_until(lambda: far.num_refused == 5)
  _wait_until(lambda: far.num_refused == 8)  # Those that waited sent no token.
  assert _exchange(port) == b'hello'


def test_ports_that_are_not_of_the_run_are_not_reached(join, port):
  _, far, peer = join()
  far.route([], {}, (_HOST,))
  assert _exchange(port) == b''
  with socket.create_connection(peer, timeout=10.0) as connection:
    connection.sendall(_TOKEN + struct.pack('!H', 22))
    assert connection.recv(1) == b''
  assert far.num_bytes == 0


@pytest.mark.parametrize(
  'data',
  [b'', b'GET / HTTP/1.1\r\n\r\n', bytes(2**20), _TOKEN, b'\x16\x03'],
  ids=['nothing', 'http', 'zeros', 'token', 'handshake'],
)
def test_nonsense_ends_nothing(join, port, contexts, data):
  _, _, peer = join(contexts)
  with socket.create_connection(peer, timeout=10.0) as connection:
    with contextlib.suppress(ConnectionError):
      connection.sendall(data)
    assert _exchange(port) == b'hello'


def test_a_port_is_free_again_when_its_server_comes_here(join, port):
  near, _, _ = join()
  near.route([port], {}, (_HOST,))
  socket.create_server((_HOST, port)).close()


def test_a_port_in_use_is_told(join, port):
  near, _, peer = join()
  with socket.create_server((_HOST, 0)) as server:
    taken = server.getsockname()[1]
    with pytest.raises(OSError, match='in use'):
      near.route([], {taken: peer}, (_HOST,))


def test_wrong_values_are_told(monkeypatch, tmp_path):
  with pytest.raises(ValueError, match=r'token must have 32 bytes and has 1'):
    gateway.Gateway(_HOST, b'x', None)
  assert credentials.read() is None
  monkeypatch.setenv('RAY_USE_TLS', '1')
  with pytest.raises(ValueError, match='RAY_TLS_SERVER_CERT must name a file'):
    credentials.read()
  for name, value in ray_clusters.make_certificates(tmp_path, []).items():
    monkeypatch.setenv(name, value)
  (tmp_path / 'key.pem').write_text('nonsense')
  with pytest.raises(ValueError, match='must be PEM files that belong'):
    credentials.read()
