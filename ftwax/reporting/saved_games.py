"""Games as files: to play back, to share as a page, and to rate people.

A file holds the states that were sent to the page, the script that draws them,
and the seed and actions that lead to the same states in the environment.
"""

import datetime
import json
import pathlib
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ftwax import import_guard
from ftwax.records import files
from ftwax.reporting import page

FORMAT = 'ftwax game 1'

# Directory of the games for a run's report, in the run's directory.
GAMES_DIRECTORY = 'games'

# Where the library's games have the scripts that draw them.
_DRAWINGS = pathlib.Path(__file__).parents[1] / 'environments'

_ID = re.compile(r'\d{8}-\d{6}-[A-Za-z0-9_]+(-\d+)?')
_FIELDS = (
  'game', 'script', 'code', 'facts', 'seats', 'states', 'outcome', 'time'
)  # fmt: skip
_SEAT_FIELDS = ('name', 'kind', 'team', 'rating')

# A person's initial rating, and its K-factor per game.
_FIRST_RATING = 1000.0
_K_FACTOR = 32.0


class SavedGames:
  """The games in a directory."""

  def __init__(self, directory: pathlib.Path):
    """Opens the directory, which need not exist yet."""
    self._directory = directory

  def save(self, game: Mapping[str, Any]) -> str:
    """Writes a game and returns its name."""
    self._directory.mkdir(parents=True, exist_ok=True)
    now = datetime.datetime.now(datetime.timezone.utc)
    stem = f'{now:%Y%m%d-%H%M%S}-{re.sub("[^A-Za-z0-9]+", "_", game["game"])}'
    name, copy = stem, 1
    while (self._directory / f'{name}.json').exists():
      copy += 1
      name = f'{stem}-{copy}'
    content = {
      'format': FORMAT, 'time': now.isoformat(timespec='seconds'), **game
    }  # fmt: skip
    text = json.dumps(content, separators=(',', ':'), allow_nan=False)
    files.write_atomically(self._directory / f'{name}.json', text + '\n')
    return name

  def read(self, name: str) -> dict[str, Any]:
    """Returns a game.

    Raises:
      ValueError: if there is no such game or its file is damaged.
    """
    path = self._directory / f'{name}.json'
    if not _ID.fullmatch(name) or not path.is_file():
      raise ValueError(
        f'game ({name}) must be one of the saved games; choose it from the list'
        ' of games.'
      )
    return files.parse_json(path, _checked, 'a saved game')

  def readable(self) -> list[tuple[str, dict[str, Any]]]:
    """Returns games with their names, the latest first, within a limit.

    Those that are damaged are left out, with a warning, and so are the oldest
    beyond `files.MAX_BYTES` of all together.
    """
    names = [path.stem for path in self._directory.glob('*.json')]
    found, size = [], 0
    for name in sorted(filter(_ID.fullmatch, names), key=_order, reverse=True):
      size += (self._directory / f'{name}.json').lstat().st_size
      if size > files.MAX_BYTES:
        warnings.warn(
          f'Left out: {name} and older games, since those of {self._directory}'
          f' have more than {files.MAX_BYTES} bytes; delete some.',
          files.DamagedRecordWarning,
          stacklevel=2,
        )
        break
      game = files.read_or_warn(self.read, name)
      if game is not None:
        found.append((name, game))
    return found

  def rate(self, person: str) -> tuple[float, int]:
    """Returns a person's Elo points and the number of games that counted."""
    played = [game for _, game in reversed(self.readable())]
    return rate(played, person)


def _order(name: str) -> tuple[Any, ...]:
  date, time, game, *copy = name.split('-')
  return date, time, game, int(copy[0]) if copy else 1


def _checked(plain: Any) -> dict[str, Any]:
  if plain['format'] != FORMAT:
    raise ValueError(f'format ({plain["format"]}) must be {FORMAT!r}')
  missing = [field for field in _FIELDS if field not in plain]
  if missing:
    raise ValueError(f'fields {missing} must be there')
  script = plain['script']
  if not isinstance(script, str) or not script.isidentifier():
    raise ValueError(f'script ({plain["script"]!r}) must be a name')
  for seat in plain['seats']:
    missing = [field for field in _SEAT_FIELDS if field not in seat]
    if missing:
      raise ValueError(f'fields {missing} of a seat must be there')
  return dict(plain)


def rate(played: Iterable[Mapping[str, Any]], person: str) -> tuple[float, int]:
  """Rates a person by games of two teams, in the given order.

  All other players keep the ratings that the games record.

  Returns:
    Elo points, initially 1000, and the number of games that counted.
  """
  with import_guard.guarded():
    import jax.numpy as jnp  # Slow imports.

  from ftwax.population import ratings

  rating, num_games = _FIRST_RATING, 0
  for game in played:
    seats = game['seats']
    teams = [seat['team'] for seat in seats]
    is_person = np.array(
      [seat['kind'] == 'person' and seat['name'] == person for seat in seats]
    )
    sides = set(np.array(teams)[is_person].tolist())
    if set(teams) != {0, 1} or len(sides) != 1:
      continue  # Not two teams, or the person is in neither or both.
    sign = np.where(np.array(teams) == 0, 1.0, -1.0)
    others = np.array([seat['rating'] for seat in seats])
    known = np.where(is_person, rating, others)
    scores = ratings.pair_scores(jnp.asarray(game['outcome']))
    updated = ratings.update(
      jnp.asarray(known), jnp.asarray(sign)[None], scores, _K_FACTOR
    )
    rating = float(np.asarray(updated)[is_person].mean())
    num_games += 1
  return rating, num_games


def own_scripts(more: Iterable[pathlib.Path] = ()) -> dict[str, str]:
  """Returns the code of scripts that draw games, by the names of their files.

  A saved game brings the script that drew it, which may come from anybody. It
  is not run: these are, those of the library and of the user's own games.

  Args:
    more: scripts of games that the user's code has made.
  """
  paths = [*sorted(_DRAWINGS.rglob('*.js')), *more]
  return {path.stem: path.read_text('utf-8') for path in paths}


def to_html(game: Mapping[str, Any], scripts: Mapping[str, str]) -> str:
  """Returns a self-contained page that plays back a game.

  Args:
    game: a saved game.
    scripts: see `own_scripts`.
  """
  title = f'{game["game"]}, {game["time"][:10]}'
  part, used = make_player([game], scripts)
  return page.render(title, [part], used)


def make_player(
  played: Sequence[Mapping[str, Any]], scripts: Mapping[str, str]
) -> tuple[str, list[str]]:
  """Returns a part of a page in which games are chosen and played back.

  Args:
    played: saved games.
    scripts: see `own_scripts`.

  Returns:
    The part, and its scripts; see `page.render`.
  """
  shown = [
    {**game, 'code': None, 'actions': None}
    for game in played
    if game['script'] in scripts
  ]
  unknown = sorted({game['script'] for game in played} - {*scripts})
  parts = []
  if unknown:
    parts.append(
      page.paragraph(
        f'Games drawn by {", ".join(unknown)} are left out: that script came'
        ' with the records, and scripts of records are not run. If the game is'
        ' yours, give its code with --experiment.'
      )
    )
  if not shown:
    return '\n'.join(parts), []
  used = list(
    {game['script']: scripts[game['script']] for game in shown}.values()
  )
  used.append(page.read_static('replay.js'))
  parts += ['<div id="replay"></div>', page.data(shown, 'id="games"')]
  return '\n'.join([*parts, *map(page.script, used)]), used
