"""Compiled games whose seats are taken by population members and opponents.

Games have leaves [G, P, ...], members act on leaves [N, M, ...]: the seats of
each member, gathered from all games (see `population.routing`). Opponents act
inside the arena.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import dm_env
import jax
import jax.numpy as jnp

from ftwax import types
from ftwax.environments import absences, functional
from ftwax.population import players, population_config, routing
from ftwax.population import seating as seating_lib
from ftwax.population import state as state_lib


class Results(NamedTuple):
  """The games that ended with a step, leaves [G, ...].

  Attributes:
    ended: bool [G], whether a game ended at each index.
    outcome: float32 [G, num_teams], valid where a game ended; see
      `functional.FunctionalGame.outcome`.
    metrics: float32 [G] by name, valid where a game ended; () for none.
  """

  ended: types.Array
  outcome: types.Array
  metrics: Any = ()


class MatchState(NamedTuple):
  """Seats and opponents of games of several seats.

  Attributes:
    routes: where players sit.
    opponents: the state of each opponent.
    seen: the last timestep on the seats of opponents; see
      `routing.Router.to_opponents`.
  """

  routes: routing.Routes
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
    router: routes rows between seats, members and opponents.
  """

  games: functional.FunctionalGame
  router: routing.Router

  @property
  def seating(self) -> seating_lib.Seating:
    """The seats of members and opponents."""
    return self.router.seating

  def over_devices(self, act: Callable[..., Any]) -> Callable[..., Any]:
    """Returns `act(arena, *args)` in all games, as a function of the others."""
    return functools.partial(act, self)

  def to_steps(self, state: ArenaState) -> ArenaState:
    """Returns the state that `step` takes, from that between rollouts."""
    return state

  def from_steps(self, state: ArenaState, before: ArenaState) -> ArenaState:
    """Returns the state between rollouts.

    Args:
      state: after some steps.
      before: the state between rollouts before them.
    """
    del before
    return state

  def reset(
    self, key: types.Key, seats: types.Array, parameters: Any = ()
  ) -> tuple[ArenaState, dm_env.TimeStep]:
    """Starts all games.

    Args:
      key: random key for games and opponents.
      seats: int32 [G, P], the player on each seat: members are 0 to N - 1,
        opponents start at N. Each has as many seats as in `seating`. Ignored in
        single-seat games.
      parameters: of games in place of their defaults; see `curricula`.

    Returns:
      The state, and the timesteps of members [N, M, ...].
    """
    if self.seating.is_solo:
      games, timestep = self.games.reset(key, parameters)
      state = ArenaState(games, None)
      return state, self.to_members(state, timestep)
    games_key, *keys = jax.random.split(key, 1 + len(self.router.opponents))
    games, timestep = self.games.reset(games_key, parameters)
    routes = routing.make_routes(seats)
    match = MatchState(
      routes,
      self.router.init(keys),
      self.router.to_opponents(routes, _merge(timestep)),
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
      `()` in single-seat games that measure nothing.
    """
    state, timestep = self.step_games(state, action)
    results: Any = ()
    if state.match is not None or self.games.metrics is not None:
      results = self.results(state, timestep)
    return state, self.to_members(state, timestep), results

  def step_games(
    self, state: ArenaState, action: types.ArrayTree
  ) -> tuple[ArenaState, dm_env.TimeStep]:
    """Steps all games and returns the timesteps of all seats [G, P, ...]."""
    match, rows = state.match, _merge(action)
    if match is not None:
      others, opponents = self.router.act(
        match.routes, state.games.state, match.seen, match.opponents
      )
      rows = self.router.to_seats(match.routes, [rows, *others])
      match = match._replace(opponents=opponents)
    shape = self.seating.opponents.shape
    games, timestep = self.games.step(state.games, _split(rows, shape))
    if match is not None:
      seen = self.router.to_opponents(match.routes, _merge(timestep))
      match = match._replace(seen=seen)
    return ArenaState(games, match), timestep

  def results(self, state: ArenaState, timestep: dm_env.TimeStep) -> Results:
    """Returns the games that ended with a timestep, leaves [G, P, ...]."""
    ended = timestep.step_type[:, 0] == types.LAST
    if self.games.spec.absences:
      ended = absences.is_over(timestep.step_type)
    metrics = (
      () if self.games.metrics is None else self.games.metrics(state.games)
    )
    return Results(ended, self.games.outcome(state.games), metrics)

  def to_members(
    self, state: ArenaState, tree: types.ArrayTree
  ) -> types.ArrayTree:
    """Gathers leaves [G, P, ...] into leaves [N, M, ...]."""
    rows = _merge(tree)
    if state.match is not None:
      rows = self.router.to_members(state.match.routes, rows)
    shape = self.seating.num_members, self.seating.seats_per_member
    return _split(rows, shape)


def _merge(tree: types.ArrayTree) -> Any:
  """Merges the first two axes of each leaf into one of rows."""
  return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), tree)


def _split(rows: types.ArrayTree, shape: tuple[int, ...]) -> Any:
  """Splits the rows of each leaf into two axes of the given shape."""
  return jax.tree.map(lambda leaf: leaf.reshape(*shape, *leaf.shape[1:]), rows)


def record_results(
  population: state_lib.PopulationState,
  seats: types.Array,
  results: Results,
  teams: Sequence[int],
  config: population_config.PopulationConfig,
) -> state_lib.PopulationState:
  """Records and rates all games that ended in `S` steps of `G` places.

  Games are rated in the order in which they ended, those of one step in the
  order of their places. The time depends on the number of ended games alone.

  Args:
    population: the population before the games.
    seats: int32 [G, P], the players at each place.
    results: results of the steps, leaves [S, G, ...].
    teams: the team of each seat.
    config: options of the population.

  Returns:
    The population after the games.
  """
  num_places = seats.shape[0]
  num_games = jnp.sum(results.ended, dtype=jnp.int32)
  outcomes = results.outcome.reshape(-1, results.outcome.shape[-1])
  # Indices of the ended games, [S * G]; the rest is filled with zeros.
  where = jnp.flatnonzero(results.ended, size=results.ended.size)

  def record(
    index: types.Array, rated: state_lib.PopulationState
  ) -> state_lib.PopulationState:
    start = index * num_places
    game = jax.lax.dynamic_slice(where, (start,), (num_places,))
    return state_lib.record_games(
      rated,
      seats[game % num_places],
      outcomes[game],
      start + jnp.arange(num_places) < num_games,
      teams,
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
  seats: seating_lib.Seating,
  opponents: Sequence[players.Player] = (),
) -> Arena:
  """Returns an arena for `game` with the given seating; see `Arena`."""
  return Arena(
    functional.vectorize(game, seats.num_games),
    routing.Router(seats, opponents),
  )
