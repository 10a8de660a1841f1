"""Limits of connections to the server."""

from typing import Any

from ftwax import extras

# Pages have a few connections each.
MAX_CONNECTIONS = 200

# Seconds from the start of a connection to the end of its first headers.
HEADER_TIMEOUT_S = 10.0


def make_protocol() -> Any:
  """Returns uvicorn's protocol with limits.

  Beyond `MAX_CONNECTIONS` it closes the one that has been silent for longest,
  or else the new one, and those that have not sent the headers of a request
  within `HEADER_TIMEOUT_S`.
  """
  with extras.required('uvicorn', 'web'):
    from uvicorn.protocols.http import h11_impl

  silent: dict[Any, None] = {}  # The oldest first.

  class Protocol(h11_impl.H11Protocol):
    """A connection."""

    def connection_made(self, transport: Any) -> None:
      """Begins a connection, unless there are too many."""
      super().connection_made(transport)
      silent[self] = None
      if len(self.connections) > MAX_CONNECTIONS:
        waiting = (one for one in silent if one.headers is None)
        oldest = next(waiting, self)
        del silent[oldest]
        oldest.transport.close()
      self.loop.call_later(HEADER_TIMEOUT_S, self._close_if_silent)

    def connection_lost(self, exc: Exception | None) -> None:
      """Ends a connection."""
      silent.pop(self, None)
      super().connection_lost(exc)

    def _close_if_silent(self) -> None:
      silent.pop(self, None)
      if self.headers is None:
        self.transport.close()

  return Protocol
