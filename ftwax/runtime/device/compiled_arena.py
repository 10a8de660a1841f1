"""Games in JAX whose seats are taken by members of a population and opponents.

Games have leaves [G, P, ...], members act on leaves [N, M, ...]: the seats of a
member, gathered from all games. Parameters are never gathered: each member acts
once, on all of its seats. Opponents act inside of the arena.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import dm_env
import jax
import jax.numpy as jnp
import numpy as np

from ftwax import types
from ftwax.environments import functional
from ftwax.population import players, seating


class MatchState(NamedTuple):
  """Seats, opponents and results of games of teams.

  Attributes:
    order: int32 [G * P], seats sorted by player: those of the first member,
      those of the second, ..., those of the first opponent, ...
    places: int32 [G * P], the place of each seat in `order`.
    outcome: float32 [G, num_teams], of the first game that ended on each place
      of the arena; see `functional.FunctionalGame.outcome`.
    is_played: bool [G], whether one has ended.
    opponents: the state of each opponent.
    seen: the last timestep on the seats of opponents, leaves [O, ...] in the
      order of `order`; None without opponents.
  """

  order: types.Array
  places: types.Array
  outcome: types.Array
  is_played: types.Array
  opponents: tuple[Any, ...]
  seen: dm_env.TimeStep | None


class ArenaState(NamedTuple):
  """`G` games side by side.

  Attributes:
    games: state of the games.
    match: None in games of one seat, in which each member keeps its games.
  """

  games: functional.VectorState
  match: MatchState | None


@dataclasses.dataclass(frozen=True, eq=False)
class Arena:
  """Plays games; all methods are pure.

  Attributes:
    games: `G` games side by side, see `functional.vectorize`.
    seating: seats of members and opponents.
    opponents: players that do not learn.
  """

  games: functional.FunctionalGame
  seating: seating.Seating
  opponents: tuple[players.Player, ...] = ()

  def reset(
    self, key: types.Key, seats: types.Array
  ) -> tuple[ArenaState, dm_env.TimeStep]:
    """Starts all games.

    Args:
      key: for games and opponents.
      seats: int32 [G, P], the player on each seat: members from zero, opponents
        from N on, each as often as in `seating`. Not read in games of one seat.

    Returns:
      The state, and the timesteps of members [N, M, ...].
    """
    if self.seating.is_solo:
      games, timestep = self.games.reset(key)
      state = ArenaState(games, None)
      return state, self.to_members(state, timestep)
    games_key, *keys = jax.random.split(key, 1 + len(self.opponents))
    games, timestep = self.games.reset(games_key)
    order = jnp.argsort(seats.reshape(-1)).astype(jnp.int32)
    num_games = self.seating.num_games
    match = MatchState(
      order=order,
      places=jnp.argsort(order).astype(jnp.int32),
      outcome=jnp.zeros((num_games, self._num_teams)),
      is_played=jnp.zeros((num_games,), bool),
      opponents=tuple(
        player.init(player_key, count) if count else ()
        for player, player_key, count in zip(
          self.opponents, keys, self._counts, strict=True
        )
      ),
      seen=self._of_opponents(order, timestep),
    )
    state = ArenaState(games, match)
    return state, self.to_members(state, timestep)

  def step(
    self, state: ArenaState, action: types.ArrayTree
  ) -> tuple[ArenaState, dm_env.TimeStep]:
    """Takes a step in all games.

    Args:
      state: before the step.
      action: of members, leaves [N, M].

    Returns:
      The new state, and the timesteps of members [N, M, ...].
    """
    state, timestep = self.step_games(state, action)
    return state, self.to_members(state, timestep)

  def step_games(
    self, state: ArenaState, action: types.ArrayTree
  ) -> tuple[ArenaState, dm_env.TimeStep]:
    """Takes a step and returns the timesteps of all seats [G, P, ...]."""
    shape = self.seating.opponents.shape
    match = state.match
    if match is None:
      action = jax.tree.map(
        lambda leaf: leaf.reshape(*shape, *leaf.shape[2:]), action
      )
      games, timestep = self.games.step(state.games, action)
      return ArenaState(games, None), timestep
    places = match.places
    actions, opponents = self._act(state.games, match)

    def to_seats(leaf: types.Array, *others: types.Array) -> types.Array:
      flat = leaf.reshape(-1, *leaf.shape[2:])
      flat = jnp.concatenate([flat, *others]) if others else flat
      return flat[places].reshape(*shape, *flat.shape[1:])

    games, timestep = self.games.step(
      state.games, jax.tree.map(to_seats, action, *actions)
    )
    is_last = timestep.step_type[:, 0] == types.LAST
    is_new = is_last & ~match.is_played
    match = match._replace(
      outcome=jnp.where(
        is_new[:, None], self.games.outcome(games), match.outcome
      ),
      is_played=match.is_played | is_new,
      opponents=opponents,
      seen=self._of_opponents(match.order, timestep),
    )
    return ArenaState(games, match), timestep

  def to_members(
    self, state: ArenaState, tree: types.ArrayTree
  ) -> types.ArrayTree:
    """Returns leaves [N, M, ...] of leaves [G, P, ...]."""
    shape = self.seating.num_members, self.seating.seats_per_member
    match = state.match

    def gather(leaf: types.Array) -> types.Array:
      flat = leaf.reshape(-1, *leaf.shape[2:])
      if match is not None:
        flat = flat[match.order[: shape[0] * shape[1]]]
      return flat.reshape(*shape, *flat.shape[1:])

    return jax.tree.map(gather, tree)

  def seats(self, match: MatchState) -> types.Array:
    """Returns the player on each seat, int32 [G, P]."""
    counts = [self.seating.seats_per_member] * self.seating.num_members
    counts += self._counts
    owners = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
    seats = jnp.asarray(owners)[match.places]
    return seats.reshape(self.seating.opponents.shape)

  @property
  def _counts(self) -> list[int]:
    """Seats of each opponent."""
    return [
      int((self.seating.opponents == index).sum())
      for index in range(len(self.opponents))
    ]

  @property
  def _num_teams(self) -> int:
    return max(self.games.teams) + 1

  @property
  def _num_taken(self) -> int:
    """Seats of all members."""
    return self.seating.num_members * self.seating.seats_per_member

  def _of_opponents(
    self, order: types.Array, timestep: dm_env.TimeStep
  ) -> dm_env.TimeStep | None:
    """Returns the rows of opponents of a timestep [G, P, ...]."""
    if not sum(self._counts):
      return None
    seats = order[self._num_taken :]
    return jax.tree.map(
      lambda leaf: leaf.reshape(-1, *leaf.shape[2:])[seats], timestep
    )

  def _act(
    self, games: functional.VectorState, match: MatchState
  ) -> tuple[list[types.ArrayTree], tuple[Any, ...]]:
    """Returns the actions of opponents and their new states."""
    actions, states, start = [], [], 0
    for player, count, state in zip(
      self.opponents, self._counts, match.opponents, strict=True
    ):
      if count:
        rows = slice(start, start + count)
        game, seat = jnp.divmod(
          match.order[self._num_taken :][rows], self.seating.num_players
        )
        seen = jax.tree.map(lambda leaf, rows=rows: leaf[rows], match.seen)
        states_of_games = None
        if player.reads_games:
          states_of_games = jax.tree.map(
            lambda leaf, game=game: leaf[game], games.state
          )
        action, state = player.act(states_of_games, seat, seen, state)
        actions.append(action)
        start += count
      states.append(state)
    return actions, tuple(states)


def make_arena(
  game: functional.FunctionalGame,
  seats: seating.Seating,
  opponents: Sequence[players.Player] = (),
) -> Arena:
  """Returns an arena of a game with these seats; see `Arena`."""
  return Arena(
    functional.vectorize(game, seats.num_games), seats, tuple(opponents)
  )
