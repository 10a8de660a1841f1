"""Paints the whole map for films, as `capture_the_flag.js` draws it in pages.

An image is a grid of square tiles, one for each combination of ground, player
with its direction and number, and flag. They are painted once, so a picture is
a lookup in a table, which JAX compiles.
"""

import functools
import math
from typing import Any, TypeAlias

import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from ftwax import import_guard, types
from ftwax.environments.capture_the_flag import game_config as config_lib
from ftwax.environments.capture_the_flag import maps, rendering, rules

_Config: TypeAlias = config_lib.CaptureTheFlagConfig

Color = tuple[int, int, int]

# The colours of the light pages: `reporting/static/style.css`.
FLOOR, WALL, PAD = (222, 215, 198), (74, 71, 78), (185, 176, 157)
TEAMS = ((28, 74, 190), (190, 38, 30))
_NOSE, _INK = (255, 255, 255), (29, 28, 26)

# The meaning of the colours.
LEGEND = (
  ('blue team and its flag', TEAMS[0]),
  ('red team and its flag', TEAMS[1]),
)

# Grounds: floor, wall and pad as in `maps`, and the stands of two teams.
_NUM_GROUNDS = maps.STAND + 2

# A flag is 0 for none, else 1 + team.
_NUM_FLAGS = 1 + 2

# Shapes are painted larger, and scaled down for smooth edges.
_OVERSAMPLING = 4


def render(
  state: rules.State, config: _Config, tile_size: int = 32
) -> types.Array:
  """Paints the whole map.

  Args:
    state: state of one game.
    config: config of the game.
    tile_size: height and width of a cell, in pixels.

  Returns:
    uint8 [height * tile_size, width * tile_size, 3].
  """
  num_cells = config.height * config.width
  cell = jnp.where(state.waiting == 0, state.cell, -1)
  players = np.arange(config.num_players)
  figure = rendering.mark(
    cell, 1 + 4 * players + state.direction, num_cells
  )  # 0 for none.
  flag = rendering.mark(state.flag_cell, np.array([1, 2]), num_cells)
  stand = rendering.mark(state.map.stands, np.array([0, 1]), num_cells)
  tiles = state.map.tiles.reshape(-1).astype(jnp.int32)
  ground = jnp.where(tiles == maps.STAND, maps.STAND + stand, tiles)
  num_figures = 1 + 4 * config.num_players
  code = (ground * num_figures + figure) * _NUM_FLAGS + flag
  table = _make_tiles(tile_size, tuple(config.teams))
  return rendering.lay(table, code.reshape(config.height, config.width))


@functools.lru_cache
def _make_tiles(size: int, teams: tuple[int, ...]) -> npt.NDArray[np.uint8]:
  """Paints the tile of each code, uint8 [num_codes, size, size, 3]."""
  figures: list[tuple[int, int] | None] = [None]
  figures += [(p, turn) for p in range(len(teams)) for turn in range(4)]
  return np.stack(
    [
      _make_tile(size, ground, figure, flag, teams)
      for ground in range(_NUM_GROUNDS)
      for figure in figures
      for flag in range(_NUM_FLAGS)
    ]
  )


def _make_tile(
  size: int,
  ground: int,
  figure: tuple[int, int] | None,
  flag: int,
  teams: tuple[int, ...],
) -> npt.NDArray[np.uint8]:
  """Paints a tile; `figure` is the index of a player and its direction."""
  with import_guard.guarded():
    from PIL import Image, ImageDraw  # Only for films.

  scale = _OVERSAMPLING * size
  is_stand = ground >= maps.STAND
  color = FLOOR if is_stand else (FLOOR, WALL, PAD)[ground]
  image = Image.new('RGB', (scale, scale), color)
  draw = ImageDraw.Draw(image)
  if is_stand:
    ends = [0.09 * scale, 0.09 * scale, 0.91 * scale, 0.91 * scale]
    draw.rectangle(ends, outline=TEAMS[ground - maps.STAND], width=scale // 10)
  if figure is not None:
    player, direction = figure
    team = TEAMS[teams[player]]
    _draw_figure(draw, scale, team, direction, str(player + 1))
  if flag:
    _draw_flag(draw, scale, TEAMS[flag - 1], figure is not None)
  small = image.resize((size, size), Image.Resampling.BOX)
  return np.asarray(small, np.uint8)


def _draw_figure(
  draw: Any, scale: int, color: Color, direction: int, label: str
) -> None:
  """Draws a player with its number, as `figure` in the script does."""
  with import_guard.guarded():
    from PIL import ImageFont

  ends = [0.14 * scale, 0.14 * scale, 0.86 * scale, 0.86 * scale]
  draw.rounded_rectangle(ends, radius=0.14 * scale, fill=color)
  angle = direction * math.pi / 2

  def turned(x: float, y: float) -> tuple[float, float]:
    east = x * math.cos(angle) - y * math.sin(angle)
    south = x * math.sin(angle) + y * math.cos(angle)
    return (0.5 + east) * scale, (0.5 + south) * scale

  nose = [turned(0.0, -0.36), turned(0.18, -0.1), turned(-0.18, -0.1)]
  draw.polygon(nose, fill=_NOSE)
  font = ImageFont.load_default(0.4 * scale)
  draw.text(turned(0.0, 0.14), label, _NOSE, font, anchor='mm')


def _draw_flag(draw: Any, scale: int, color: Color, is_carried: bool) -> None:
  """Draws a flag; one that is carried is small, above the carrier's corner."""
  x, size, foot = (0.4, 0.7, 0.6) if is_carried else (0.0, 1.0, 0.9)

  def place(east: float, south: float) -> tuple[float, float]:
    return (x + size * east) * scale, size * south * scale

  cloth = [place(0.3, 0.12), place(0.85, 0.32), place(0.3, 0.52)]
  width = max(round(0.05 * size * scale), 1)
  edge = _NOSE if is_carried else _INK
  draw.polygon(cloth, fill=color, outline=edge, width=width)
  draw.line([place(0.3, 0.12), place(0.3, foot)], fill=edge, width=width)
