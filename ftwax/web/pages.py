"""The pages and their URLs, as ASGI applications.

One application plays a game; the other follows runs, with a room for games
between the members of each.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import pathlib
import time
from collections.abc import (
  AsyncIterator,
  Callable,
  Coroutine,
  Iterable,
  Mapping,
  Sequence,
)
from typing import TYPE_CHECKING, Any

import anyio
from starlette import (
  applications,
  exceptions,
  middleware,
  requests,
  responses,
  routing,
  staticfiles,
  websockets,
)
from starlette.middleware import gzip

from ftwax.reporting import page as report_page
from ftwax.reporting import report, saved_games
from ftwax.web import run_tail, safeguards

if TYPE_CHECKING:
  from ftwax.web import play_room

# Limits for each page: received messages per second, and unread messages.
_MAX_MESSAGES_PER_SECOND = 120
_MAX_UNREAD = 64
_MAX_MESSAGE_LENGTH = 4096

_STATIC = pathlib.Path(__file__).parent / 'static'

# The page of a saved game or a report names the scripts that it may run, all of
# the library or of the user; it is sandboxed all the same.
_SCRIPTED_POLICY = (
  "default-src 'none'; script-src 'unsafe-inline'; img-src data:; style-src"
  " 'unsafe-inline'; frame-ancestors 'none'; sandbox allow-scripts"
)


def make_play_app(
  room: play_room.Room,
  saved: saved_games.SavedGames,
  host: str = '127.0.0.1',
  token: str | None = None,
) -> Any:
  """Makes the application with a single room."""

  async def socket(websocket: websockets.WebSocket) -> None:
    await _serve_person(websocket, room)

  routes = [
    routing.Route('/', lambda _: _page('play.html')),
    routing.Route('/script.js', lambda _: _script(room)),
    routing.Route('/members.js', lambda _: _members(room)),
    routing.WebSocketRoute('/room', socket),
    *_shared_routes(saved, lambda: [room]),
  ]
  return _make_app(routes, lambda: [room], host, token)


class _Rooms:
  """One room for each run.

  When somebody enters an empty room, it is renewed if there is a newer
  checkpoint.
  """

  def __init__(self, make_room: Callable[[str], play_room.Room]):
    self._make_room = make_room
    self._rooms: dict[int, tuple[str | None, play_room.Room]] = {}
    self._lock = asyncio.Lock()

  @property
  def all(self) -> list[play_room.Room]:
    """The rooms that exist."""
    return [room for _, room in self._rooms.values()]

  async def find(self, index: int, tail: run_tail.RunTail) -> play_room.Room:
    """Returns the room of a run.

    Raises:
      Exception: if no agent can be made from the directory.
    """
    # Two people who enter at once must find the same room.
    async with self._lock:
      newest = run_tail.newest_checkpoint(tail.directory)
      checkpoint, room = self._rooms.get(index, (None, None))
      if room is None or (room.is_empty and checkpoint != newest):
        if room is not None:
          await room.close()
        room = await asyncio.to_thread(self._make_room, str(tail.directory))
        self._rooms[index] = newest, room
      return room


def make_watch_app(
  tails: Sequence[run_tail.RunTail],
  make_room: Callable[[str], play_room.Room],
  saved: saved_games.SavedGames,
  host: str = '127.0.0.1',
  token: str | None = None,
) -> Any:
  """Makes the application.

  Args:
    tails: the runs.
    make_room: makes a room with the population in a directory.
    saved: stores finished games.
    host: see `safeguards.Safeguards`.
    token: see `safeguards.Safeguards`.
  """
  rooms = _Rooms(make_room)

  def tail_of(index: int) -> run_tail.RunTail:
    if index >= len(tails):
      raise exceptions.HTTPException(404, f'There is no run {index} here.')
    return tails[index]

  # Starlette runs endpoints in a thread that are not coroutines.
  def logs(request: requests.Request) -> responses.Response:
    tail = tail_of(request.path_params['index'])
    offsets = {
      label: int(offset)
      for label, offset in request.query_params.items()
      if offset.isdecimal() and len(offset) < 20
    }
    return responses.JSONResponse(tail.read(offsets))

  def read_report(request: requests.Request) -> responses.Response:
    # Made anew: the page that lies there may be anybody's.
    directory = tail_of(request.path_params['index']).directory
    scripts = [room.script for room in rooms.all]
    try:
      return _scripted_page(report.to_html(directory, scripts=scripts))
    except (OSError, ValueError) as error:
      raise exceptions.HTTPException(404, str(error)) from None

  routes = [
    routing.Route('/', lambda _: _page('watch.html')),
    routing.Route(
      '/runs',
      lambda _: responses.JSONResponse([tail.facts() for tail in tails]),
    ),
    routing.Route('/runs/{index:int}/logs', logs),
    routing.Route('/runs/{index:int}/report', read_report),
    *_room_routes(rooms, tail_of),
    *_shared_routes(saved, lambda: rooms.all),
  ]
  return _make_app(routes, lambda: rooms.all, host, token)


def _room_routes(
  rooms: _Rooms, tail_of: Callable[[int], run_tail.RunTail]
) -> list[routing.BaseRoute]:
  """Returns the routes of games between the members of a run."""

  def play(request: requests.Request) -> responses.Response:
    tail_of(request.path_params['index'])
    return _page('play.html')

  async def room(websocket: websockets.WebSocket) -> None:
    index = websocket.path_params['index']
    try:
      entered = await rooms.find(index, tail_of(index))
    except Exception as error:  # A damaged run may raise anything.
      await websocket.accept()
      await websocket.send_json({'error': str(error)[:500]})
      await websocket.close(1011, 'Games of this run cannot be played.')
      return
    await _serve_person(websocket, entered)

  async def script(request: requests.Request) -> responses.Response:
    index = request.path_params['index']
    return _script(await rooms.find(index, tail_of(index)))

  async def members(request: requests.Request) -> responses.Response:
    index = request.path_params['index']
    found = await rooms.find(index, tail_of(index))
    return await asyncio.to_thread(_members, found)

  return [
    routing.Route('/runs/{index:int}/play', play),
    routing.Route('/runs/{index:int}/script.js', script),
    routing.Route('/runs/{index:int}/members.js', members),
    routing.WebSocketRoute('/runs/{index:int}/room', room),
  ]


def _make_app(
  routes: Sequence[routing.BaseRoute],
  rooms: Callable[[], Iterable[play_room.Room]],
  host: str,
  token: str | None,
) -> Any:
  """Makes an application with safeguards.

  Args:
    routes: its routes.
    rooms: returns the rooms to close at shutdown.
    host: see `safeguards.Safeguards`.
    token: see `safeguards.Safeguards`.
  """

  @contextlib.asynccontextmanager
  async def lifespan(app: applications.Starlette) -> AsyncIterator[None]:
    del app
    yield
    for room in rooms():
      await room.close()

  app = applications.Starlette(
    routes=list(routes),
    lifespan=lifespan,
    middleware=[middleware.Middleware(gzip.GZipMiddleware)],
    exception_handlers={exceptions.HTTPException: _answer},
  )
  return safeguards.Safeguards(app, host, token)


def _shared_routes(
  saved: saved_games.SavedGames,
  rooms: Callable[[], Iterable[play_room.Room]],
) -> list[routing.BaseRoute]:
  """Returns the routes of saved games, scripts and styles."""

  def index(request: requests.Request) -> responses.Response:
    del request
    return responses.JSONResponse(
      [
        {
          'name': name,
          'game': game['game'],
          'time': game['time'],
          'seats': [seat['name'] for seat in game['seats']],
          'outcome': game['outcome'],
        }
        for name, game in saved.readable()[:50]
      ]
    )

  def saved_page(request: requests.Request) -> responses.Response:
    name = request.path_params['name']
    try:
      scripts = saved_games.own_scripts(room.script for room in rooms())
      text = saved_games.to_html(saved.read(name), scripts)
    except (ValueError, OSError) as error:
      raise exceptions.HTTPException(404, str(error)) from None
    headers = {}
    if 'download' in request.query_params:
      headers['Content-Disposition'] = f'attachment; filename="{name}.html"'
    return _scripted_page(text, headers)

  return [
    routing.Route('/games', index),
    routing.Route('/games/{name}', saved_page),
    routing.Mount('/static', staticfiles.StaticFiles(directory=_STATIC)),
    routing.Mount(
      '/drawing', staticfiles.StaticFiles(directory=report_page.STATIC)
    ),
  ]


def _page(name: str) -> responses.Response:
  """Returns a response with a page of the library."""
  return responses.FileResponse(_STATIC / name)


def _scripted_page(
  text: str, headers: Mapping[str, str] | None = None
) -> responses.Response:
  """Returns a response with a page that contains its own scripts."""
  headers = {**(headers or {}), 'Content-Security-Policy': _SCRIPTED_POLICY}
  return responses.HTMLResponse(text, headers=headers)


def _script(room: play_room.Room) -> responses.Response:
  """Returns a response with the script that draws the game of a room."""
  return responses.FileResponse(room.script, media_type='text/javascript')


def _members(room: play_room.Room) -> responses.Response:
  """Returns a response with members that play in the page, if it knows them."""
  return responses.Response(room.members_script(), media_type='text/javascript')


def _answer(request: requests.Request, error: Any) -> responses.Response:
  del request
  return responses.PlainTextResponse(error.detail, error.status_code)


async def _serve_person(
  websocket: websockets.WebSocket, room: play_room.Room
) -> None:
  """Passes messages between a page and the room until either ends."""
  from ftwax.web import play_room  # Loaded by who made the room.

  await websocket.accept()
  unread: asyncio.Queue[Mapping[str, Any]] = asyncio.Queue(_MAX_UNREAD)
  too_slow = asyncio.Event()

  def send(message: Mapping[str, Any]) -> None:
    try:
      unread.put_nowait(message)
    except asyncio.QueueFull:
      too_slow.set()

  try:
    person = room.enter(send)
  except play_room.RequestError as error:
    await websocket.close(1013, str(error))
    return
  reason = ''
  try:
    async with anyio.create_task_group() as tasks:

      async def end_with(wait: Coroutine[Any, Any, str]) -> None:
        nonlocal reason
        reason = await wait
        tasks.cancel_scope.cancel()

      tasks.start_soon(end_with, _receive(websocket, room, person))
      tasks.start_soon(end_with, _send(websocket, unread))
      tasks.start_soon(end_with, _until(too_slow))
  finally:
    room.leave(person)
  if reason:
    with contextlib.suppress(RuntimeError, websockets.WebSocketDisconnect):
      await websocket.close(1008, reason)


async def _until(too_slow: asyncio.Event) -> str:
  await too_slow.wait()
  return 'The page did not read its messages in time; reload it.'


async def _receive(
  websocket: websockets.WebSocket,
  room: play_room.Room,
  person: play_room.Person,
) -> str:
  """Passes requests on; returns the reason to disconnect, '' if it left."""
  second, count = 0, 0
  while True:
    try:
      text = await websocket.receive_text()
    except (websockets.WebSocketDisconnect, KeyError):
      # A binary message has no text, hence the KeyError.
      return ''
    now = int(time.monotonic())
    second, count = now, count + 1 if now == second else 1
    if count > _MAX_MESSAGES_PER_SECOND:
      return 'The page sent too many messages; reload it.'
    try:
      if len(text) > _MAX_MESSAGE_LENGTH:
        raise ValueError
      message = json.loads(text)
    except (ValueError, RecursionError):
      # Deeply nested lists exceed the recursion limit.
      message = None
    room.request(person, message)


async def _send(
  websocket: websockets.WebSocket, unread: asyncio.Queue[Mapping[str, Any]]
) -> str:
  """Sends messages until the page disconnects."""
  try:
    while True:
      message = await unread.get()
      await websocket.send_text(json.dumps(message, separators=(',', ':')))
  except (RuntimeError, websockets.WebSocketDisconnect):
    return ''
