"""Capture the flag in the browser: its page and keys."""

import functools
import pathlib
from collections.abc import Mapping
from typing import Any, TypeAlias

import jax.numpy as jnp
import numpy as np

from ftwax import types
from ftwax.environments import game_pages
from ftwax.environments.capture_the_flag import actions, features, maps, rules
from ftwax.environments.capture_the_flag import game_config as config_lib

_Config: TypeAlias = config_lib.CaptureTheFlagConfig

# Arrows move on the map; letters relative to the direction of the player.
_KEYS = (
  game_pages.Key(('ArrowUp',), 'up', maps.NORTH, 'go'),
  game_pages.Key(('ArrowLeft',), 'left', maps.WEST, 'go'),
  game_pages.Key(('ArrowDown',), 'down', maps.SOUTH, 'go'),
  game_pages.Key(('ArrowRight',), 'right', maps.EAST, 'go'),
  game_pages.Key(('Space',), 'tag', 1, 'tag'),
  game_pages.Key(('KeyW',), 'ahead', 1, 'move'),
  game_pages.Key(('KeyS',), 'back', 2, 'move'),
  game_pages.Key(('KeyA',), 'step left', 3, 'move'),
  game_pages.Key(('KeyD',), 'step right', 4, 'move'),
  game_pages.Key(('KeyQ',), 'turn left', 1, 'turn', repeats=False),
  game_pages.Key(('KeyE',), 'turn right', 2, 'turn', repeats=False),
)

# Turn and move that go one, two or three quarter turns to the right.
_QUARTERS = (
  {'move': 1},
  {'turn': 2, 'move': 1},
  {'turn': 2, 'move': 4},
  {'turn': 1, 'move': 1},
)

# Options of the game that the page reads.
_FACTS = (
  'width',
  'height',
  'teams',
  'num_steps',
  'tag_cooldown',
  'tag_range',
  'respawn_period',
  'view_size',
  'view_behind',
  'view_angle',
)

# Numbers of a shown state before those of the players.
_NUM_SHARED = 9


def make_page(config: _Config) -> game_pages.GamePage:
  """Makes the page of capture the flag.

  A state is sent as the concatenation of [num_steps], score [2], carrier, cell
  and timer of the flags, [2] each, cell, direction, waiting and cooldown of the
  players, [P] each, and with `cue_steps` [cue].
  """

  def facts(state: rules.State) -> Any:
    return {
      **{name: getattr(config, name) for name in _FACTS},
      'tiles': np.asarray(state.map.tiles).ravel().tolist(),
      'stands': np.asarray(state.map.stands).tolist(),
      'first_person': config.observation in ('rays', 'columns'),
      'scalars': features.scalar_names(config),
    }

  def to_page(state: rules.State) -> types.Array:
    cue = rules.cue(state)[None]
    parts = (
      state.num_steps[None], state.score,
      state.carrier, state.flag_cell, state.flag_timer,
      state.cell, state.direction, state.waiting, state.cooldown,
      *((cue,) if config.cue_steps else ()),
    )  # fmt: skip
    return jnp.concatenate(parts)

  def act(choices: Mapping[str, int]) -> types.ArrayTree:
    def choice(part: str) -> Any:
      return np.int32(choices.get(part, 0))

    action = rules.Action(choice('move'), choice('turn'), choice('tag'))
    return actions.encode_action(action, config)

  def steer(
    state: Any, seat: int, choices: Mapping[str, int]
  ) -> Mapping[str, int]:
    if 'go' not in choices:
      return choices
    direction = state[_NUM_SHARED + config.num_players + seat]
    quarters = _QUARTERS[(choices['go'] - direction) % 4]
    return {'tag': choices.get('tag', 0), **quarters}

  view = functools.partial(_view, config=config)
  script = pathlib.Path(__file__).with_name('capture_the_flag.js')
  return game_pages.GamePage(script, _KEYS, facts, to_page, view, act, steer)


def _view(observation: types.ArrayTree, config: _Config) -> Any:
  """Returns what an agent sees as JSON; see `game_pages.GamePage.view`."""
  seen = np.asarray(types.see_public(observation, None))
  if seen.ndim == 3:
    return {'frame': game_pages.to_json(seen)}
  is_rays = config.observation == 'rays'
  num_cells = config.num_rays if is_rays else config.view_size**2
  channels = seen[: len(features.CHANNELS) * num_cells].reshape(-1, num_cells)
  scalars = seen[channels.size :].astype(float).round(3).tolist()
  if is_rays:
    nearness = channels.astype(float).round(4).tolist()
    return {'rays': nearness, 'scalars': scalars}
  # One integer per cell, with a bit for each channel.
  bits = (channels > 0).T @ (1 << np.arange(len(channels)))
  return {'cells': bits.tolist(), 'scalars': scalars}


def read_config(spec: types.EnvironmentSpec, team_size: int) -> _Config:
  """Returns the config of a game in which agents with these specs can play.

  What does not affect the specs is that of the experiment `capture_the_flag`:
  the size of the map, and whether there is a compass, which games in first
  person have not. A cue, of which there is one scalar, lasts one step.
  """
  seen: Any = types.see_public(spec.observations, None)
  base = config_lib.CaptureTheFlagConfig(
    team_size=team_size,
    height=11,
    width=15,
    action='composite' if isinstance(spec.actions, dict) else 'flat',
  )
  if len(seen.shape) == 1:
    num_cells, cue_steps = divmod(
      seen.shape[0] - len(features.SCALARS), len(features.CHANNELS)
    )
    base = base.replace(cue_steps=cue_steps)
    if seen.name == 'rays':
      return base.replace(observation='rays', num_rays=num_cells, compass=False)
    return base.replace(view_size=round(num_cells**0.5))
  if seen.name == 'columns':
    return base.replace(
      observation='columns', num_rays=seen.shape[1], compass=False
    )
  # Views of another size have cells of the default size.
  size = base.view_size
  tile_size, rest = divmod(seen.shape[0], size)
  if rest:
    tile_size = base.tile_size
    size = seen.shape[0] // tile_size
  return base.replace(observation='rgb', view_size=size, tile_size=tile_size)
