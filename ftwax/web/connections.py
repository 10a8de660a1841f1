"""Limits of connections to the server."""

from typing import Any

# Pages have a few connections each.
MAX_CONNECTIONS = 200

# Seconds from the start of a connection to the end of its first headers.
HEADER_TIMEOUT_S = 10.0


def make_protocol() -> Any:
  """Returns uvicorn's protocol with limits.

  It closes connections beyond `MAX_CONNECTIONS`, and those that have not sent
  the headers of a request within `HEADER_TIMEOUT_S`.
  """
  from uvicorn.protocols.http import h11_impl

  class Protocol(h11_impl.H11Protocol):
    """A connection."""

    def connection_made(self, transport: Any) -> None:
      """Begins a connection, unless there are too many."""
      super().connection_made(transport)
      if len(self.connections) > MAX_CONNECTIONS:
        transport.close()
      self.loop.call_later(HEADER_TIMEOUT_S, self._close_if_silent)

    def _close_if_silent(self) -> None:
      if self.headers is None:
        self.transport.close()

  return Protocol
