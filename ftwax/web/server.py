"""Starts the web server and prints its link."""

from __future__ import annotations

import functools
import pathlib
import secrets
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ftwax import extras
from ftwax.reporting import saved_games
from ftwax.web import connections, pages, run_tail

if TYPE_CHECKING:
  from ftwax.inference import playable as playable_lib
  from ftwax.web import play_room

# Default port, if it is free.
_PORT = 8700

# More than a page sends; longer messages close the connection.
_MAX_MESSAGE_BYTES = 65536


def play(
  playable: playable_lib.PlayableGame,
  save_dir: str = 'runs/games',
  host: str = '127.0.0.1',
  port: int | None = None,
) -> None:
  """Serves a game until Ctrl-C.

  Args:
    playable: the game.
    save_dir: directory for saved games.
    host: address to serve on.
    port: port to serve on; by default 8700, or any free port if that is taken.

  Raises:
    ValueError: if the address cannot be used.
  """
  from ftwax.web import play_room  # Slow import.

  saved = saved_games.SavedGames(pathlib.Path(save_dir))
  room = play_room.Room(playable, saved)
  make_app = functools.partial(pages.make_play_app, room, saved)
  serve(make_app, host, port)


def watch(
  directories: Sequence[str],
  find_game: Callable[[str], playable_lib.PlayableGame],
  save_dir: str = 'runs/games',
  host: str = '127.0.0.1',
  port: int | None = None,
  end_with_input: bool = False,
) -> None:
  """Serves a page that follows runs until Ctrl-C.

  Args:
    directories: directories of runs, which may not have started yet.
    find_game: finds the game of a run, given its directory.
    save_dir: see `play`.
    host: see `play`.
    port: see `play`.
    end_with_input: see `serve`.

  Raises:
    ValueError: if the address cannot be used.
  """
  saved = saved_games.SavedGames(pathlib.Path(save_dir))

  def make_room(directory: str) -> play_room.Room:
    from ftwax.web import play_room  # Slow import, if anybody plays.

    return play_room.Room(find_game(directory), saved)

  make_app = functools.partial(
    pages.make_watch_app,
    [run_tail.RunTail(directory) for directory in directories],
    make_room,
    saved,
  )
  serve(make_app, host, port, end_with_input)


def serve(
  make_app: Any, host: str, port: int | None, end_with_input: bool = False
) -> None:
  """Serves an application until Ctrl-C, and prints its link.

  Args:
    make_app: makes the application, given a host and a token.
    host: see `play`.
    port: see `play`.
    end_with_input: whether to end when standard input closes; then the link
      does not mention Ctrl-C.

  Raises:
    ValueError: if the address cannot be used.
  """
  with extras.required('uvicorn', 'web'):
    import uvicorn

  token = secrets.token_urlsafe(16)
  sock = _listen(host, port)
  port = sock.getsockname()[1]
  address = f'[{host}]' if ':' in host else host
  end = '' if end_with_input else ' (Ctrl-C ends)'
  print(f'Open http://{address}:{port}/?token={token}{end}', flush=True)
  config = uvicorn.Config(
    make_app(host, token),
    log_level='warning',
    http=connections.make_protocol(),
    ws='websockets-sansio',
    ws_max_size=_MAX_MESSAGE_BYTES,
    timeout_graceful_shutdown=1,
  )
  server = uvicorn.Server(config)

  def wait_for_the_end() -> None:
    # Returns at the end of the input, when the parent has closed it or died.
    sys.stdin.read()
    server.should_exit = True

  if end_with_input:
    threading.Thread(target=wait_for_the_end, daemon=True).start()
  server.run([sock])


def _listen(host: str, port: int | None) -> socket.socket:
  """Returns a listening socket; see `play`."""
  if port is not None and not 0 <= port < 2**16:
    raise ValueError(
      f'port ({port}) must be from 0 to 65535; choose {_PORT}, or 0 for any.'
    )
  family = socket.AF_INET6 if ':' in host else socket.AF_INET
  ports = (_PORT, 0) if port is None else (port,)
  for candidate in ports:
    try:
      address = (host.strip('[]'), candidate)
      return socket.create_server(address, family=family)
    except OSError as error:
      reason = error
  raise ValueError(
    f'address ({host}, port {ports[-1]}) must be free and belong to this'
    f' machine, but: {reason}; choose another port, or 0 for any.'
  )
