"""The Reverb server of a process."""

import os
import socket
import tempfile
import uuid
from collections.abc import Sequence

import reverb

from ftwax.replay.reverb import native_log


def make_server(
  tables: Sequence[reverb.Table], port: int | None = None
) -> reverb.Server:
  """Starts a server in this process.

  Reverb listens on all interfaces of the machine, without authentication.

  Args:
    tables: what it serves.
    port: where it listens; a free one if None.

  Returns:
    The server, which the caller stops with `stop`.

  Raises:
    OSError: the port is taken.
  """
  if port is not None and not _is_free(port):
    raise OSError(
      f'port ({port}) of the replay server must be free and is in use; choose'
      ' another, or None for any that is free.'
    )
  with native_log.filtered():
    return reverb.Server(list(tables), port=port, checkpointer=_unused())


def stop(server: reverb.Server) -> None:
  """Stops a server."""
  with native_log.filtered():
    server.stop()


def _unused() -> reverb.checkpointers.CheckpointerBase:
  """Returns a checkpointer that leaves no directory, unlike Reverb's own."""
  name = f'ftwax-replay-{uuid.uuid4().hex}'
  return reverb.checkpointers.DefaultCheckpointer(
    os.path.join(tempfile.gettempdir(), name)
  )


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
