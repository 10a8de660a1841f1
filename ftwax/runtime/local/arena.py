"""Games on the host between members and opponents, stepped from Python.

The members' rows are [N * M, ...]; see `population.routing`. An arena thus has
the interface of a vector of environments. The arena itself lets opponents act,
which do not learn.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import dm_env
import jax
import numpy as np

from ftwax import types
from ftwax.environments import (
  absences,
  compiled_games,
  curricula,
  game_vectors,
  specified,
)
from ftwax.population import players, routing
from ftwax.population import seating as seating_lib


class ArenaState(NamedTuple):
  """State of an arena of JAX games.

  Attributes:
    games: see `game_vectors.GameVector.save`.
    timestep: last timesteps of all seats, leaves [G * P, ...].
    seats: int32 [G, P], the player on each seat.
    opponents: the state of each opponent.
  """

  games: Any
  timestep: dm_env.TimeStep
  seats: types.NumpyArray
  opponents: tuple[Any, ...]


class Arena(specified.Specified, dm_env.Environment):
  """`G` parallel games, which restart automatically.

  Attributes:
    games: the games.
    router: routes rows between seats, members and opponents.
    seats: int32 [G, P], the player on each seat, as given to `seat`.
    timestep: last timesteps of all seats, leaves [G * P, ...].
    num_environments: number of rows: the seats of all members.
  """

  seats: types.NumpyArray
  timestep: dm_env.TimeStep

  def __init__(
    self,
    games: game_vectors.GameVector,
    seating: seating_lib.Seating,
    opponents: Sequence[players.Player] = (),
  ):
    """Takes ownership of the games; `close` closes them.

    Raises:
      TypeError: if an opponent needs JAX games and these are Python games.
    """
    super().__init__(games.spec.environment)
    for index, player in enumerate(opponents):
      _check_player(index, player, games)
    self.games = games
    self.router = routing.Router(seating, opponents)
    self.num_environments = self.router.num_rows
    self._act = jax.jit(self.router.act)
    self._reads_games = any(player.reads_games for player in opponents)
    self._opponents: tuple[Any, ...] = ()
    self._parameters: curricula.Values = {}
    # None if rows of seats already are in the order of the members.
    self._routes: routing.Routes | None = None

  def seat(self, key: types.Key, seats: types.NumpyArray) -> None:
    """Seats players; `reset` must be called next.

    Args:
      key: random key for the opponents.
      seats: int32 [G, P], the player on each seat: members are 0 to N - 1, all
        equally often; opponents start at N.
    """
    self._place(seats)
    keys = jax.random.split(key, max(len(self.router.opponents), 1))
    self._opponents = self.router.init(list(keys)[: len(self.router.opponents)])

  def reset(self) -> dm_env.TimeStep:
    """Starts all games; returns timesteps with leaves [N * M, ...]."""
    return self._to_members(self.games.reset())

  def step(self, action: types.ArrayTree) -> dm_env.TimeStep:
    """Steps each game, or starts a new one after `LAST`.

    Args:
      action: actions of the members, leaves [N * M, ...].

    Raises:
      InvalidTimestepError: if a timestep violates the specs.
    """
    return self._to_members(self.games.step(self._to_seats(action)))

  @property
  def ended(self) -> types.NumpyArray:
    """Whether each game ended with the last step, bool [G]."""
    step_type = self.timestep.step_type.reshape(self.seats.shape)
    return absences.is_over(step_type)

  def outcomes(self) -> types.NumpyArray:
    """Returns outcomes, float32 [G, num_teams]; zero where no game ended.

    Raises:
      ValueError: if an outcome is not a finite score for each team.
    """
    num_teams = max(self.games.spec.teams) + 1
    outcomes = np.zeros((self.games.num_games, num_teams), np.float32)
    places = np.flatnonzero(self.ended)
    if places.size:
      outcomes[places] = self.games.outcomes(places.tolist())
    return outcomes

  def episode_metrics(self) -> list[dict[str, float]]:
    """Returns the metrics of games that ended with the last step, if any."""
    if not np.count_nonzero(self.timestep.step_type == types.LAST):
      return []
    places = np.flatnonzero(self.ended).tolist()
    return self.games.episode_metrics(places) if places else []

  def set_parameters(self, values: curricula.Values) -> None:
    """Gives the next episodes other parameters; see `curricula`."""
    if values != self._parameters:
      self.games.set_parameters(values)
      self._parameters = dict(values)

  @property
  def infos(self) -> Sequence[Mapping[str, Any]]:
    """What the environments returned last beside observations, for observers.

    Empty for those that step in other processes or in JAX.
    """
    return getattr(self.games, 'infos', [{}] * self.games.num_games)

  def save(self) -> ArenaState | None:
    """Returns the state after a step; None if the games cannot be saved."""
    games = self.games.save()
    if games is None:
      return None
    return ArenaState(games, self.timestep, self.seats, self._opponents)

  def restore(self, state: ArenaState) -> dm_env.TimeStep:
    """Continues from a state; returns its timesteps, leaves [N * M, ...]."""
    self._place(state.seats)
    self.games.restore(state.games, state.timestep)
    self._opponents = state.opponents
    return self._to_members(state.timestep)

  def close(self) -> None:
    """Closes the games."""
    self.games.close()

  def _place(self, seats: types.NumpyArray) -> None:
    self.seats = np.asarray(seats, np.int32)
    routes = routing.make_routes(self.seats)
    in_order = np.array_equal(routes.order, np.arange(self.num_environments))
    self._routes = None if in_order else routes

  def _to_members(self, timestep: dm_env.TimeStep) -> dm_env.TimeStep:
    self.timestep = timestep
    if self._routes is None:
      return timestep
    return self.router.to_members(self._routes, timestep)

  def _to_seats(self, action: types.ArrayTree) -> types.ArrayTree:
    if self._routes is None:
      return action
    others: list[types.ArrayTree] = []
    if self.router.opponents:
      others, self._opponents = self._act(
        self._routes,
        self.games.state if self._reads_games else None,
        self.router.to_opponents(self._routes, self.timestep),
        self._opponents,
      )
      others = jax.tree.map(np.asarray, others)
    return self.router.to_seats(self._routes, [action, *others])


def make_seeds(entropy: tuple[int, ...], num_seeds: int) -> list[int]:
  """Returns seeds below 2**31; different entropy gives different seeds."""
  sequence = np.random.SeedSequence(entropy)
  # Words have 32 bits; many simulators take signed seeds of 32 bits.
  return [int(x) >> 1 for x in sequence.generate_state(num_seeds)]


def _check_player(
  index: int, player: players.Player, games: game_vectors.GameVector
) -> None:
  """Raises a TypeError if an opponent needs JAX games and these are not."""
  if player.reads_games and not isinstance(games, compiled_games.CompiledGames):
    raise types.InvalidTypeError(
      f'opponent {index} must act on observations in Python games, but reads'
      ' game states; use population.observing_player, or a game in JAX.'
    )
