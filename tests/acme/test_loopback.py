"""Ports that are closed to other machines."""

import os
import socket
import subprocess
import sys

import network_namespaces
import pytest

from ftwax.acme import loopback

pytestmark = pytest.mark.skipif(
  not hasattr(socket, 'SO_BINDTODEVICE'), reason='Linux binds to devices'
)

# Listens, tells the port, waits for a line, closes the port to others, tells
# how that ended, and waits again.
SERVER = """
import socket, sys
from ftwax.acme import loopback
server = socket.create_server(
  ('', 0), family=socket.AF_INET6, dualstack_ipv6=True
)
port = server.getsockname()[1]
print(port, flush=True)
input()
try:
  loopback.close_to_others(port)
  print('closed', flush=True)
except OSError as error:
  print(error, flush=True)
input()
"""

# Connects, says so, and stays.
GUEST = """
import socket, sys
connection = socket.create_connection((sys.argv[1], int(sys.argv[2])))
print('connected', flush=True)
input()
"""


def _start(host, *arguments):
  return host.popen(
    [sys.executable, '-c', *map(str, arguments)],
    stdin=subprocess.PIPE,
    stdout=subprocess.PIPE,
    text=True,
    env={**os.environ, 'PYTHONPATH': os.pathsep.join(sys.path)},
  )


def _press_enter(process):
  process.stdin.write('\n')
  process.stdin.flush()
  return process.stdout.readline().strip()


def _device(listener):
  option = listener.getsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, 16)
  return option.rstrip(b'\0')


@pytest.fixture
def hosts():
  with network_namespaces.hosts(2) as made:
    yield made


@pytest.fixture
def make_listener():
  made = []

  def make():
    made.append(socket.create_server(('', 0)))
    return made[-1], made[-1].getsockname()[1]

  yield make
  for listener in made:
    listener.close()


def test_a_closed_port_is_reached_from_its_machine_alone(hosts):
  home, outside = hosts
  with _start(home, SERVER) as server, _start(home, SERVER) as other:
    closed, still_open = (
      int(each.stdout.readline()) for each in (server, other)
    )
    assert _press_enter(server) == 'closed'
    for address in (home.address, home.address_v6):
      assert outside.scan(address, closed, still_open) == [still_open]
    for address in ('127.0.0.1', '::1'):
      assert home.scan(address, closed) == [closed]
    for process in (server, other):
      process.terminate()


@pytest.mark.parametrize('version', [4, 6])
def test_who_came_before_is_found(hosts, version):
  home, outside = hosts
  address = home.address if version == 4 else home.address_v6
  other = outside.address if version == 4 else outside.address_v6
  with (
    _start(home, SERVER) as server,
    _start(outside, GUEST, address, server.stdout.readline()) as guest,
  ):
    assert guest.stdout.readline().strip() == 'connected'
    told = _press_enter(server)
    assert f'{other} connected before it was closed' in told
    for process in (server, guest):
      process.terminate()


@pytest.mark.parametrize('address', ['127.0.0.1', '::1', 'eth0'])
def test_this_machine_may_come_before(hosts, address):
  home, _ = hosts
  address = home.address if address == 'eth0' else address
  with (
    _start(home, SERVER) as server,
    _start(home, GUEST, address, server.stdout.readline()) as guest,
  ):
    assert guest.stdout.readline().strip() == 'connected'
    assert _press_enter(server) == 'closed'
    for process in (server, guest):
      process.terminate()


def test_other_ports_are_left_alone(make_listener):
  (closed, port), (other, _) = make_listener(), make_listener()
  loopback.close_to_others(port)
  assert _device(closed) == b'lo'
  assert _device(other) == b''


def test_all_listeners_of_a_port_are_closed():
  with socket.create_server(('', 0), reuse_port=True) as first:
    port = first.getsockname()[1]
    with socket.create_server(('', port), reuse_port=True) as second:
      loopback.close_to_others(port)
      assert _device(first) == _device(second) == b'lo'


def test_a_port_without_a_server_is_refused(make_listener):
  listener, port = make_listener()
  listener.close()
  with pytest.raises(ValueError, match=rf'port \({port}\) must be one on'):
    loopback.close_to_others(port)


def test_old_kernels_are_told(make_listener, monkeypatch):
  def refuse(*arguments):
    raise PermissionError(1, 'Operation not permitted')

  _, port = make_listener()
  loopback.check()
  monkeypatch.setattr(socket.socket, 'setsockopt', refuse)
  with pytest.raises(
    loopback.ExposedError,
    match=rf'port {port} must be closed to other .*not permitted.*--expose',
  ):
    loopback.close_to_others(port)


def test_other_systems_are_told(monkeypatch):
  monkeypatch.delattr(socket, 'SO_BINDTODEVICE')
  with pytest.raises(
    loopback.ExposedError, match=r'^ports of Reverb and .* no SO_BINDTODEVICE'
  ):
    loopback.check()
