"""Reverb servers: starting and stopping, and writers."""

import pathlib
import socket
import tempfile
import uuid
from collections.abc import Sequence

import reverb
from absl import logging

from ftwax.acme import loopback, native_log
from ftwax.acme import tables as tables_lib

# Seconds within which a server must answer a new writer. Reverb's default of 3
# is too short on a busy machine.
_OPEN_S = 30.0


def make_server(
  tables: Sequence[reverb.Table],
  port: int | None = None,
  expose: bool = False,
) -> reverb.Server:
  """Starts a server in this process, by default only reachable locally.

  Args:
    tables: tables of the server.
    port: port of the server; None picks a free one.
    expose: whether other machines can reach the server, which has no
      authentication.

  Returns:
    The server, which the caller must stop with `stop`.

  Raises:
    ExposedError: if the port cannot be closed to other machines.
    OSError: if the port is in use.
  """
  if port is not None and not _is_free(port):
    raise OSError(
      f'port ({port}) of the replay server must be free and is in use; choose'
      ' another, or None for any that is free.'
    )
  with native_log.filtered():
    # Never used; Reverb's own would create a directory.
    path = pathlib.Path(tempfile.gettempdir(), f'ftwax-{uuid.uuid4().hex}')
    server = reverb.Server(
      list(tables),
      port=port,
      checkpointer=reverb.checkpointers.DefaultCheckpointer(str(path)),
    )
  if expose:
    logging.warning(
      'Reverb listens on port %d of all interfaces, without authentication:'
      ' anyone who can reach it can read, change and delete its data.',
      server.port,
    )
    return server
  try:
    loopback.close_to_others(server.port)
  except BaseException:
    stop(server)
    raise
  return server


def stop(server: reverb.Server) -> None:
  """Stops a server."""
  with native_log.filtered():
    server.stop()


def open_writer(
  client: reverb.Client, num_keep_alive_refs: int, num_columns: int
) -> reverb.TrajectoryWriter:
  """Opens a writer of a server that may be busy.

  Args:
    client: client of the server.
    num_keep_alive_refs: number of steps that items may refer to.
    num_columns: number of columns of a step.

  Raises:
    ReplayTimeoutError: if the server does not answer in time.
  """
  try:
    writer = client.trajectory_writer(
      num_keep_alive_refs, get_signature_timeout_ms=int(1000 * _OPEN_S)
    )
  except RuntimeError as error:
    raise tables_lib.ReplayTimeoutError(
      f'the Reverb server at {client.server_address} must answer within'
      f' {_OPEN_S:g} s and did not ({error}); check that it is running.'
    ) from error
  for column in range(num_columns):
    # Each step is sent by itself: items of others do not read it.
    writer.configure(
      (column,), num_keep_alive_refs=num_keep_alive_refs, max_chunk_length=1
    )
  return writer


def _is_free(port: int) -> bool:
  """Returns whether no process listens on `port`.

  Reverb itself would share the port with another Reverb server, and each would
  get some of the other's connections.
  """
  dual = socket.has_dualstack_ipv6()
  family = socket.AF_INET6 if dual else socket.AF_INET
  try:
    # On all interfaces and both protocols, like Reverb.
    socket.create_server(('', port), family=family, dualstack_ipv6=dual).close()
  except OSError:
    return False
  return True
