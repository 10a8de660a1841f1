"""Web pages to play against a population and to watch it learn.

The server sends states and numbers, and the browser draws them.
`environments.game_pages` defines how a game is displayed, `inference.live_game`
steps it. In reading order:

- `play_room`: seats, people and the clock of a game;
- `run_tail`: reads new rows of a run's files;
- `safeguards`: restricts access to the server;
- `pages`: the pages and their URLs;
- `server`: starts the server.
"""

from typing import TYPE_CHECKING

from ftwax import submodules

if TYPE_CHECKING:
  from ftwax.web import server
else:
  __getattr__, __dir__ = submodules.on_first_use(__name__)

__all__ = ('server',)
