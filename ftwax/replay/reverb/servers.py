"""The Reverb server of a process."""

from collections.abc import Sequence

import reverb


def make_server(
  tables: Sequence[reverb.Table], port: int | None = None
) -> reverb.Server:
  """Starts a server in this process.

  Reverb listens on all interfaces of the machine, without authentication.

  Args:
    tables: what it serves.
    port: where it listens; a free one if None.

  Returns:
    The server, which the caller stops.

  Raises:
    OSError: the port is taken.
  """
  try:
    return reverb.Server(list(tables), port=port)
  except ValueError as error:
    if port is None:
      raise
    raise OSError(
      f'port ({port}) of the replay server must be free, and cannot be bound;'
      ' choose another, or None for any that is free.'
    ) from error
