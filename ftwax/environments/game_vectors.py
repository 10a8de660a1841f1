"""Several games of one kind played side by side, as arenas play them.

Games of Python are stepped one after the other, functional ones by one compiled
call. They begin anew by themselves: the step after `LAST` starts a game.
"""

import contextlib
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import dm_env
import jax
import numpy as np

from ftwax import internal_rewards, types
from ftwax.environments import functional, functional_checks, games


class GameSpec(NamedTuple):
  """What is played.

  Attributes:
    environment: specs of one player.
    teams: the team of each player.
    event_names: what the entries of the reward count.
  """

  environment: types.EnvironmentSpec
  teams: tuple[int, ...]
  event_names: tuple[str, ...]

  @property
  def num_events(self) -> int:
    """Entries of the reward, 1 for a scalar."""
    return internal_rewards.num_events(self.environment.rewards)


class GameVector(Protocol):
  """`G` games of one kind, which begin anew by themselves.

  Leaves of timesteps and actions are [G, P, ...].
  """

  @property
  def spec(self) -> GameSpec:
    """What is played in each."""

  @property
  def num_games(self) -> int:
    """`G`."""

  def reset(self) -> dm_env.TimeStep:
    """Starts all games."""

  def step(self, action: types.ArrayTree) -> dm_env.TimeStep:
    """Plays a step of each game, or starts a new one after `LAST`."""

  def step_games(self, action: types.ArrayTree, places: Sequence[int]) -> None:
    """Plays a step of some games alone; nobody sees what comes of it.

    Args:
      action: leaves [G, P, ...].
      places: numbers of games; none of them has just ended.
    """

  def outcomes(self, places: Sequence[int]) -> np.ndarray:
    """Returns how games that have just ended went.

    Args:
      places: numbers of games.

    Returns:
      float32 [len(places), num_teams]; see `games.GameEnvironment.outcome`.
    """

  def close(self) -> None:
    """Releases what the games hold."""


class HostGameVector:
  """Games of Python, stepped one after the other; see `GameVector`."""

  def __init__(self, made: Sequence[games.GameEnvironment]):
    """Takes games over, to close them in the end.

    Args:
      made: at least one.

    Raises:
      ValueError: if they differ in what is played.
    """
    self._games = tuple(made)
    self.spec = _common_spec(made)
    self.num_games = len(self._games)

  def reset(self) -> dm_env.TimeStep:
    """Starts all games."""
    return _stack([game.reset() for game in self._games])

  def step(self, action: types.ArrayTree) -> dm_env.TimeStep:
    """Plays a step of each game, or starts a new one after `LAST`."""
    return _stack(self._step(action, range(self.num_games)))

  def step_games(self, action: types.ArrayTree, places: Sequence[int]) -> None:
    """Plays a step of some games alone; nobody sees what comes of it."""
    self._step(action, places)

  def outcomes(self, places: Sequence[int]) -> np.ndarray:
    """Returns how games that have just ended went."""
    return np.stack([self._games[place].outcome() for place in places])

  def close(self) -> None:
    """Closes every game, also those behind one that cannot be."""
    with contextlib.ExitStack() as stack:
      for game in self._games:
        stack.callback(game.close)

  def _step(self, action, places):
    def of(place):
      return jax.tree.map(lambda leaf: leaf[place], action)

    return [self._games[place].step(of(place)) for place in places]


class CompiledGameVector:
  """Functional games, stepped by one compiled call; see `GameVector`."""

  def __init__(
    self, game: functional.FunctionalGame, num_games: int, seed: int
  ):
    """Prepares games.

    Args:
      game: a single game, not a vector of them.
      num_games: `G`.
      seed: of all games played.

    Raises:
      ValueError: if the game is off its spec, or teams, events and actions do
        not fit together.
    """
    games.check_game(game.spec, game.teams, game.event_names)
    functional_checks.check_shapes(game)
    self.spec = GameSpec(game.spec, tuple(game.teams), game.event_names)
    self.num_games = num_games
    made = functional.vectorize(game, num_games)
    self._loop = functional.HostLoop(made.reset, made.step, seed)
    self._outcome = jax.jit(made.outcome)

  @property
  def state(self) -> functional.VectorState:
    """The games' states, e.g. to render one; None before the first."""
    return self._loop.state

  def reset(self) -> dm_env.TimeStep:
    """Starts all games."""
    return self._loop.reset()

  def step(self, action: types.ArrayTree) -> dm_env.TimeStep:
    """Plays a step of each game, or starts a new one after `LAST`."""
    return self._loop.step(action)

  def step_games(self, action: types.ArrayTree, places: Sequence[int]) -> None:
    """Plays a step of some games alone; nobody sees what comes of it."""
    self._loop.step_rows(action, places)

  def outcomes(self, places: Sequence[int]) -> np.ndarray:
    """Returns how games that have just ended went."""
    return np.asarray(self._outcome(self._loop.state))[np.asarray(places)]

  def close(self) -> None:
    """Does nothing: functional games hold nothing but memory."""


def _stack(timesteps: Sequence[dm_env.TimeStep]) -> dm_env.TimeStep:
  return jax.tree.map(lambda *leaves: np.stack(leaves), *timesteps)


def _spec_of(game: games.GameEnvironment) -> GameSpec:
  return GameSpec(
    types.make_environment_spec(game), tuple(game.teams), game.event_names
  )


def _common_spec(made: Sequence[games.GameEnvironment]) -> GameSpec:
  first = _spec_of(made[0])
  for index, game in enumerate(made[1:], start=1):
    if _spec_of(game) != first:
      raise ValueError(
        f'game {index} ({_spec_of(game)}) must be like game 0 ({first}); make'
        ' games of one kind in environment_factory.'
      )
  return first
