"""A game in progress: steps of the environment, actions of its players."""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import dm_env
import jax
import numpy as np

from ftwax import types
from ftwax.environments import functional, games
from ftwax.web import cast as cast_lib
from ftwax.web import game_pages


@dataclasses.dataclass(frozen=True)
class PlayableGame:
  """A game, its page, and those who take seats without a person.

  Attributes:
    name: shown to people.
    game: in JAX, or in Python (a `games.GameEnvironment`).
    page: how it is shown.
    cast: members, scripts and others.
  """

  name: str
  game: functional.FunctionalGame | games.GameEnvironment
  page: game_pages.GamePage
  cast: cast_lib.Cast

  @property
  def teams(self) -> tuple[int, ...]:
    """The team of each seat."""
    return tuple(self.game.teams)

  @functools.cached_property
  def functions(self) -> tuple[Any, Any] | None:
    """Compiled `reset(key)` and `step(state, action)`; None in Python.

    They return the state, the timestep, what the page shows, and the outcome.
    """
    game, page = self.game, self.page
    if not isinstance(game, functional.FunctionalGame):
      return None

    def shown(state: Any, timestep: dm_env.TimeStep) -> Any:
      return state, timestep, page.to_page(state), game.outcome(state)

    return (
      jax.jit(lambda key: shown(*game.reset(key))),
      jax.jit(lambda state, action: shown(*game.step(state, action))),
    )


class Moment(NamedTuple):
  """A game after a step.

  Attributes:
    state: JSON, of `GamePage.to_page`.
    is_over: whether the game has ended.
    outcome: of each team, if it has; 1 won, 0 drawn, -1 lost.
  """

  state: Any
  is_over: bool
  outcome: list[float]


class LiveGame:
  """Plays one game after the other; a step of each takes milliseconds.

  Attributes:
    seed: of the present game: its map and the draws of its players.
    timestep: the last one, leaves [P, ...].
    facts: of the present game; see `GamePage.facts`.
  """

  def __init__(self, playable: PlayableGame):
    """Takes the game; compiles nothing yet."""
    self._playable = playable
    self._game: Any = playable.game  # Of either kind.
    self._state: Any = None
    self._players: list[tuple[str, Any]] = []
    self.timestep: dm_env.TimeStep | None = None
    self.facts: Any = None
    self.seed = 0

  def start(self, seed: int, seats: Sequence[str]) -> Moment:
    """Starts a game.

    Args:
      seed: of the map and of players; counts in games in JAX only.
      seats: name of the player on each seat; `cast.STILL` for a person.
    """
    self.seed = seed
    game, page = self._game, self._playable.page
    keys = jax.random.split(jax.random.PRNGKey(seed), len(seats) + 1)
    self._keys = keys[1:]
    self._players = [('', None)] * len(seats)
    for seat, name in enumerate(seats):
      self.seat(seat, name)
    if self._playable.functions is not None:
      reset, _ = self._playable.functions
      self._state, timestep, shown, _ = reset(keys[0])
      shown = np.asarray(shown).tolist()
    else:
      timestep = game.reset()
      shown = page.to_page(None)
    self.timestep = jax.device_get(timestep)
    self.facts = page.facts(self._state)
    return Moment(shown, False, [])

  def prepare(self, seed: int, seats: Sequence[str]) -> Moment:
    """Starts a game after compiling what its first step needs."""
    self.start(seed, seats)
    self.step(self.actions({}))
    return self.start(seed, seats)

  def play(
    self, choices: Mapping[int, Mapping[str, int]]
  ) -> tuple[list[Any], Moment]:
    """Plays one step, and returns the actions as JSON beside the moment."""
    actions = self.actions(choices)
    plain = [
      jax.tree.map(lambda part: np.asarray(part).tolist(), action)
      for action in actions
    ]
    return plain, self.step(actions)

  def seat(self, seat: int, name: str) -> None:
    """Puts another player on a seat, at any time."""
    if self._players[seat][0] != name:
      state = self._playable.cast.start(name, self._keys[seat])
      self._players[seat] = (name, state)

  def actions(
    self, choices: Mapping[int, Mapping[str, int]]
  ) -> list[types.ArrayTree]:
    """Returns the action of each seat.

    Args:
      choices: of people, by seat; see `GamePage.act`.
    """
    chosen = []
    for seat, (name, state) in enumerate(self._players):
      if seat in choices or name == cast_lib.STILL:
        chosen.append(self._playable.page.act(choices.get(seat, {})))
        continue
      action, state = self._playable.cast.act(
        name, self._state, seat, self.observed(seat), state
      )
      self._players[seat] = (name, state)
      chosen.append(action)
    return chosen

  def step(self, actions: Sequence[types.ArrayTree]) -> Moment:
    """Plays one step, given the action of each seat."""
    game = self._game
    action = jax.tree.map(lambda *leaves: np.stack(leaves), *actions)
    if self._playable.functions is not None:
      _, step = self._playable.functions
      self._state, timestep, shown, outcome = step(self._state, action)
      shown = np.asarray(shown).tolist()
    else:
      timestep = game.step(action)
      shown, outcome = self._playable.page.to_page(None), None
    self.timestep = jax.device_get(timestep)
    is_over = bool(self.timestep.step_type[0] == types.LAST)
    if is_over and outcome is None:
      outcome = game.outcome()
    return Moment(
      shown, is_over, np.asarray(outcome).tolist() if is_over else []
    )

  def observed(self, seat: int) -> dm_env.TimeStep:
    """Returns the last timestep of one seat, without an axis of players."""
    return jax.tree.map(lambda leaf: leaf[seat], self.timestep)

  def view(self, seat: int) -> Any:
    """Returns what the agent on a seat would see now, as JSON."""
    return self._playable.page.view(self.observed(seat).observation)

  def looks(self) -> list[dict[str, Any]]:
    """Returns what goes on in the player on each seat; see `Cast.look`."""
    return [
      self._playable.cast.look(name, self.observed(seat), state)
      for seat, (name, state) in enumerate(self._players)
    ]
