"""The loop that plays, for films and loaded agents."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, TypeAlias

import dm_env
import jax
import numpy as np

from ftwax import types
from ftwax.environments import functional, game_vectors
from ftwax.environments import games as games_lib
from ftwax.population import players as players_lib
from ftwax.population import routing
from ftwax.population import seating as seating_lib


class GymnasiumEnvironment(Protocol):
  """An environment of Gymnasium, which need not be installed."""

  observation_space: Any
  action_space: Any


# An environment or a game that is made, or the name of Gymnasium's.
Environment: TypeAlias = (
  str
  | dm_env.Environment
  | games_lib.GameEnvironment
  | functional.FunctionalEnvironment
  | functional.FunctionalGame
  | GymnasiumEnvironment
)


def play(
  games: game_vectors.GameVector,
  act: Callable[[dm_env.TimeStep], types.ArrayTree],
) -> Iterator[tuple[types.ArrayTree, dm_env.TimeStep]]:
  """Plays games for as long as the caller asks for timesteps.

  Args:
    games: the games.
    act: returns the actions of all rows, given their timesteps.

  Yields:
    Each timestep with the actions that led to it; None at the first one.
  """
  action, timestep = None, games.reset()
  while True:
    yield action, timestep
    action = act(timestep)
    timestep = games.step(action)


class SeatedPlayers:
  """Players on the seats of games, the same in all of them; see `act`."""

  def __init__(
    self,
    game: game_vectors.GameVector,
    seated: Sequence[players_lib.Player],
    seed: int,
  ):
    """Seats the players; one with several seats acts once for all.

    Args:
      game: a vector of games.
      seated: the player on each seat.
      seed: seed of the players.
    """
    players: list[players_lib.Player] = []
    for player in seated:
      if not any(player is other for other in players):
        players.append(player)
    numbers = [
      next(i for i, other in enumerate(players) if other is player)
      for player in seated
    ]
    seats = np.tile(np.array(numbers, np.int32), (game.num_games, 1))
    self._game = game
    self._router = routing.Router(
      seating_lib.Seating(0, game.spec.teams, seats), players
    )
    self._routes = routing.make_routes(seats)
    keys = jax.random.split(jax.random.PRNGKey(seed), len(players))
    self._states = self._router.init(list(keys))
    self._act = jax.jit(self._router.act)

  def act(self, timestep: dm_env.TimeStep) -> Any:
    """Returns the actions on all seats, leaves [G, P, ...]."""
    seen = self._router.to_opponents(self._routes, timestep)
    actions, self._states = self._act(
      self._routes, self._game.state, seen, self._states
    )
    actions = jax.tree.map(np.asarray, actions)
    return self._router.to_seats(self._routes, actions)
