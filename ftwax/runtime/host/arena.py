"""Games that members of a population play, as runtimes that act in Python do.

The members' rows are [N * M, ...], the M seats of the first member before those
of the second, so that an arena has the interface of a vector of environments.
Seats of opponents, which do not learn, are played by the arena itself.
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
  """State of an arena whose games are in JAX.

  Attributes:
    games: see `game_vectors.GameVector.save`.
    timestep: of all seats, [G * P, ...].
    seats: int32 [G, P].
    returns: float32 [G, P, num_events], of the games under way.
    lengths: int64 [G].
    num_played: int64 [G], games that ended since members were seated.
    opponents: key and state of each.
  """

  games: Any
  timestep: dm_env.TimeStep
  seats: types.NumpyArray
  returns: types.NumpyArray
  lengths: types.NumpyArray
  num_played: types.NumpyArray
  opponents: tuple[Any, ...]


class Arena(specified.Specified, dm_env.Environment):
  """`G` games side by side, which restart by themselves."""

  def __init__(
    self,
    made: game_vectors.GameVector,
    seating: seating_lib.Seating,
    opponents: Sequence[players.Player],
    key: types.Key,
  ):
    """Takes over games, to close them in the end.

    Args:
      made: the games.
      seating: seats of members and opponents.
      opponents: players that do not learn.
      key: for the draws of opponents.

    Raises:
      TypeError: if an opponent needs games in JAX and these are in Python.
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
    self._timestep: dm_env.TimeStep | None = None  # Of all seats, [G * P, ...].
    self._returns = np.zeros((*self._shape, self.spec.num_events), np.float32)
    self._lengths = np.zeros(made.num_games, np.int64)
    self._num_played = np.zeros(made.num_games, np.int64)
    self._results: list[evaluation.GameResult] = []

  @property
  def num_environments(self) -> int:
    """Rows: the seats of all members."""
    return self._seating.num_members * self._seating.seats_per_member

  @property
  def all_played(self) -> bool:
    """Whether a game has ended on each place since members were seated."""
    return bool(self._num_played.all())

  @property
  def state(self) -> Any:
    """States of games in JAX, leaves [G, ...]; None for games in Python."""
    return self._games.state

  def seat(self, seats: types.NumpyArray) -> None:
    """Seats players, which a reset has to follow.

    Args:
      seats: int32 [G, P], the player on each seat: members from zero, all
        equally often, opponents from N on.
    """
    self._seats = np.array(seats, np.int32)
    order = np.argsort(self._seats.reshape(-1), kind='stable')
    in_order = len(order) == self.num_environments and (
      order == np.arange(len(order))
    )
    self._order = None if np.all(in_order) else order[: self.num_environments]
    self._num_played[:] = 0

  def reset(self) -> dm_env.TimeStep:
    """Starts all games; leaves of the timestep are [N * M, ...]."""
    self._returns[:] = 0.0
    self._lengths[:] = 0
    for opponent in self._opponents:
      opponent.reset()
    return self._to_members(self._games.reset())

  def step(self, action: types.ArrayTree) -> dm_env.TimeStep:
    """Plays a step of each game, or starts a new one after `LAST`.

    Args:
      action: leaves [N * M, ...], in the order of the members.

    Raises:
      InvalidTimestepError: if a timestep is off the specs.
      ValueError: if an outcome is neither win nor draw nor loss.
    """
    timestep = self._games.step(self._to_seats(action))
    rows = self._to_members(timestep)
    self._count(timestep)
    return rows

  def step_some(self, action: types.ArrayTree, max_steps: int) -> None:
    """Plays a step of the first games, as many as `max_steps` actions allow.

    Args:
      action: leaves [N * M, ...].
      max_steps: actions of members that may be taken.
    """
    if self._timestep is None:
      return
    moves = self._first_column(self._timestep.step_type) != types.LAST
    num_steps = np.where(moves, self._seating.is_member.sum(axis=1), 0)
    places = np.flatnonzero(moves & (np.cumsum(num_steps) <= max_steps))
    self._games.step_games(self._to_seats(action), places.tolist())

  def take_results(self) -> list[evaluation.GameResult]:
    """Returns the games that have ended since the last call."""
    results, self._results = self._results, []
    return results

  def save(self) -> ArenaState | None:
    """Returns the state after a step, or None if the games have none."""
    games = self._games.save()
    if games is None or self._timestep is None:
      return None
    return ArenaState(
      games,
      self._timestep,
      self._seats,
      self._returns.copy(),
      self._lengths.copy(),
      self._num_played.copy(),
      tuple(opponent.save() for opponent in self._opponents),
    )

  def restore(self, state: ArenaState) -> dm_env.TimeStep:
    """Continues from a state; returns its timestep, leaves [N * M, ...]."""
    self.seat(state.seats)
    self._games.restore(state.games, state.timestep)
    self._returns = np.array(state.returns)
    self._lengths = np.array(state.lengths)
    self._num_played = np.array(state.num_played)
    for opponent, saved in zip(self._opponents, state.opponents, strict=True):
      opponent.restore(saved)
    return self._to_members(state.timestep)

  def replace_games(self, made: game_vectors.GameVector) -> None:
    """Plays other games of the same spec; seats and a reset have to follow."""
    self._games = made
    self._timestep = None
    self._results = []

  def close(self) -> None:
    """Closes the games."""
    self._games.close()

  def _first_column(self, rows: types.NumpyArray) -> types.NumpyArray:
    """Returns the entry of the first player of each game, [G]."""
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
    """Adds a step up, leaves [G * P, ...], and notes the games that ended."""
    step_type = self._first_column(timestep.step_type)
    moved = step_type != types.FIRST
    self._returns += timestep.reward.reshape(self._returns.shape)
    self._lengths += moved
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
  """An opponent on its seats."""

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
        f'opponent {index} must play by what it observes in games in Python,'
        ' and it reads the states of games; give players.frozen, or games in'
        ' JAX.'
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
    """Returns actions, leaves [M_k, ...], given timesteps of all seats."""
    rows = jax.tree.map(lambda leaf: leaf[self.seats], timestep)
    action, self._state = self._act(
      games if self._player.reads_games else None, rows, self._state
    )
    return jax.tree.map(np.asarray, action)
