"""Connects to ports of a host as a stranger; part of `hosts.py strangers`.

Run as `python benchmarks/strangers.py HOST CONNECTIONS_PER_S PORT...`. Ends on
SIGTERM and prints the outcomes of the connections.
"""

import collections
import contextlib
import os
import signal
import socket
import sys
import time

_TIMEOUT_S = 2.0


def _try(host: str, port: int) -> str:
  """Returns how a port reacts to a wrong token."""
  try:
    with socket.create_connection((host, port), _TIMEOUT_S) as connection:
      connection.settimeout(_TIMEOUT_S)
      connection.sendall(os.urandom(34))
      with contextlib.suppress(ConnectionResetError):
        if connection.recv(2**16):
          return 'answered'
      return 'closed'
  except ConnectionRefusedError:
    return 'refused'
  except OSError:
    return 'no answer'


def main() -> None:
  """Connects until SIGTERM."""
  host, per_second, *ports = sys.argv[1:]
  signal.signal(signal.SIGTERM, lambda *_: sys.exit())
  counts: collections.Counter[str] = collections.Counter()
  begin = time.monotonic()
  try:
    while True:
      for port in map(int, ports):
        counts[_try(host, port)] += 1
        due = begin + sum(counts.values()) / float(per_second)
        time.sleep(max(due - time.monotonic(), 0.0))
  finally:
    rate = sum(counts.values()) / (time.monotonic() - begin)
    print(f'  {rate:,.0f} connections/s: {dict(counts)}', flush=True)


if __name__ == '__main__':
  main()
