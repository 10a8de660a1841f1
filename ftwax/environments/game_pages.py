"""Displays games in the browser: constant facts, states and keys.

A game gets its own page by a function that makes a `GamePage` for its field
`page`, and a script that draws the data it sends. Any other game is shown by
the frames that it renders.
"""

import base64
import io
import pathlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from ftwax import distributions, import_guard, types


class Key(NamedTuple):
  """A key and the choice that it makes.

  Attributes:
    codes: alternative `KeyboardEvent.code`s of the key.
    label: label of the choice, shown to people.
    choice: index of the choice in its part of the action.
    part: name of the part of the action; '' if there is only one part.
    repeats: whether the choice is made at every step while the key is down,
      instead of once.
  """

  codes: tuple[str, ...]
  label: str
  choice: int
  part: str = ''
  repeats: bool = True


class GamePage(NamedTuple):
  """The page of a game.

  States are None for Python games, whose functions read the game itself.

  Attributes:
    script: JavaScript file that draws the game; it adds an object with the name
      of the file to `ftwax.games`; see `reporting/static/drawing.js`.
    keys: keys with which a person acts.
    facts: maps the initial state of a game to its constant facts, as JSON.
    to_page: maps a state to its changing part, an array. For a JAX game, it is
      compiled together with the step. See `to_json`.
    view: maps the observation of one player to JSON that shows what an agent
      sees.
    act: maps choices, by part, to the action of one player.
    steer: maps a shown state, a seat and the choices made there to choices that
      `act` knows, for keys whose meaning depends on the state; None if none
      does.
  """

  script: pathlib.Path
  keys: tuple[Key, ...]
  facts: Callable[[Any], Any]
  to_page: Callable[[Any], Any]
  view: Callable[[types.ArrayTree], Any]
  act: Callable[[Mapping[str, int]], types.ArrayTree]
  steer: Callable[[Any, int, Mapping[str, int]], Mapping[str, int]] | None = (
    None
  )


def find(game: Any, action_spec: types.SpecTree) -> GamePage:
  """Returns the `page` of a game, or else a page of its rendered frames.

  Args:
    game: a JAX or Python game with a `page`, a `display` or a `render`.
    action_spec: action spec of one player.

  Raises:
    ValueError: if it has none of these or cannot be played by keys.
  """
  page: GamePage | None = getattr(game, 'page', None)
  if page is not None:
    return page
  display = getattr(game, 'display', None)
  if display is not None:
    return _rendered(display.render, action_spec)
  if hasattr(game, 'render'):
    return _rendered(lambda state: game.render(), action_spec)
  raise ValueError(
    f'game ({type(game).__name__}) must have a `page`, a `display`, or a method'
    ' `render` that returns uint8 [H, W, 3], to be shown; add one of these.'
  )


def _rendered(
  render: Callable[[Any], Any], action_spec: types.SpecTree
) -> GamePage:
  """Makes a page for any game that renders frames.

  Args:
    render: maps a state to a frame, uint8 [H, W, 3].
    action_spec: action spec of one player, a single discrete action. Its
      choices are assigned to the arrow keys and then to digits.

  Raises:
    ValueError: if actions have several parts or are not discrete.
  """
  num_actions = distributions.num_actions(action_spec)
  if not isinstance(num_actions, int):
    raise ValueError(
      f'actions ({action_spec}) must be one discrete choice to be played with'
      ' the keyboard; give the game a `page` of its own, a game_pages.GamePage.'
    )
  names = ('ArrowUp', 'ArrowDown', 'ArrowLeft', 'ArrowRight')
  codes = [*names, *(f'Digit{digit}' for digit in range(1, 10))]
  keys = tuple(
    Key((code,), f'action {choice}', choice)
    for choice, code in zip(range(1, num_actions), codes, strict=False)
  )
  return GamePage(
    pathlib.Path(__file__).with_name('frames.js'),
    keys,
    lambda state: {},
    render,
    view_of_any,
    lambda choices: np.int32(choices.get('', 0)),
  )


def to_json(shown: Any) -> Any:
  """Converts an array to lists, or an image uint8 [H, W, 3] to a data URL."""
  array = np.asarray(shown)
  if array.dtype == np.uint8 and array.ndim == 3:
    return _png(array)
  return array.tolist()


def view_of_any(observation: types.ArrayTree) -> Any:
  """Returns the first image among the arrays, or else their values, as JSON."""
  leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(observation)]
  for leaf in leaves:
    if leaf.ndim == 3 and leaf.dtype == np.uint8:
      return {
        'frame': _png(leaf[..., :3] if leaf.shape[2] >= 3 else leaf[..., 0])
      }
  values = np.concatenate([leaf.ravel().astype(float) for leaf in leaves])
  return {'values': values[:64].round(3).tolist()}


def _png(frame: types.NumpyArray) -> str:
  """Encodes an image as a data URL."""
  with import_guard.guarded():
    from PIL import Image  # Imported only when needed.

  buffer = io.BytesIO()
  Image.fromarray(frame).save(buffer, 'PNG', compress_level=1)
  return 'data:image/png;base64,' + base64.b64encode(buffer.getvalue()).decode()
