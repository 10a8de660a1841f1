"""The Reverb server of a process."""

import pathlib
import socket
import tempfile
import uuid
from collections.abc import Sequence

import reverb
from absl import logging

from ftwax import loopback
from ftwax.replay.reverb import native_log


def make_server(
  tables: Sequence[reverb.Table],
  port: int | None = None,
  expose: bool = False,
  checkpoint_dir: pathlib.Path | None = None,
) -> reverb.Server:
  """Starts a server in this process, which this machine alone reaches.

  Args:
    tables: what it serves.
    port: where it listens; a free one if None.
    expose: whether other machines reach it, too: there is no authentication.
    checkpoint_dir: where it saves checkpoints, and continues from the newest;
      None for a server that saves none.

  Returns:
    The server, which the caller stops with `stop`.

  Raises:
    ExposedError: the port cannot be closed to other machines.
    OSError: the port is taken.
  """
  if port is not None and not _is_free(port):
    raise OSError(
      f'port ({port}) of the replay server must be free and is in use; choose'
      ' another, or None for any that is free.'
    )
  with native_log.filtered():
    server = reverb.Server(
      list(tables), port=port, checkpointer=_make_checkpointer(checkpoint_dir)
    )
  if expose:
    logging.warning(
      'Reverb listens on port %d of all interfaces, without authentication:'
      ' whoever reaches it can read, change and delete what it holds.',
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


def _make_checkpointer(
  directory: pathlib.Path | None,
) -> reverb.checkpointers.CheckpointerBase:
  """Returns a checkpointer; Reverb's own would leave a directory."""
  unused = f'ftwax-replay-{uuid.uuid4().hex}'
  path = directory or pathlib.Path(tempfile.gettempdir(), unused)
  return reverb.checkpointers.DefaultCheckpointer(str(path))


def _is_free(port: int) -> bool:
  """Whether nobody listens on `port`.

  Reverb itself would share the port with another Reverb server, and each would
  get some of the other's connections.
  """
  dual = socket.has_dualstack_ipv6()
  family = socket.AF_INET6 if dual else socket.AF_INET
  try:
    socket.create_server(('', port), family=family, dualstack_ipv6=dual).close()
  except OSError:
    return False
  return True
