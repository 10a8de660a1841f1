"""How the browser shows a game: its constant facts, its states, its keys.

A game gets a page of its own by one function that makes a `GamePage`, which
stands in its field `page`, and by a script that draws what this sends. Any
other game is shown by the frames that it renders.
"""

import base64
import io
import pathlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from ftwax import distributions, types


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

  States are None for games in Python, whose functions look at the game itself.

  Attributes:
    script: JavaScript that draws the game: it adds to `ftwax.games` an object
      of the name of the file; see `reporting/static/drawing.js`.
    keys: by which a person acts.
    facts: maps the first state of a game to what does not change in it, as
      JSON.
    to_page: maps a state to what moves in it, an array. For a game in JAX it is
      compiled together with the step. See `to_json`.
    view: maps the observation of one player to JSON: what an agent sees.
    act: maps the choices made in some parts to the action of one player.
  """

  script: pathlib.Path
  keys: tuple[Key, ...]
  facts: Callable[[Any], Any]
  to_page: Callable[[Any], Any]
  view: Callable[[types.ArrayTree], Any]
  act: Callable[[Mapping[str, int]], types.ArrayTree]


def find(game: Any, action_spec: types.SpecTree) -> GamePage:
  """Returns the page of a game: its `page`, or one of what it renders.

  Args:
    game: in JAX or in Python, with a `page`, a `display` or a `render`.
    action_spec: of one player.

  Raises:
    ValueError: if it has none of these, or keys cannot play it.
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
    ' `render` that returns uint8 [H, W, 3], to be shown; give it one of these.'
  )


def _rendered(
  render: Callable[[Any], Any], action_spec: types.SpecTree
) -> GamePage:
  """Makes the page of any game that renders frames.

  Args:
    render: maps a state to a frame, uint8 [H, W, 3].
    action_spec: of one player: one discrete action, whose choices get the
      arrow keys and then digits.

  Raises:
    ValueError: if actions have several parts, or are not discrete.
  """
  num_actions = distributions.num_actions(action_spec)
  if not isinstance(num_actions, int):
    raise ValueError(
      f'actions ({action_spec}) must be one discrete choice to be played by'
      ' keys; give the game a `page` of its own, a game_pages.GamePage.'
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
  """Returns an array as numbers, an image uint8 [H, W, 3] as its address."""
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
  """Returns the address of an image that holds the image."""
  from PIL import Image  # Not for those who only play.

  buffer = io.BytesIO()
  Image.fromarray(frame).save(buffer, 'PNG', compress_level=1)
  return 'data:image/png;base64,' + base64.b64encode(buffer.getvalue()).decode()
