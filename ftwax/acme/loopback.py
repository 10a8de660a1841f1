"""Closes ports to other machines.

Reverb and Courier listen on all interfaces, without authentication, and have no
option to change that. However, a process may bind a listening socket to the
loopback device, since Linux 5.7 without privileges. The kernel then refuses
connections through any other device.
"""

import contextlib
import ipaddress
import os
import pathlib
import socket
import sys
from collections.abc import Iterator

_DEVICE = b'lo'

# States in /proc/net/tcp that are not open connections.
_TIME_WAIT, _LISTEN = '06', '0A'


class ExposedError(OSError):
  """Raised if a port is open to other machines and must not be."""


def check() -> None:
  """Checks that the kernel can close ports to other machines.

  Raises:
    ExposedError: if it cannot.
  """
  with socket.create_server(('', 0)) as server:
    try:
      _bind_to_loopback(server)
    except OSError as error:
      raise _refusal('ports of Reverb and Courier', error) from error


def close_to_others(port: int) -> None:
  """Closes a port of this process to all addresses but 127.0.0.1 and ::1.

  Call it as soon as a server listens. Connections made in the milliseconds
  before are detected unless they have ended by then.

  Args:
    port: port on which sockets of this process listen.

  Raises:
    ExposedError: if the kernel refuses, or another machine has connected
      already; the server must then be stopped.
    ValueError: if nothing in this process listens on `port`.
  """
  try:
    num_closed = 0
    for listener in _listeners(port):
      _bind_to_loopback(listener)
      num_closed += 1
    # After the listeners are bound nobody else can connect, so that this finds
    # all who have.
    strangers = _find_strangers(port)
  except OSError as error:
    raise _refusal(f'port {port}', error) from error
  if not num_closed:
    raise ValueError(
      f'port ({port}) must be one on which this process listens; start the'
      ' server first.'
    )
  if strangers:
    raise ExposedError(
      f'port {port} must be reachable only from this machine, but'
      f' {", ".join(sorted(strangers))} connected before it was closed; start'
      ' again.'
    )


def _refusal(what: str, error: OSError) -> ExposedError:
  return ExposedError(
    f'{what} must be closed to other machines, any of which could run code as'
    f' you, but this system cannot close them ({error}; Linux 5.7 or newer'
    ' can); close them with a firewall or a network namespace'
    ' (docs/distributed.md) and choose --expose (expose=True), or choose'
    ' --replay=functional in a local run, which has no port.'
  )


def _bind_to_loopback(listener: socket.socket) -> None:
  option = getattr(socket, 'SO_BINDTODEVICE', None)
  if option is None:
    raise OSError('it has no SO_BINDTODEVICE')
  listener.setsockopt(socket.SOL_SOCKET, option, _DEVICE)


def _listeners(port: int) -> Iterator[socket.socket]:
  """Yields the sockets of this process that listen on `port`."""
  for name in os.listdir('/proc/self/fd'):
    try:
      if not os.readlink(f'/proc/self/fd/{name}').startswith('socket:'):
        continue
      # A duplicate refers to the same socket, so that options set on it hold
      # for the server, and closing it does not close the server's.
      fd = os.dup(int(name))
    except OSError:  # Another thread may have closed the file.
      continue
    with socket.socket(fileno=fd) as found:
      if _listens(found, port):
        yield found


def _listens(found: socket.socket, port: int) -> bool:
  return (
    found.family in (socket.AF_INET, socket.AF_INET6)
    and found.type == socket.SOCK_STREAM
    and bool(found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
    and found.getsockname()[1] == port
  )


def _find_strangers(port: int) -> set[str]:
  """Returns the addresses of other machines that are connected to `port`."""
  lines = pathlib.Path('/proc/self/net/tcp').read_text().splitlines()[1:]
  with contextlib.suppress(FileNotFoundError):  # Without IPv6.
    lines += pathlib.Path('/proc/self/net/tcp6').read_text().splitlines()[1:]
  strangers = set()
  for line in lines:
    local, remote, state = line.split()[1:4]
    if state in (_TIME_WAIT, _LISTEN) or int(local.split(':')[1], 16) != port:
      continue
    address = _decode(remote)
    # A local client of a non-loopback address has this same address.
    if not address.is_loopback and address != _decode(local):
      strangers.add(str(address))
  return strangers


def _decode(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
  """Parses an address of /proc/net/tcp: 32-bit words in native byte order."""
  words = text.split(':')[0]
  packed = b''.join(
    int(words[i : i + 8], 16).to_bytes(4, sys.byteorder)
    for i in range(0, len(words), 8)
  )
  address = ipaddress.ip_address(packed)
  if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped:
    return address.ipv4_mapped
  return address
