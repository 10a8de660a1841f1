"""The page that follows runs, with rooms for games between their members."""

import asyncio
import importlib.resources
from collections.abc import Callable, Sequence
from typing import Any

from starlette import exceptions, requests, responses, routing, websockets

from ftwax.reporting import report, saved_games
from ftwax.web import play_room, run_tail, web_app


class _Rooms:
  """One room for each run.

  When somebody enters an empty room, it is renewed if there is a newer
  checkpoint.
  """

  def __init__(self, make_room: Callable[[str], play_room.Room]):
    self._make_room = make_room
    self._made: dict[int, tuple[str | None, play_room.Room]] = {}
    self._lock = asyncio.Lock()

  @property
  def made(self) -> list[play_room.Room]:
    """The rooms made so far."""
    return [room for _, room in self._made.values()]

  async def find(self, index: int, tail: run_tail.RunTail) -> play_room.Room:
    """Returns the room of a run.

    Raises:
      Exception: if no agent can be made from the directory.
    """
    # Two people who enter at once must find the same room.
    async with self._lock:
      newest = run_tail.newest_checkpoint(tail.directory)
      checkpoint, room = self._made.get(index, (None, None))
      if room is None or (room.is_empty and checkpoint != newest):
        if room is not None:
          await room.close()
        room = await asyncio.to_thread(self._make_room, str(tail.directory))
        self._made[index] = newest, room
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

  async def list_runs(request: requests.Request) -> responses.Response:
    del request
    facts = [await asyncio.to_thread(tail.facts) for tail in tails]
    return responses.JSONResponse(facts)

  async def logs(request: requests.Request) -> responses.Response:
    tail = tail_of(request.path_params['index'])
    offsets = {
      label: int(offset)
      for label, offset in request.query_params.items()
      if offset.isdecimal() and len(offset) < 20
    }
    return responses.JSONResponse(await asyncio.to_thread(tail.read, offsets))

  async def read_report(request: requests.Request) -> responses.Response:
    return await _read_report(tail_of(request.path_params['index']))

  async def play(request: requests.Request) -> responses.Response:
    tail_of(request.path_params['index'])
    return await web_app.page('play.html')(request)

  async def room(websocket: websockets.WebSocket) -> None:
    index = websocket.path_params['index']
    try:
      found = await rooms.find(index, tail_of(index))
    except Exception as error:  # A damaged run may raise anything.
      await websocket.accept()
      await websocket.send_json({'error': str(error)[:500]})
      await websocket.close(1011, 'Games of this run cannot be played.')
      return
    await web_app.serve_person(websocket, found)

  async def script(request: requests.Request) -> responses.Response:
    index = request.path_params['index']
    return web_app.script(await rooms.find(index, tail_of(index)))

  routes = [
    routing.Route('/', web_app.page('watch.html')),
    routing.Route('/runs', list_runs),
    routing.Route('/runs/{index:int}/logs', logs),
    routing.Route('/runs/{index:int}/report', read_report),
    routing.Route('/runs/{index:int}/play', play),
    routing.Route('/runs/{index:int}/script.js', script),
    routing.WebSocketRoute('/runs/{index:int}/room', room),
    routing.Route('/plotly.min.js', _plotly),
    *web_app.shared_routes(saved),
  ]
  return web_app.make_app(routes, lambda: rooms.made, host, token)


async def _read_report(tail: run_tail.RunTail) -> responses.Response:
  path = tail.directory / report.REPORT_FILE
  try:
    text = await asyncio.to_thread(path.read_text, 'utf-8', 'replace')
  except OSError as error:
    raise exceptions.HTTPException(404, str(error)) from None
  return web_app.own_page(text)


async def _plotly(request: requests.Request) -> responses.Response:
  del request
  package = importlib.resources.files('plotly') / 'package_data'
  with importlib.resources.as_file(package / 'plotly.min.js') as path:
    return responses.FileResponse(path)
