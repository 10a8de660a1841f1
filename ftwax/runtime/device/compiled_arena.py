"""Compiled games whose seats are taken by population members and opponents.

Games have leaves [G, P, ...]. Members act on leaves [N, M, ...]: the seats of
each member, gathered from all games. Gathering observations instead of
parameters lets each member act once, on all of its seats. Opponents act inside
the arena.
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
from ftwax.population import players, population_config, seating
from ftwax.population import state as state_lib


class Results(NamedTuple):
  """The games that ended with a step, leaves [G, ...].

  Attributes:
    ended: bool [G], whether a game ended at each index.
    outcome: float32 [G, num_teams], valid where a game ended; see
      `functional.FunctionalGame.outcome`.
  """

  ended: types.Array
  outcome: types.Array


class MatchState(NamedTuple):
  """Seats and opponents of team games.

  Attributes:
    order: int32 [G * P], indices of the seats, sorted by player: first those of
      member 0, then of member 1, ..., then of opponent 0, ...
    places: int32 [G * P], the position of each seat in `order`.
    opponents: the state of each opponent.
    seen: the last timestep on the seats of opponents, leaves [O, ...] in the
      order of `order`; None without opponents.
  """

  order: types.Array
  places: types.Array
  opponents: tuple[Any, ...]
  seen: dm_env.TimeStep | None


class ArenaState(NamedTuple):
  """State of `G` parallel games.

  Attributes:
    games: states of the games.
    match: None for single-seat games, in which each member keeps its games.
  """

  games: functional.VectorState
  match: MatchState | None


@dataclasses.dataclass(frozen=True, eq=False)
class Arena:
  """Plays games; all methods are pure.

  Attributes:
    games: `G` parallel games; see `functional.vectorize`.
    seating: assigns seats to members and opponents.
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
      key: random key for games and opponents.
      seats: int32 [G, P], the player on each seat: members are 0 to N - 1,
        opponents start at N, and each takes as many seats as in `seating`.
        Ignored in single-seat games.

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
    match = MatchState(
      order=order,
      # The inverse permutation of `order`.
      places=jnp.argsort(order).astype(jnp.int32),
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
  ) -> tuple[ArenaState, dm_env.TimeStep, Any]:
    """Steps all games.

    Args:
      state: before the step.
      action: actions of the members, leaves [N, M, ...].

    Returns:
      The new state, the timesteps of members [N, M, ...], and the `Results`;
      `()` in single-seat games.
    """
    state, timestep = self.step_games(state, action)
    results = () if state.match is None else self.results(state, timestep)
    return state, self.to_members(state, timestep), results

  def step_games(
    self, state: ArenaState, action: types.ArrayTree
  ) -> tuple[ArenaState, dm_env.TimeStep]:
    """Steps all games and returns the timesteps of all seats [G, P, ...]."""
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
      # From the order of `order`, members and then opponents, to seats.
      return flat[places].reshape(*shape, *flat.shape[1:])

    games, timestep = self.games.step(
      state.games, jax.tree.map(to_seats, action, *actions)
    )
    match = match._replace(
      opponents=opponents,
      seen=self._of_opponents(match.order, timestep),
    )
    return ArenaState(games, match), timestep

  def results(self, state: ArenaState, timestep: dm_env.TimeStep) -> Results:
    """Returns the games that ended with a timestep, leaves [G, P, ...]."""
    # The seats of a game end together.
    ended = timestep.step_type[:, 0] == types.LAST
    return Results(ended, self.games.outcome(state.games))

  def to_members(
    self, state: ArenaState, tree: types.ArrayTree
  ) -> types.ArrayTree:
    """Gathers leaves [G, P, ...] into leaves [N, M, ...]."""
    shape = self.seating.num_members, self.seating.seats_per_member
    match = state.match

    def gather(leaf: types.Array) -> types.Array:
      flat = leaf.reshape(-1, *leaf.shape[2:])
      if match is not None:
        # Members come first in `order`, in equal blocks of M seats.
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
    """The number of seats of each opponent."""
    return [
      int((self.seating.opponents == index).sum())
      for index in range(len(self.opponents))
    ]

  @property
  def _num_taken(self) -> int:
    """The number of seats of all members together."""
    return self.seating.num_members * self.seating.seats_per_member

  def _of_opponents(
    self, order: types.Array, timestep: dm_env.TimeStep
  ) -> dm_env.TimeStep | None:
    """Returns the opponents' rows [O, ...] of a timestep [G, P, ...]."""
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
        # Seats are numbered game by game.
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


def record_results(
  population: state_lib.PopulationState,
  teams: types.Array,
  results: Results,
  config: population_config.PopulationConfig,
) -> state_lib.PopulationState:
  """Records and rates all games that ended in `S` steps of `G` places.

  Games are rated in the order in which they ended, those of one step in the
  order of their places. The time depends on the number of ended games alone.

  Args:
    population: the population before the games.
    teams: int32 [G, 2, team_size], the players at each place.
    results: results of the steps, leaves [S, G, ...].
    config: options of the population.

  Returns:
    The population after the games.
  """
  num_places = teams.shape[0]
  num_games = jnp.sum(results.ended, dtype=jnp.int32)
  # Outcomes lie in [-1, 1] for each team; ratings take the score of the first
  # team, in [0, 1].
  scores = 0.5 * (1.0 + results.outcome[..., 0]).reshape(-1)
  # Indices of the ended games, [S * G]; the rest is filled with zeros.
  where = jnp.flatnonzero(results.ended, size=results.ended.size)

  def record(
    index: types.Array, rated: state_lib.PopulationState
  ) -> state_lib.PopulationState:
    start = index * num_places
    game = jax.lax.dynamic_slice(where, (start,), (num_places,))
    return state_lib.record_games(
      rated,
      teams[game % num_places],
      scores[game],
      start + jnp.arange(num_places) < num_games,
      config,
    )

  nobody: Any = ()  # The loop carries no members, who do not change.
  rated: state_lib.PopulationState = jax.lax.fori_loop(
    0,
    -(-num_games // num_places),
    record,
    population._replace(members=nobody),
  )
  return rated._replace(members=population.members)


def make_arena(
  game: functional.FunctionalGame,
  seats: seating.Seating,
  opponents: Sequence[players.Player] = (),
) -> Arena:
  """Returns an arena for `game` with the given seating; see `Arena`."""
  return Arena(
    functional.vectorize(game, seats.num_games), seats, tuple(opponents)
  )
