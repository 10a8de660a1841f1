"""Measures the cost of sending a gigabyte through two gateways.

Run as `python benchmarks/gateway.py`. Gateways, sender and receiver are threads
of one process, so its CPU time covers them all.
"""

import os
import pathlib
import socket
import sys
import tempfile
import threading
import time

from ftwax.runtime.cluster import credentials, gateway

sys.path.append(str(pathlib.Path(__file__).parents[1] / 'tests'))

import ray_clusters  # noqa: E402

_NUM_BYTES = 10**9
_CHUNK = bytes(2**18)
_HOST = '127.0.0.1'


class _FarGateway(gateway.Gateway):
  loopback = '127.0.0.2'


def _receive(server: socket.socket) -> None:
  while True:
    connection, _ = server.accept()
    with connection:
      num_bytes = 0
      while num_bytes < _NUM_BYTES:
        num_bytes += len(connection.recv(len(_CHUNK)))
      connection.sendall(b'.')


def _send(host: str, port: int) -> tuple[float, float]:
  """Returns wall and CPU seconds to send all bytes."""
  wall, cpu = time.perf_counter(), time.process_time()
  with socket.create_connection((host, port)) as connection:
    for _ in range(-(-_NUM_BYTES // len(_CHUNK))):
      connection.sendall(_CHUNK)
    connection.recv(1)
  return time.perf_counter() - wall, time.process_time() - cpu


def main() -> None:
  """Prints a line for each connection: direct, without TLS and with TLS."""
  server = socket.create_server((_FarGateway.loopback, 0))
  port = server.getsockname()[1]
  threading.Thread(target=_receive, args=(server,), daemon=True).start()
  with tempfile.TemporaryDirectory() as directory:
    os.environ |= ray_clusters.make_certificates(pathlib.Path(directory), [])
    contexts = credentials.read()
  lines = {'no gateway': _send(_FarGateway.loopback, port)}
  token = bytes(gateway.TOKEN_BYTES)
  for name, own in {'without TLS': None, 'with TLS': contexts}.items():
    with (
      _FarGateway(_HOST, token, own) as far,
      gateway.Gateway(_HOST, token, own) as near,
    ):
      peer = far.serve()
      far.route([port], {}, [_HOST])
      near.route([], {port: peer}, [_HOST])
      lines[name] = _send(_HOST, port)
  for name, (wall, cpu) in lines.items():
    print(
      f'{name:<12} {_NUM_BYTES / 1e6 / wall:6,.0f} MB/s,'
      f' {cpu:.1f} s of a core for a gigabyte'
    )


if __name__ == '__main__':
  main()
