"""Games between population members, for runtimes whose actors run in Python.

The members' rows are [N * M, ...]: the M seats of member 0, then those of
member 1, and so on. An arena thus has the interface of a vector of
environments. The arena itself acts on the seats of opponents, which do not
learn.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import dm_env
import jax
import numpy as np

from ftwax import types
from ftwax.environments import compiled_games, game_vectors, specified
from ftwax.population import players
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
    made: game_vectors.GameVector,
    seating: seating_lib.Seating,
    opponents: Sequence[players.Player],
    key: types.Key,
  ):
    """Takes ownership of the games; `close` closes them.

    Args:
      made: the games.
      seating: assigns seats to members and opponents.
      opponents: players that do not learn.
      key: random key for the opponents.

    Raises:
      TypeError: if an opponent needs JAX games and these are Python games.
    """
    super().__init__(made.spec.environment)
    self.spec = made.spec
    self._games = made
    self._seating = seating
    self._shape = seating.opponents.shape
    self._opponents = []
    for index, player in enumerate(opponents):
      own_key = jax.random.fold_in(key, index)
      self._opponents.append(
        _SeatedPlayer(player, index, made, seating, own_key)
      )
    self._order: types.NumpyArray | None = None  # Seats of the members' rows.
    self._timestep: dm_env.TimeStep | None = None  # Leaves [G * P, ...].
    self._returns = np.zeros((*self._shape, self.spec.num_events), np.float32)
    self._lengths = np.zeros(made.num_games, np.int64)
    self._num_played = np.zeros(made.num_games, np.int64)
    self._results: list[evaluation.GameResult] = []

  @property
  def num_environments(self) -> int:
    """Number of rows: the seats of all members."""
    return self._seating.num_members * self._seating.seats_per_member

  @property
  def all_played(self) -> bool:
    """Whether every game has ended at least once since the last seating."""
    return bool(self._num_played.all())

  @property
  def state(self) -> Any:
    """States of JAX games, leaves [G, ...]; None for Python games."""
    return self._games.state

  def seat(self, seats: types.NumpyArray) -> None:
    """Seats players; `reset` must be called next.

    Args:
      seats: int32 [G, P], the player on each seat: members are 0 to N - 1, all
        equally often; opponents start at N.
    """
    self._seats = np.array(seats, np.int32)
    # None if rows already are in the order of the members: nothing to gather.
    order = np.argsort(self._seats.reshape(-1), kind='stable')
    in_order = len(order) == self.num_environments and (
      order == np.arange(len(order))
    )
    # Opponents have higher numbers than members, so their seats come last.
    self._order = None if np.all(in_order) else order[: self.num_environments]
    self._num_played[:] = 0

  def reset(self) -> dm_env.TimeStep:
    """Starts all games; returns timesteps with leaves [N * M, ...]."""
    self._returns[:] = 0.0
    self._lengths[:] = 0
    for opponent in self._opponents:
      opponent.reset()
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

  def step_some(self, action: types.ArrayTree, max_steps: int) -> None:
    """Steps only the first games, as many as `max_steps` actions allow.

    Args:
      action: actions of the members, leaves [N * M, ...].
      max_steps: maximum number of members' actions.
    """
    if self._timestep is None:
      return
    # Games that restart take no actions, so their places cost nothing.
    moves = self._first_column(self._timestep.step_type) != types.LAST
    num_steps = np.where(moves, self._seating.is_member.sum(axis=1), 0)
    places = np.flatnonzero(moves & (np.cumsum(num_steps) <= max_steps))
    self._games.step_games(self._to_seats(action), places.tolist())

  def take_results(self) -> list[evaluation.GameResult]:
    """Returns the results of games that ended since the last call."""
    results, self._results = self._results, []
    return results

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
      tuple(opponent.save() for opponent in self._opponents),
    )

  def restore(self, state: ArenaState) -> dm_env.TimeStep:
    """Continues from a state; returns its timesteps, leaves [N * M, ...]."""
    self.seat(state.seats)
    self._games.restore(state.games, state.timestep)
    self._returns = np.array(state.returns)
    self._lengths = np.array(state.lengths)
    self._num_played = np.array(state.num_played)
    for opponent, saved in zip(self._opponents, state.opponents, strict=True):
      opponent.restore(saved)
    return self._to_members(state.timestep)

  def replace_games(self, made: game_vectors.GameVector) -> None:
    """Uses other games of the same spec; call `seat` and `reset` next."""
    self._games = made
    self._timestep = None
    self._results = []

  def close(self) -> None:
    """Closes the games."""
    self._games.close()

  def _first_column(self, rows: types.NumpyArray) -> types.NumpyArray:
    """Returns the value of the first player of each game, [G]."""
    return rows.reshape(self._shape)[:, 0]

  def _to_members(self, timestep: dm_env.TimeStep) -> dm_env.TimeStep:
    self._timestep = timestep
    if self._order is None:
      return timestep
    order = self._order
    return jax.tree.map(lambda leaf: leaf[order], timestep)

  def _to_seats(self, action: types.ArrayTree) -> types.ArrayTree:
    if self._order is None:
      return action
    played = [
      (opponent.seats, opponent.act(self._games.state, self._timestep))
      for opponent in self._opponents
    ]
    num_seats = self._seats.size

    def scatter(own: Any, *others: Any) -> types.NumpyArray:
      own = np.asarray(own)
      all_seats = np.empty((num_seats, *own.shape[1:]), own.dtype)
      all_seats[self._order] = own
      for (seats, _), rows in zip(played, others, strict=True):
        all_seats[seats] = rows
      return all_seats

    return jax.tree.map(scatter, action, *(rows for _, rows in played))

  def _count(self, timestep: dm_env.TimeStep) -> None:
    """Adds a step, leaves [G * P, ...], and records the games that ended."""
    step_type = self._first_column(timestep.step_type)
    moved = step_type != types.FIRST
    self._returns += timestep.reward.reshape(self._returns.shape)
    self._lengths += moved
    # At `FIRST`, rewards do not count.
    if not moved.all():
      self._returns[~moved] = 0.0
    ended = np.flatnonzero(step_type == types.LAST)
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


class _SeatedPlayer:
  """An opponent and its seats."""

  def __init__(
    self,
    player: players.Player,
    index: int,
    made: game_vectors.GameVector,
    seating: seating_lib.Seating,
    key: types.Key,
  ):
    if player.reads_games and not isinstance(
      made, compiled_games.CompiledGames
    ):
      raise TypeError(
        f'opponent {index} must act on observations in Python games, but reads'
        ' game states; use players.frozen, or games in JAX.'
      )
    self.seats = np.flatnonzero(seating.opponents.reshape(-1) == index)
    self._player = player
    self._key = key
    self._state: Any = None
    num_players = seating.num_players

    def act(games: Any, timestep: dm_env.TimeStep, state: Any) -> Any:
      rows = jax.tree.map(lambda leaf: leaf[self.seats // num_players], games)
      numbers = jax.numpy.asarray(self.seats % num_players, np.int32)
      return player.act(rows, numbers, timestep, state)

    self._act = jax.jit(act)

  def reset(self) -> None:
    self._key, key = jax.random.split(self._key)
    self._state = self._player.init(key, len(self.seats))

  def save(self) -> Any:
    return self._key, self._state

  def restore(self, saved: Any) -> None:
    self._key, self._state = saved

  def act(self, games: Any, timestep: dm_env.TimeStep | None) -> Any:
    """Returns actions, leaves [M_k, ...], given the timesteps of all seats."""
    rows = jax.tree.map(lambda leaf: leaf[self.seats], timestep)
    action, self._state = self._act(
      games if self._player.reads_games else None, rows, self._state
    )
    return jax.tree.map(np.asarray, action)
