"""Melting Pot's `paintball__capture_the_flag` with a reward of thirteen events.

The events equal those of the built-in capture the flag, so the same internal
rewards apply to both games. `draw_map` draws maps with the generator of the
built-in game. Players observe top-down RGB images, which are black for 81 steps
after they were tagged.
"""

import importlib
import random
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy import typing as npt

from ftwax.environments import capture_the_flag, meltingpot_adapter
from ftwax.environments.capture_the_flag import events as flag_events
from ftwax.environments.capture_the_flag import maps, rules

_PAINTBALL = 'paintball__capture_the_flag'
_TILES = {maps.FLOOR: ',', maps.WALL: 'W'}
_PADS = 'PQ'  # Spawn points of the red and the blue team.
_FLAGS = 'FG'


def paintball_events(teams: Sequence[int]) -> meltingpot_adapter.Events:
  """Returns the rules that count the thirteen events of paintball.

  Args:
    teams: the team of each player, 0 (red) on even seats and 1 (blue) on odd
      ones, as in the substrate.
  """
  num_players = len(teams)

  def count(
    happened: Sequence[meltingpot_adapter.Event],
  ) -> npt.NDArray[np.float32]:
    if not happened:
      return np.zeros((num_players, len(flag_events.EVENT_NAMES)), np.float32)
    deeds = _paintball_deeds(happened, num_players)
    return np.asarray(flag_events.count(deeds, teams))

  return meltingpot_adapter.Events(
    flag_events.EVENT_NAMES, count, 'i_captured_the_flag'
  )


def make_paintball(
  seed: int,
  team_size: int = 2,
  num_steps: int = 1000,
  ascii_map: str | None = None,
) -> meltingpot_adapter.MeltingPotGame:
  """Makes `paintball__capture_the_flag` with its thirteen events.

  Args:
    seed: seed of the substrate. Does not fully determine a game: two runs of
      Melting Pot 2.2 with the same seed place players differently.
    team_size: number of players in each of the two teams, at least 1.
    num_steps: length of a game, in steps.
    ascii_map: a map in the letters of the substrate, see `draw_map`; by default
      the substrate's map, for four against four.

  Raises:
    ImportError: if Melting Pot is not installed.
    ValueError: if `team_size` is not positive.
  """
  if team_size < 1:
    raise ValueError(
      f'team_size ({team_size}) of paintball must be at least 1; choose e.g. 2.'
    )
  substrate_lib = _import_substrate()
  config = substrate_lib.get_config(_PAINTBALL)
  build = config.lab2d_settings_builder

  def build_with_changes(*, config: Any, roles: Any) -> dict[str, Any]:
    settings = dict(build(config=config, roles=roles))
    settings['maxEpisodeLengthFrames'] = num_steps
    if ascii_map is not None:
      settings['simulation'] = {**settings['simulation'], 'map': ascii_map}
    return settings

  with config.unlocked():
    config.lab2d_settings_builder = build_with_changes
  # Melting Pot draws its seed from Python's global generator.
  generator_state = random.getstate()
  random.seed(seed)
  try:
    substrate = substrate_lib.build_from_config(
      config, roles=['default'] * (2 * team_size)
    )
  finally:
    random.setstate(generator_state)
  teams = (0, 1) * team_size
  return meltingpot_adapter.MeltingPotGame(
    substrate, teams, paintball_events(teams), ('RGB', 'READY_TO_SHOOT')
  )


def draw_map(seed: int, height: int = 9, width: int = 13) -> str:
  """Draws a map of the built-in capture the flag in paintball's letters.

  Args:
    seed: seed of the map.
    height: number of rows, without the frame that shows who holds the flags;
      odd and at least 7.
    width: number of columns, without the frame; odd and at least 11.

  Returns:
    Lines of letters, with four spawn points for each team.
  """
  config = capture_the_flag.CaptureTheFlagConfig(
    team_size=4, height=height, width=width
  )
  make_map = jax.jit(maps.make_map, static_argnums=1)
  drawn = jax.device_get(make_map(jax.random.PRNGKey(seed), config))
  letters = np.vectorize(lambda tile: _TILES.get(tile, ','))(drawn.tiles)
  for team in range(2):
    pads = drawn.pads[np.array(config.teams) == team]
    letters.flat[pads] = _PADS[team]
    letters.flat[drawn.stands[team]] = _FLAGS[team]
  framed = np.pad(letters, 1, constant_values='I')
  return '\n' + '\n'.join(''.join(row) for row in framed) + '\n'


def _import_substrate() -> Any:
  try:
    return importlib.import_module('meltingpot.substrate')
  except ImportError as error:
    raise ImportError(
      f'Melting Pot must be importable for this environment ({error}); install'
      ' it by the recipe in the docstring of'
      ' ftwax.environments.meltingpot_adapter.'
    ) from error


def _paintball_deeds(
  happened: Sequence[meltingpot_adapter.Event], num_players: int
) -> rules.Deeds:
  """Translates the events of a step, in which players count from one."""
  tagged = np.zeros((num_players, num_players), bool)
  flags = {
    name: np.zeros(num_players, bool)
    for name in ('flag_picked_up', 'flag_returned', 'flag_captured')
  }
  had_flag = np.zeros(num_players, bool)
  target = None
  for name, items in happened:
    if name == 'zap':
      target = int(items['target']) - 1
      tagged[int(items['source']) - 1, target] = True
    elif name == 'zapped_flag_carrier' and target is not None:
      had_flag[target] = True  # This event follows the zap that caused it.
    elif name in flags:
      flags[name][int(items['player_index']) - 1] = True
  deeds = (tagged, had_flag, *flags.values())
  return rules.Deeds(*map(jnp.asarray, deeds))
