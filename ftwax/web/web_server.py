"""Starts the server: finds the game of a run, prints the link, serves."""

import functools
import pathlib
import secrets
import socket
import sys
import threading
from collections.abc import Sequence
from typing import Any

from ftwax import types
from ftwax.environments import capture_the_flag, catch, functional, games
from ftwax.records import game_files
from ftwax.runtime import loading
from ftwax.web import (
  cast,
  game_pages,
  live_game,
  play_room,
  run_tail,
  safeguards,
  saved_games,
  watch_app,
  web_app,
)

_PETTINGZOO = 'pettingzoo:'

# Where pages are served, unless something else is there.
_PORT = 8700

# Above what a page sends; longer messages end the connection.
_MAX_MESSAGE_BYTES = 65536


def make_playable(source: str) -> live_game.PlayableGame:
  """Finds a game and who can play it.

  Args:
    source: a population that comes with the library, such as
      'capture_the_flag'; the directory of a run; 'catch', without a
      population; or 'pettingzoo:' and the name of a parallel environment,
      such as 'pettingzoo:butterfly/cooperative_pong-v6'.

  Raises:
    ValueError: if there is no such thing, or no page for its game.
  """
  if source.startswith(_PETTINGZOO):
    return _pettingzoo_game(source.removeprefix(_PETTINGZOO))
  if source == 'catch':
    return make_catch(None)
  spec = game_files.read(loading.find(source))
  if spec.event_names == capture_the_flag.EVENT_NAMES:
    return make_capture_the_flag(spec, source)
  if _is_catch(spec):
    return make_catch(source, *spec.environment.observations.shape)
  raise ValueError(
    f'the game of {source} must be capture the flag or catch to be found by its'
    ' records; pass any other one to ftwax.web.web_server.serve from Python.'
  )


def make_capture_the_flag(
  spec: games.GameSpec, source: str
) -> live_game.PlayableGame:
  """Makes capture the flag with a population."""
  config = game_pages.capture_the_flag_config(spec.environment, spec.team_size)
  game = capture_the_flag.make(config)
  return live_game.PlayableGame(
    'capture the flag',
    game,
    game_pages.capture_the_flag_page(config),
    cast.Cast(spec, game.scripts, source),
  )


def make_catch(
  source: str | None, rows: int = 10, columns: int = 5
) -> live_game.PlayableGame:
  """Makes catch, with or without a population."""
  game = functional.as_game(catch.make(rows, columns))
  spec = games.GameSpec(game.spec, game.teams, game.event_names)
  return live_game.PlayableGame(
    'catch',
    game,
    game_pages.catch_page(rows, columns),
    cast.Cast(spec, {}, source),
  )


def make_rendered(
  name: str, game: games.GameEnvironment, render: Any, source: str | None = None
) -> live_game.PlayableGame:
  """Makes any game in Python of the frames that it renders.

  Args:
    name: shown to people.
    game: the game.
    render: returns the present frame, uint8 [H, W, 3].
    source: of members, if there are any.
  """
  spec = games.GameSpec(
    types.make_environment_spec(game),
    tuple(game.teams),
    tuple(game.event_names),
  )
  page = game_pages.frames_page(render, spec.environment.actions)
  return live_game.PlayableGame(name, game, page, cast.Cast(spec, {}, source))


def play(
  playable: live_game.PlayableGame,
  save_dir: str = 'runs/games',
  host: str = '127.0.0.1',
  port: int | None = None,
) -> None:
  """Serves a game until Ctrl-C.

  Args:
    playable: the game.
    save_dir: where games are saved.
    host: address to serve on. Others than loopback need the token in the link.
    port: 8700, or any other if that is not free, by default.

  Raises:
    ValueError: if the address cannot be served on.
  """
  saved = saved_games.SavedGames(pathlib.Path(save_dir))
  room = play_room.Room(playable, saved)
  make_app = functools.partial(web_app.make_play_app, room, saved)
  serve(make_app, host, port)


def watch(
  directories: Sequence[str],
  save_dir: str = 'runs/games',
  host: str = '127.0.0.1',
  port: int | None = None,
  end_with_input: bool = False,
) -> None:
  """Serves a page that follows runs until Ctrl-C.

  Args:
    directories: of runs, which may not have begun yet; none for the newest.
    save_dir: see `play`.
    host: likewise.
    port: likewise.
    end_with_input: see `serve`.

  Raises:
    ValueError: if there is no run, or the address cannot be served on.
  """
  if not directories:
    directories = [str(run_tail.newest_run(pathlib.Path('runs')))]
  saved = saved_games.SavedGames(pathlib.Path(save_dir))
  make_app = functools.partial(
    watch_app.make_watch_app,
    [run_tail.RunTail(directory) for directory in directories],
    lambda directory: play_room.Room(make_playable(directory), saved),
    saved,
  )
  serve(make_app, host, port, end_with_input)


def serve(
  make_app: Any, host: str, port: int | None, end_with_input: bool = False
) -> None:
  """Serves an application until Ctrl-C, and prints its link.

  Args:
    make_app: makes it of a host and a token.
    host: see `play`.
    port: likewise.
    end_with_input: ends when standard input does, in place of Ctrl-C.

  Raises:
    ValueError: if the address cannot be served on.
  """
  import uvicorn

  token = None if safeguards.is_loopback(host) else secrets.token_urlsafe(16)
  listening = _listen(host, port)
  port = listening.getsockname()[1]
  query = f'?token={token}' if token else ''
  shown = f'[{host}]' if ':' in host else host
  end = '' if end_with_input else ' (Ctrl-C ends)'
  print(f'Open http://{shown}:{port}/{query}{end}', flush=True)
  config = uvicorn.Config(
    make_app(host, token),
    log_level='warning',
    ws='websockets-sansio',
    ws_max_size=_MAX_MESSAGE_BYTES,
    timeout_graceful_shutdown=1,
  )
  server = uvicorn.Server(config)

  def wait_for_the_end() -> None:
    sys.stdin.read()
    server.should_exit = True

  if end_with_input:
    threading.Thread(target=wait_for_the_end, daemon=True).start()
  server.run([listening])


def _listen(host: str, port: int | None) -> socket.socket:
  """Returns a socket that listens; see `play`."""
  family = socket.AF_INET6 if ':' in host else socket.AF_INET
  ports = (_PORT, 0) if port is None else (port,)
  for candidate in ports:
    try:
      address = (host.strip('[]'), candidate)
      return socket.create_server(address, family=family)
    except OSError as error:
      reason = error
  raise ValueError(
    f'address ({host}, port {ports[-1]}) must be free and of this machine, but:'
    f' {reason}; choose another port, or 0 for any.'
  )


def _is_catch(spec: games.GameSpec) -> bool:
  shape = getattr(spec.environment.observations, 'shape', ())
  return len(shape) == 2 and spec.environment == catch.make(*shape).spec


def _pettingzoo_game(name: str) -> live_game.PlayableGame:
  from ftwax.environments import pettingzoo_adapter

  try:
    import pettingzoo

    env = pettingzoo.make('parallel', name, render_mode='rgb_array')
  except Exception as error:  # PettingZoo and what it imports have their own.
    raise ValueError(
      f'game ({_PETTINGZOO}{name}) must be a parallel environment of PettingZoo'
      f' whose packages are installed, but: {error}; choose e.g.'
      f' {_PETTINGZOO}butterfly/cooperative_pong-v6.'
    ) from None
  game = pettingzoo_adapter.PettingZooGame(env)
  return make_rendered(name, game, env.render)
