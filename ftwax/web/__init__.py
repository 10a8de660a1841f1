"""Pages in the browser: to play against a population and to watch it learn.

The server sends states and numbers, the browser draws them. How a game is shown
is `environments.game_pages`, how it goes on `runtime.live_game`. In reading
order:

- `people`, `play_room`: seats, people and the clock of a game;
- `run_tail`: what a run writes, as far as it is new;
- `safeguards`: who may ask for anything;
- `web_app`, `watch_app`: the pages and their addresses;
- `web_server`: starts the server.
"""

from ftwax.web import web_server

__all__ = ('web_server',)
