"""Routes rows between the seats of games and the players on them.

Games have rows of seats, [G * P, ...]: the P seats of game 0, then those of
game 1, and so on. Members act on rows of their own, [N * M, ...]: the M seats
of member 0, then those of member 1, and so on. Gathering observations instead
of parameters lets each member act once, on all of its seats. Opponents do not
learn and act on the other seats. Arrays are NumPy's or JAX's, as those that a
function is given.
"""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import dm_env
import jax
import jax.numpy as jnp
import numpy as np

from ftwax import trees, types
from ftwax.population import players as players_lib
from ftwax.population import seating as seating_lib


class Routes(NamedTuple):
  """Where the players of a round sit.

  Attributes:
    seats: int32 [G, P], the player on each seat: members are 0 to N - 1,
      opponents start at N.
    order: int32 [G * P], indices of the seats, sorted by player.
    places: int32 [G * P], the position of each seat in `order`.
  """

  seats: Any
  order: Any
  places: Any


def make_routes(seats: types.NumpyArray | jax.Array) -> Routes:
  """Returns the routes of players on the given seats, int32 [G, P]."""
  # Typed Any, since the functions of NumPy and JAX have no common type.
  sort: Any = jnp.argsort
  if isinstance(seats, np.ndarray):
    sort = functools.partial(np.argsort, kind='stable')
  order = sort(seats.reshape(-1)).astype(np.int32)
  # Sorting a permutation inverts it.
  return Routes(seats, order, sort(order).astype(np.int32))


class Router:
  """Routes rows in games with a given seating; all methods are pure.

  Attributes:
    seating: the seats of members and opponents.
    opponents: players that do not learn, in the order of their indices.
    num_rows: `N * M`, number of seats of all members.
  """

  def __init__(
    self,
    seating: seating_lib.Seating,
    opponents: Sequence[players_lib.Player] = (),
  ):
    """Counts the seats of each opponent, which are the same in every round."""
    self.seating = seating
    self.opponents = tuple(opponents)
    self.num_rows = int(seating.is_member.sum())
    self._counts = [
      int((seating.opponents == index).sum()) for index in range(len(opponents))
    ]

  def to_members(self, routes: Routes, tree: types.ArrayTree) -> Any:
    """Gathers rows of seats [G * P, ...] into rows of members [N * M, ...]."""
    # Members come first in `order`, in equal blocks of M seats.
    order = routes.order[: self.num_rows]
    return trees.take(tree, order)

  def to_seats(self, routes: Routes, parts: Sequence[types.ArrayTree]) -> Any:
    """Returns rows of seats [G * P, ...].

    Args:
      routes: where players sit.
      parts: rows of members, [N * M, ...], if there are any; then those of each
        opponent that has seats (see `act`).
    """
    is_numpy = isinstance(routes.places, np.ndarray)

    def merge(*leaves: Any) -> Any:
      if is_numpy:
        return np.concatenate(leaves)[routes.places]
      return jnp.concatenate(leaves)[routes.places]

    return jax.tree.map(merge, *parts)

  def to_opponents(
    self, routes: Routes, timestep: dm_env.TimeStep
  ) -> dm_env.TimeStep | None:
    """Returns the rows of opponents, [O, ...], of a timestep [G * P, ...].

    Returns:
      The rows, opponent by opponent; None if opponents have no seats.
    """
    if not any(self._counts):
      return None
    order = routes.order[self.num_rows :]
    return trees.take(timestep, order)

  def init(self, keys: Sequence[types.Key]) -> tuple[Any, ...]:
    """Returns the initial state of each opponent, given its key."""
    return tuple(
      player.init(key, count) if count else ()
      for player, count, key in zip(
        self.opponents, self._counts, keys, strict=True
      )
    )

  def act(
    self,
    routes: Routes,
    games: Any,
    seen: dm_env.TimeStep | None,
    states: Sequence[Any],
  ) -> tuple[list[types.ArrayTree], tuple[Any, ...]]:
    """Lets the opponents act.

    Args:
      routes: where players sit.
      games: states of JAX games, leaves [G, ...]; None for Python games.
      seen: what opponents see; see `to_opponents`.
      states: state of each opponent.

    Returns:
      The actions of each opponent that has seats, and the new states.
    """
    actions, after, start = [], [], 0
    # Seats are numbered game by game.
    game, seat = jnp.divmod(
      routes.order[self.num_rows :], self.seating.num_players
    )
    for player, count, state in zip(
      self.opponents, self._counts, states, strict=True
    ):
      if count:
        rows = slice(start, start + count)
        own = None
        if player.reads_games:
          own = jax.tree.map(lambda leaf, game=game[rows]: leaf[game], games)
        timestep = jax.tree.map(lambda leaf, rows=rows: leaf[rows], seen)
        action, state = player.act(own, seat[rows], timestep, state)
        actions.append(action)
        start += count
      after.append(state)
    return actions, tuple(after)
