"""Games whose players are members of a population.

Games have leaves [G, P, ...], members act on leaves [N, M, ...]: the seats that
a member sits on, gathered from all games. Parameters are never gathered: each
member acts once, on all of its seats.
"""

from typing import Any, NamedTuple

import dm_env
import jax
import jax.numpy as jnp

from ftwax import types
from ftwax.environments import functional

_LAST = int(dm_env.StepType.LAST)


class ArenaState(NamedTuple):
  """`G` games side by side.

  Attributes:
    games: state of the games.
    order: int32 [N * M], the seat, of all seats in a row, behind each place of
      each member.
    outcome: float32 [G, num_teams], of the first game that ended on each
      place of the arena; see `functional.FunctionalGame.outcome`.
    is_played: bool [G], whether one has ended.
  """

  games: Any
  order: types.Array
  outcome: types.Array
  is_played: types.Array


class Arena(NamedTuple):
  """Where members play.

  Attributes:
    games: `G` games side by side, see `functional.vectorize`.
    num_games: G.
    num_members: N.
  """

  games: functional.FunctionalGame
  num_games: int
  num_members: int

  @property
  def num_players(self) -> int:
    """P, seats of a game."""
    return len(self.games.teams)

  def reset(
    self, key: types.Key, seats: types.Array
  ) -> tuple[ArenaState, dm_env.TimeStep]:
    """Starts all games.

    Args:
      key: for the games.
      seats: int32 [G, P], the member on each seat, all equally often.

    Returns:
      The state, and timesteps [N, M, ...].
    """
    games, timestep = self.games.reset(key)
    state = ArenaState(
      games=games,
      order=jnp.argsort(seats.reshape(-1)).astype(jnp.int32),
      outcome=jnp.zeros((self.num_games, self.num_teams)),
      is_played=jnp.zeros((self.num_games,), bool),
    )
    return state, self.to_members(state, timestep)

  def step(
    self, state: ArenaState, action: types.ArrayTree
  ) -> tuple[ArenaState, dm_env.TimeStep]:
    """Takes one step in all games; actions and timesteps are [N, M, ...]."""
    games, timestep = self.games.step(state.games, self.to_seats(state, action))
    is_new = (timestep.step_type[:, 0] == _LAST) & ~state.is_played
    state = ArenaState(
      games=games,
      order=state.order,
      outcome=jnp.where(
        is_new[:, None], self.games.outcome(games), state.outcome
      ),
      is_played=state.is_played | is_new,
    )
    return state, self.to_members(state, timestep)

  def seats(self, state: ArenaState) -> types.Array:
    """Returns the member on each seat, int32 [G, P]."""
    share = state.order.shape[0] // self.num_members
    members = jnp.argsort(state.order) // share
    return members.reshape(self.num_games, self.num_players)

  @property
  def num_teams(self) -> int:
    """Teams of a game."""
    return max(self.games.teams) + 1

  def to_members(
    self, state: ArenaState, tree: types.ArrayTree
  ) -> types.ArrayTree:
    """Returns leaves [N, M, ...] of leaves [G, P, ...]."""

    def gather(leaf):
      leaf = leaf.reshape(-1, *leaf.shape[2:])[state.order]
      return leaf.reshape(self.num_members, -1, *leaf.shape[1:])

    return jax.tree.map(gather, tree)

  def to_seats(
    self, state: ArenaState, tree: types.ArrayTree
  ) -> types.ArrayTree:
    """Returns leaves [G, P, ...] of leaves [N, M, ...]."""
    places = jnp.argsort(state.order)  # Of each seat, among the members'.

    def gather(leaf):
      leaf = leaf.reshape(-1, *leaf.shape[2:])[places]
      return leaf.reshape(self.num_games, self.num_players, *leaf.shape[1:])

    return jax.tree.map(gather, tree)
