"""Games between population members, for runtimes whose actors run in Python.

The members' rows are [N * M, ...]; see `population.routing`. An arena thus has
the interface of a vector of environments. The arena itself lets opponents act,
which do not learn.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import dm_env
import jax
import numpy as np

from ftwax import types
from ftwax.environments import absences, compiled_games, game_vectors, specified
from ftwax.population import past_selves, players, routing
from ftwax.population import seating as seating_lib
from ftwax.runtime import evaluation


class ArenaState(NamedTuple):
  """State of an arena of JAX games.

  Attributes:
    games: see `game_vectors.GameVector.save`.
    timestep: last timesteps of all seats, leaves [G * P, ...].
    seats: int32 [G, P], the player on each seat.
    returns: float32 [G, P, num_events], of the current games so far.
    lengths: int64 [G], of the current games so far.
    num_played: int64 [G], number of games that ended since the last seating.
    opponents: random key and state of each opponent.
  """

  games: Any
  timestep: dm_env.TimeStep
  seats: types.NumpyArray
  returns: types.NumpyArray
  lengths: types.NumpyArray
  num_played: types.NumpyArray
  opponents: tuple[Any, ...]


class Arena(specified.Specified, dm_env.Environment):
  """`G` parallel games, which restart automatically."""

  def __init__(
    self,
    games: game_vectors.GameVector,
    seating: seating_lib.Seating,
    opponents: Sequence[players.Player],
    key: types.Key,
  ):
    """Takes ownership of the games; `close` closes them.

    Args:
      games: the games.
      seating: assigns seats to members and opponents.
      opponents: players that do not learn.
      key: random key for the opponents.

    Raises:
      TypeError: if an opponent needs JAX games and these are Python games.
    """
    super().__init__(games.spec.environment)
    self.spec = games.spec
    for index, player in enumerate(opponents):
      _check_player(index, player, games)
    self._games = games
    self._router = routing.Router(seating, opponents)
    self._shape = seating.opponents.shape
    self._reads_games = any(player.reads_games for player in opponents)
    # A random key and a state for each opponent.
    self._opponents: list[tuple[types.Key, Any]] = [
      (jax.random.fold_in(key, index), None) for index in range(len(opponents))
    ]
    self._act = jax.jit(self._router.act)
    # None if rows of seats already are in the order of the members.
    self._routes: routing.Routes | None = None
    self._timestep: dm_env.TimeStep | None = None  # Leaves [G * P, ...].
    self._returns = np.zeros((*self._shape, self.spec.num_events), np.float32)
    self._lengths = np.zeros(games.num_games, np.int64)
    self._num_played = np.zeros(games.num_games, np.int64)
    self._results: list[evaluation.GameResult] = []

  @property
  def num_environments(self) -> int:
    """Number of rows: the seats of all members."""
    return self._router.num_rows

  @property
  def all_played(self) -> bool:
    """Whether every game has ended at least once since the last seating."""
    return bool(self._num_played.all())

  @property
  def state(self) -> Any:
    """States of JAX games, leaves [G, ...]; None for Python games."""
    return self._games.state

  def seat(self, seats: types.NumpyArray, past: Any = ()) -> None:
    """Seats players; `reset` must be called next.

    Args:
      seats: int32 [G, P], the player on each seat: members are 0 to N - 1, all
        equally often; opponents start at N.
      past: variables of past selves; see `past_selves.seat`.
    """
    self._past = past
    self._seats = np.array(seats, np.int32)
    routes = self._router.route(self._seats)
    in_order = np.array_equal(routes.order, np.arange(self.num_environments))
    self._routes = None if in_order else routes
    self._num_played[:] = 0

  def reset(self) -> dm_env.TimeStep:
    """Starts all games; returns timesteps with leaves [N * M, ...]."""
    self._returns[:] = 0.0
    self._lengths[:] = 0
    split = [jax.random.split(key) for key, _ in self._opponents]
    states = self._router.init([key for _, key in split])
    states = past_selves.seat(states, self._past)
    self._opponents = [
      (key, state) for (key, _), state in zip(split, states, strict=True)
    ]
    return self._to_members(self._games.reset())

  def step(self, action: types.ArrayTree) -> dm_env.TimeStep:
    """Steps each game, or starts a new one after `LAST`.

    Args:
      action: actions of the members, leaves [N * M, ...].

    Raises:
      InvalidTimestepError: if a timestep violates the specs.
      ValueError: if an outcome is not a win, a draw or a loss.
    """
    timestep = self._games.step(self._to_seats(action))
    rows = self._to_members(timestep)
    self._count(timestep)
    return rows

  def take_results(self) -> list[evaluation.GameResult]:
    """Returns the results of games that ended since the last call."""
    results, self._results = self._results, []
    return results

  @property
  def unfinished(self) -> tuple[types.NumpyArray, types.NumpyArray]:
    """Returns [G, P, num_events] and lengths [G] of the present games."""
    return self._returns, self._lengths

  def save(self) -> ArenaState | None:
    """Returns the state after a step; None if the games cannot be saved."""
    games = self._games.save()
    if games is None or self._timestep is None:
      return None
    return ArenaState(
      games,
      self._timestep,
      self._seats,
      # Copies, since steps change these arrays in place.
      self._returns.copy(),
      self._lengths.copy(),
      self._num_played.copy(),
      tuple(self._opponents),
    )

  def restore(self, state: ArenaState) -> dm_env.TimeStep:
    """Continues from a state; returns its timesteps, leaves [N * M, ...]."""
    self.seat(state.seats)
    self._games.restore(state.games, state.timestep)
    self._returns = np.array(state.returns)
    self._lengths = np.array(state.lengths)
    self._num_played = np.array(state.num_played)
    self._opponents = [(key, saved) for key, saved in state.opponents]
    return self._to_members(state.timestep)

  def replace_games(self, games: game_vectors.GameVector) -> None:
    """Uses other games of the same spec; call `seat` and `reset` next."""
    self._games = games
    self._timestep = None
    self._results = []

  def close(self) -> None:
    """Closes the games."""
    self._games.close()

  def _to_members(self, timestep: dm_env.TimeStep) -> dm_env.TimeStep:
    self._timestep = timestep
    if self._routes is None:
      return timestep
    rows: dm_env.TimeStep = self._router.to_members(self._routes, timestep)
    return rows

  def _to_seats(self, action: types.ArrayTree) -> types.ArrayTree:
    if self._routes is None:
      return action
    others: list[types.ArrayTree] = []
    if self._opponents:
      assert self._timestep is not None
      keys, states = zip(*self._opponents, strict=True)
      others, states = self._act(
        self._games.state if self._reads_games else None,
        self._router.to_opponents(self._timestep),
        states,
      )
      self._opponents = [*zip(keys, states, strict=True)]
    others = jax.tree.map(np.asarray, others)
    return self._router.to_seats(self._routes, [action, *others])

  def _count(self, timestep: dm_env.TimeStep) -> None:
    """Adds a step, leaves [G * P, ...], and records the games that ended."""
    step_type = timestep.step_type.reshape(self._shape)
    self._returns += timestep.reward.reshape(self._returns.shape)
    self._lengths += absences.has_moved(step_type)
    is_first = step_type == types.FIRST
    # At `FIRST`, rewards do not count.
    if is_first.any():
      self._returns[is_first.all(axis=1)] = 0.0
    ended = np.flatnonzero(absences.is_over(step_type))
    if ended.size:
      self._note_results(ended)

  def _note_results(self, ended: types.NumpyArray) -> None:
    outcomes = self._games.outcomes(ended.tolist())
    returns, lengths = self._returns[ended], self._lengths[ended]
    for index, place in enumerate(ended.tolist()):
      self._results.append(
        evaluation.GameResult(
          place,
          self._seats[place],
          outcomes[index],
          returns[index],
          int(lengths[index]),
        )
      )
    self._returns[ended] = 0.0
    self._lengths[ended] = 0
    self._num_played[ended] += 1


def _check_player(
  index: int, player: players.Player, games: game_vectors.GameVector
) -> None:
  """Raises a TypeError if an opponent needs JAX games and these are not."""
  if player.reads_games and not isinstance(games, compiled_games.CompiledGames):
    raise types.InvalidTypeError(
      f'opponent {index} must act on observations in Python games, but reads'
      ' game states; use players.frozen, or games in JAX.'
    )
