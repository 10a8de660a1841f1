"""Sizes and options of capture the flag."""

import dataclasses
from collections.abc import Sequence

# Minimum size for two bases with a free column between them.
_MIN_HEIGHT = 7
_MIN_WIDTH = 11
_MAX_TEAM_SIZE = 4

OBSERVATIONS = ('features', 'rgb')
ACTIONS = ('composite', 'flat')


@dataclasses.dataclass(frozen=True)
class CaptureTheFlagConfig:
  """Sizes and options of capture the flag.

  Periods and lengths are in steps; a step is one action of every player.

  Attributes:
    team_size: number of players in each of the two teams, 1 to 4.
    height: number of rows of the map, including its border; odd, at least 7.
    width: number of columns of the map, including its border; odd, at least 11.
    min_height: minimum number of rows of a map. Each game draws an odd number
      up to `height`; the rest of the grid is walls. None for `height`.
    min_width: minimum number of columns of a map, likewise.
    wall_density: probability of each possible wall, in [0, 1]; see `maps`.
    num_steps: length of a game.
    tag_range: number of cells ahead that a tag reaches.
    tag_cooldown: steps after a tag during which a player cannot tag again.
    respawn_period: number of steps that a tagged player waits.
    flag_return_period: steps after which a dropped flag returns to its stand.
    observation: 'features', a float32 vector, or 'rgb', a uint8 image.
    view_size: side, in cells, of the square that a player sees; odd.
    view_behind: number of rows of that square behind the player.
    compass: whether the 'features' observation includes positions of flags and
      stands outside the player's view. If False, agents must find and remember
      them, as with the 'rgb' observation.
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

  team_size: int = 2
  height: int = 11
  width: int = 13
  min_height: int | None = None
  min_width: int | None = None
  wall_density: float = 0.6
  num_steps: int = 300
  tag_range: int = 4
  tag_cooldown: int = 3
  respawn_period: int = 10
  flag_return_period: int = 40
  observation: str = 'features'
  view_size: int = 7
  view_behind: int = 2
  compass: bool = True
  cue_steps: int = 0
  max_cue_steps: int | None = None
  tile_size: int = 6
  action: str = 'composite'

  @property
  def num_players(self) -> int:
    """`P`, number of players of both teams."""
    return 2 * self.team_size

  @property
  def teams(self) -> tuple[int, ...]:
    """The team of each player: the first half is team 0."""
    return (0,) * self.team_size + (1,) * self.team_size

  def __post_init__(self) -> None:
    self._check_range('team_size', 1, _MAX_TEAM_SIZE)
    self._check_odd('height', _MIN_HEIGHT)
    self._check_odd('width', _MIN_WIDTH)
    if self.min_height is not None:
      self._check_odd('min_height', _MIN_HEIGHT, self.height)
    if self.min_width is not None:
      self._check_odd('min_width', _MIN_WIDTH, self.width)
    self._check_range('wall_density', 0, 1)
    for name in (
      'num_steps',
      'tag_range',
      'respawn_period',
      'flag_return_period',
      'tile_size',
    ):
      self._check_range(name, 1)
    self._check_range('tag_cooldown', 0)
    self._check_range('cue_steps', 0, self.num_steps)
    if self.max_cue_steps is not None:
      self._check_range('max_cue_steps', self.cue_steps, self.num_steps)
    self._check_odd('view_size', 3)
    self._check_range('view_behind', 0, self.view_size - 1)
    self._check_choice('observation', OBSERVATIONS)
    self._check_choice('action', ACTIONS)

  def _check_range(
    self, name: str, low: float, high: float | None = None
  ) -> None:
    value = getattr(self, name)
    if value < low or (high is not None and value > high):
      demand = f'at least {low}' if high is None else f'from {low} to {high}'
      raise ValueError(
        f'{name} ({value}) of capture the flag must be {demand}; choose'
        f' e.g. {low}.'
      )

  def _check_odd(self, name: str, low: int, high: int | None = None) -> None:
    value = getattr(self, name)
    if value % 2 and low <= value and (high is None or value <= high):
      return
    demand = f'at least {low}' if high is None else f'from {low} to {high}'
    nearest = max(low, value + 1 - value % 2)
    raise ValueError(
      f'{name} ({value}) of capture the flag must be odd and {demand}; choose'
      f' e.g. {nearest if high is None else min(nearest, high)}.'
    )

  def _check_choice(self, name: str, choices: Sequence[str]) -> None:
    value = getattr(self, name)
    if value not in choices:
      raise ValueError(
        f'{name} ({value!r}) of capture the flag must be one of {choices};'
        f' choose e.g. {choices[0]!r}.'
      )
