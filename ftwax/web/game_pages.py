"""How a page shows a game: its constant facts, its states, its keys.

A game gets a page of its own by one function that returns a `GamePage`, and by
a script in `static/games` that draws what this sends. Any other game is shown
by the frames that it renders.
"""

import base64
import io
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from PIL import Image

from ftwax import distributions, types
from ftwax.environments.capture_the_flag import (
  actions,
  features,
  rules,
)
from ftwax.environments.capture_the_flag import game_config as config_lib


class Key(NamedTuple):
  """A key and the choice that it stands for.

  Attributes:
    codes: `KeyboardEvent.code`s, any of which is the key.
    label: of the choice, shown to people.
    choice: number of the choice, in its part of the action.
    part: name of the part of the action, '' if it has one part only.
    repeats: whether the choice is made at every step while the key is down,
      rather than once.
  """

  codes: tuple[str, ...]
  label: str
  choice: int
  part: str = ''
  repeats: bool = True


class GamePage(NamedTuple):
  """How a page shows a game.

  Attributes:
    script: name of a script in `static/games`, which draws.
    keys: by which a person acts.
    facts: maps the first state of a game to what does not change in it, as
      JSON.
    to_page: maps a state to what moves in it: integers [K] for a game in JAX,
      where it is compiled together with the step, or else JSON.
    view: maps the observation of one player to JSON: what an agent sees.
    act: maps the choices made in some parts to the action of one player.
  """

  script: str
  keys: tuple[Key, ...]
  facts: Callable[[Any], Any]
  to_page: Callable[[Any], Any]
  view: Callable[[types.ArrayTree], Any]
  act: Callable[[Mapping[str, int]], types.ArrayTree]


_CAPTURE_THE_FLAG_KEYS = (
  Key(('ArrowUp', 'KeyW'), 'ahead', 1, 'move'),
  Key(('ArrowDown', 'KeyS'), 'back', 2, 'move'),
  Key(('KeyA',), 'step left', 3, 'move'),
  Key(('KeyD',), 'step right', 4, 'move'),
  Key(('ArrowLeft', 'KeyQ'), 'turn left', 1, 'turn', repeats=False),
  Key(('ArrowRight', 'KeyE'), 'turn right', 2, 'turn', repeats=False),
  Key(('Space',), 'tag', 1, 'tag'),
)


def capture_the_flag_page(
  config: config_lib.CaptureTheFlagConfig,
) -> GamePage:
  """Makes the page of capture the flag.

  A state is [num_steps, score of each team, then carrier, cell and timer of
  each flag, then cell, direction, waiting and cooldown of each player].
  """

  def facts(state: rules.State) -> Any:
    return {
      'width': config.width,
      'height': config.height,
      'tiles': np.asarray(state.map.tiles).ravel().tolist(),
      'stands': np.asarray(state.map.stands).tolist(),
      'teams': config.teams,
      'num_steps': config.num_steps,
      'tag_cooldown': config.tag_cooldown,
      'view_size': config.view_size,
      'view_behind': config.view_behind,
      'scalars': features.SCALARS,
    }

  def to_page(state: rules.State) -> types.Array:
    parts = (
      state.num_steps[None], state.score,
      state.carrier, state.flag_cell, state.flag_timer,
      state.cell, state.direction, state.waiting, state.cooldown,
    )  # fmt: skip
    return jnp.concatenate(parts)

  def view(observation: types.ArrayTree) -> Any:
    seen = np.asarray(observation)
    if seen.ndim == 3:
      return {'frame': _png(seen)}
    num_cells = config.view_size**2
    channels = seen[: len(features.CHANNELS) * num_cells].reshape(-1, num_cells)
    bits = (channels > 0).T @ (1 << np.arange(len(channels)))
    scalars = seen[channels.size :].astype(float)
    return {'cells': bits.tolist(), 'scalars': scalars.round(3).tolist()}

  def act(choices: Mapping[str, int]) -> types.ArrayTree:
    def choice(part: str) -> Any:
      return np.int32(choices.get(part, 0))

    action = rules.Action(choice('move'), choice('turn'), choice('tag'))
    return actions.encode_action(action, config)

  return GamePage(
    'capture_the_flag', _CAPTURE_THE_FLAG_KEYS, facts, to_page, view, act
  )


def capture_the_flag_config(
  spec: types.EnvironmentSpec, team_size: int
) -> config_lib.CaptureTheFlagConfig:
  """Returns the config of a game in which agents of these specs can play.

  The map, which agents do not depend on, is that of the main job.
  """
  shape = spec.observations.shape
  is_vector = len(shape) == 1
  base = config_lib.CaptureTheFlagConfig(
    team_size=team_size,
    height=11,
    width=15,
    observation='features' if is_vector else 'rgb',
    action='composite' if isinstance(spec.actions, dict) else 'flat',
  )
  if is_vector:
    cells = (shape[0] - len(features.SCALARS)) // len(features.CHANNELS)
    size = round(cells**0.5)
  else:
    size = shape[0] // base.tile_size
  return config_lib.CaptureTheFlagConfig(**{**base.__dict__, 'view_size': size})


def catch_page(rows: int, columns: int) -> GamePage:
  """Makes the page of catch; a state is [ball_x, ball_y, paddle_x]."""

  def view(observation: types.ArrayTree) -> Any:
    board = np.asarray(observation).reshape(rows, columns)
    return {'board': board.astype(int).tolist()}

  keys = (
    Key(('ArrowLeft', 'KeyA'), 'left', 0),
    Key(('ArrowRight', 'KeyD'), 'right', 2),
  )
  return GamePage(
    'catch',
    keys,
    lambda state: {'rows': rows, 'columns': columns},
    lambda state: jnp.stack([state.ball_x, state.ball_y, state.paddle_x]),
    view,
    lambda choices: np.int32(choices.get('', 1)),
  )


def frames_page(render: Callable[[], Any], action_spec: Any) -> GamePage:
  """Makes the page of any game that renders frames.

  Args:
    render: returns the present frame, uint8 [H, W, 3].
    action_spec: of one player: one discrete action, whose choices get the
      arrow keys and then digits.

  Raises:
    ValueError: if actions have several parts, or are not discrete.
  """
  num_actions = distributions.num_actions(action_spec)
  if not isinstance(num_actions, int):
    raise ValueError(
      f'actions ({action_spec}) must be one discrete choice to be played by'
      ' keys; give the game a page of its own, game_pages.GamePage.'
    )
  names = ('Space', 'ArrowUp', 'ArrowDown', 'ArrowLeft', 'ArrowRight')
  codes = [*names, *(f'Digit{digit}' for digit in range(1, 10))][1:]
  keys = tuple(
    Key((code,), f'action {choice}', choice)
    for choice, code in zip(range(1, num_actions), codes, strict=False)
  )
  return GamePage(
    'frames',
    keys,
    lambda state: {},
    lambda state: _png(np.asarray(render())),
    lambda observation: _view_of_any(observation),
    lambda choices: np.int32(choices.get('', 0)),
  )


def _view_of_any(observation: types.ArrayTree) -> Any:
  """Returns an image as one, and other arrays as their values."""
  if isinstance(observation, dict):
    return {name: _view_of_any(part) for name, part in observation.items()}
  seen = np.asarray(observation)
  if seen.ndim == 3 and seen.dtype == np.uint8:
    return {
      'frame': _png(seen[..., :3] if seen.shape[2] >= 3 else seen[..., 0])
    }
  return {'values': seen.ravel()[:64].astype(float).round(3).tolist()}


def _png(frame: types.NumpyArray) -> str:
  """Returns the address of an image that holds the image."""
  buffer = io.BytesIO()
  Image.fromarray(frame).save(buffer, 'PNG', compress_level=1)
  return 'data:image/png;base64,' + base64.b64encode(buffer.getvalue()).decode()
