"""Hosts of a network, for tests: namespaces that a switch joins.

The machine's own network is not touched. Processes of all hosts see the same
files and processes.
"""

import contextlib
import dataclasses
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

_PREFIX = 'ftwaxnet'
_TIMEOUT_S = 60.0

# Prints the open ports of an address, of all or of those given.
_SCAN = """
import socket, sys
address = sys.argv[1]
family = socket.AF_INET6 if ':' in address else socket.AF_INET
for port in map(int, sys.argv[2:]) if sys.argv[2:] else range(1, 65536):
  with socket.socket(family) as connection:
    connection.settimeout(2.0)
    if not connection.connect_ex((address, port)):
      print(port)
"""


@dataclasses.dataclass(frozen=True)
class Host:
  """A host with loopback and the device `eth0`.

  Attributes:
    name: of the namespace.
    address: on `eth0`, IPv4.
    address_v6: likewise, IPv6.
    switch: the namespace that its cable leads to.
    port: the device at the switch's end.
  """

  name: str
  address: str
  address_v6: str
  switch: str
  port: str

  def popen(self, arguments: Sequence[str], **options: Any) -> subprocess.Popen:
    """Starts a program on this host; its pid is the program's own."""
    return subprocess.Popen(self._command(arguments), **options)

  def run(
    self, arguments: Sequence[str], **options: Any
  ) -> subprocess.CompletedProcess[str]:
    """Runs a program on this host to its end, with output as text."""
    options = {'timeout': _TIMEOUT_S, 'check': True, **options}
    return subprocess.run(
      self._command(arguments), capture_output=True, text=True, **options
    )

  def scan(self, address: str, *ports: int) -> list[int]:
    """Returns which ports of an address, of all if none, let this host in."""
    command = [sys.executable, '-S', '-c', _SCAN, address, *map(str, ports)]
    return [int(port) for port in self.run(command).stdout.split()]

  def set_link(self, up: bool) -> None:
    """Plugs the cable in or out; addresses and routes stay."""
    state = 'up' if up else 'down'
    _ip('-n', self.switch, 'link', 'set', self.port, state)

  def impair(self, delay_ms: float = 0.0, loss_percent: float = 0.0) -> None:
    """Delays and loses what this host sends; skips the test if refused."""
    command = ['tc', 'qdisc', 'replace', 'dev', 'eth0', 'root', 'netem']
    command += ['delay', f'{delay_ms}ms', 'loss', f'{loss_percent}%']
    result = self.run(command, check=False)
    if result.returncode:
      pytest.skip(f'no netem: {result.stderr.strip()}')

  def _command(self, arguments: Sequence[str]) -> list[str]:
    return ['ip', 'netns', 'exec', self.name, *arguments]


@contextlib.contextmanager
def hosts(num: int) -> Iterator[list[Host]]:
  """Makes hosts that reach each other, and removes them with their processes.

  Args:
    num: of hosts.

  Yields:
    The hosts. The test is skipped where namespaces are refused.
  """
  _remove_leftovers()
  number = _count_own()
  switch = f'{_PREFIX}-{os.getpid()}-{number}-switch'
  made = [
    Host(
      f'{_PREFIX}-{os.getpid()}-{number}-{index}',
      f'10.0.0.{1 + index}',
      f'fd00::{1 + index:x}',
      switch,
      f'host{index}',
    )
    for index in range(num)
  ]
  names = [switch, *(host.name for host in made)]
  try:
    try:
      _make(switch, made)
    except (OSError, subprocess.CalledProcessError) as error:
      reason = getattr(error, 'stderr', None) or str(error)
      pytest.skip(f'no network namespaces: {reason.strip()}')
    yield made
  finally:
    for name in names:
      _remove(name)


def _make(switch: str, made: Sequence[Host]) -> None:
  _ip('netns', 'add', switch)
  _ip('-n', switch, 'link', 'add', 'bridge', 'type', 'bridge')
  _ip('-n', switch, 'link', 'set', 'bridge', 'up')
  for host in made:
    _ip('netns', 'add', host.name)
    _ip(
      *('link', 'add', host.port, 'netns', switch, 'type', 'veth'),
      *('peer', 'name', 'eth0', 'netns', host.name),
    )
    _ip('-n', switch, 'link', 'set', host.port, 'master', 'bridge', 'up')
    inside = ('-n', host.name)
    _ip(*inside, 'address', 'add', f'{host.address}/24', 'dev', 'eth0')
    _ip(
      *(*inside, 'address', 'add', f'{host.address_v6}/64', 'dev', 'eth0'),
      'nodad',
    )
    for device in ('lo', 'eth0'):
      _ip(*inside, 'link', 'set', device, 'up')


def _ip(*arguments: str) -> str:
  return subprocess.run(
    ['ip', *arguments],
    check=True,
    capture_output=True,
    text=True,
    timeout=_TIMEOUT_S,
  ).stdout


def _names() -> list[str]:
  return re.findall(rf'^{_PREFIX}-\d+-\S+', _ip('netns', 'list'), re.M)


def _count_own() -> int:
  """Returns how many networks this process has by now."""
  with contextlib.suppress(OSError, subprocess.CalledProcessError):
    own = f'{_PREFIX}-{os.getpid()}-'
    return sum(n.startswith(own) and n.endswith('switch') for n in _names())
  return 0


def _remove_leftovers() -> None:
  """Removes what test processes left that were killed."""
  with contextlib.suppress(OSError, subprocess.CalledProcessError):
    for name in _names():
      if not os.path.exists(f'/proc/{name.split("-")[1]}'):
        _remove(name)


def _remove(name: str) -> None:
  """Removes a namespace, if it is there, and kills its processes."""
  with contextlib.suppress(OSError, subprocess.SubprocessError):
    for pid in _ip('netns', 'pids', name).split():
      with contextlib.suppress(ProcessLookupError):
        os.kill(int(pid), 9)
    _ip('netns', 'delete', name)
