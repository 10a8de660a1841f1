"""Sizes and options of capture the flag."""

import dataclasses

from ftwax import parts

# Minimum size for two bases with a free column between them.
_MIN_HEIGHT = 7
_MIN_WIDTH = 11

# Records name sizes, too: what is computed for a map of this size, with as many
# rays, takes some hundred megabytes.
_MAX_SIDE = 255
_MAX_VIEW = 63
MAX_RAYS = 768

OBSERVATIONS = ('features', 'rgb', 'rays', 'columns')


@dataclasses.dataclass(frozen=True)
class CaptureTheFlagConfig(parts.Part):
  """Sizes and options of capture the flag.

  Periods and lengths are in steps; a step is one action of every player.

  Attributes:
    team_size: number of players in each of the two teams, 1 to 4.
    height: number of rows of the map, including its border; odd, 7 to 255.
    width: number of columns of the map, including its border; odd, 11 to 255.
    min_height: minimum number of rows of a map. Each game draws an odd number
      up to `height`; the rest of the grid is walls. None for `height`.
    min_width: minimum number of columns of a map, likewise.
    wall_density: probability of each possible wall, in [0, 1]; see `maps`.
    num_steps: length of a game.
    tag_range: number of cells ahead that a tag reaches.
    tag_cooldown: steps after a tag during which a player cannot tag again.
    respawn_period: number of steps that a tagged player waits.
    flag_return_period: steps after which a dropped flag returns to its stand.
    observation: 'features', a float32 vector of the cells around a player, or
      'rgb', a uint8 image of them; in first person 'rays', a float32 vector, or
      'columns', a uint8 image of the same rays.
    num_rays: number of rays in first person; odd for one straight ahead, along
      which tags go. It is the width of 'columns' in pixels; two thirds of it
      are their height.
    view_angle: angle that the rays cover, in degrees, 30 to 170.
    team_state: whether observations have an entry `types.PRIVILEGED`, the whole
      state of the game, which a critic reads and no policy does.
    view_size: side, in cells, of the square that a player sees; odd, 3 to 63.
    view_behind: number of rows of that square behind the player.
    compass: whether 'features' and 'rays' include positions of flags and stands
      outside the player's view. If False, agents must find and remember them,
      as with images.
    cue_steps: if above 0, a game in two is reversed: players must tag as they
      capture a flag, and must not in the others, or the opponents score.
      Observations tell which for this number of steps at the start.
    max_cue_steps: if not None, each game draws its number of such steps between
      `cue_steps` and this.
    tile_size: height and width of a cell in the 'rgb' observation, in pixels.
    action: 'composite', a dict of move, turn and tag, or 'flat', an integer.

  Raises:
    ValueError: if a value is out of its range.
  """

  team_size: int = parts.option(2, low=1, high=4)
  height: int = 11
  width: int = 13
  min_height: int | None = None
  min_width: int | None = None
  wall_density: float = parts.option(0.6, low=0, high=1)
  num_steps: int = parts.option(300, low=1)
  tag_range: int = parts.option(4, low=1, high=_MAX_SIDE)
  tag_cooldown: int = parts.option(3, low=0)
  respawn_period: int = parts.option(10, low=1)
  flag_return_period: int = parts.option(40, low=1)
  observation: str = parts.option('features', choices=OBSERVATIONS)
  num_rays: int = parts.option(49, low=3, high=MAX_RAYS)
  view_angle: int = parts.option(120, low=30, high=170)
  team_state: bool = False
  view_size: int = 7
  view_behind: int = 2
  compass: bool = True
  cue_steps: int = 0
  max_cue_steps: int | None = None
  tile_size: int = parts.option(6, low=1, high=64)
  action: str = parts.option('composite', choices=('composite', 'flat'))

  @property
  def num_players(self) -> int:
    """`P`, number of players of both teams."""
    return 2 * self.team_size

  @property
  def teams(self) -> tuple[int, ...]:
    """The team of each player: the first half is team 0."""
    return (0,) * self.team_size + (1,) * self.team_size

  def __post_init__(self) -> None:
    """Checks values and those that depend on others."""
    super().__post_init__()
    self._check('height', _MIN_HEIGHT, _MAX_SIDE, is_odd=True)
    self._check('width', _MIN_WIDTH, _MAX_SIDE, is_odd=True)
    self._check('min_height', _MIN_HEIGHT, self.height, is_odd=True)
    self._check('min_width', _MIN_WIDTH, self.width, is_odd=True)
    self._check('view_size', 3, _MAX_VIEW, is_odd=True)
    self._check('view_behind', 0, self.view_size - 1)
    self._check('cue_steps', 0, self.num_steps)
    self._check('max_cue_steps', self.cue_steps, self.num_steps)

  def _check(
    self, name: str, low: int, high: int, is_odd: bool = False
  ) -> None:
    value = getattr(self, name)
    is_fit = value is None or (low <= value <= high and value % 2 >= is_odd)
    if not is_fit:
      odd = 'odd and ' if is_odd else ''
      nearest = max(low, value + 1 - value % 2) if is_odd else low
      raise ValueError(
        f'{name} ({value}) of capture the flag must be {odd}from {low} to'
        f' {high}; choose e.g. {min(nearest, high)}.'
      )
