"""Pages in the browser: to play against a population and to watch it learn.

The server sends states and numbers, the browser draws them. In reading order:

- `game_pages`: how a page shows a game and which keys play it;
- `cast`: members, scripts and others that take seats without a person;
- `live_game`: a game in progress;
- `saved_games`: games as files, as pages of their own, and ratings of people;
- `play_room`: seats, people and the clock of a game;
- `safeguards`: who may ask for anything;
- `web_app`: the pages and their addresses;
- `web_server`: starts the server.
"""

from ftwax.web import game_pages, web_server

__all__ = ('game_pages', 'web_server')
