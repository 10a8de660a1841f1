"""Games in Python whose players are members of a population.

The counterpart of `runtime.device.arena`: games have leaves [G, P, ...], and
what members see and do are rows [N * M, ...], the M seats of the first member
before those of the second. So it has the face of a vector of environments, for
the same loop.
"""

import contextlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import dm_env
import jax
import numpy as np

from ftwax import types
from ftwax.environments import (
  functional,
  game_vectors,
  games,
  specified,
  validation,
)
from ftwax.population import seating
from ftwax.runtime import experiment as experiment_lib

_FIRST, _LAST = int(dm_env.StepType.FIRST), int(dm_env.StepType.LAST)


class Result(NamedTuple):
  """A game, or an episode of a single-agent task, that has ended.

  Attributes:
    place: of the arena on which it was played.
    seats: int32 [P], the member on each seat.
    outcome: float32 [num_teams], 1 for a team that has won, 0 for a draw, -1
      for one that has lost.
    returns: float32 [P, num_events], sums of the rewards of each player.
    length: steps.
  """

  place: int
  seats: np.ndarray
  outcome: np.ndarray
  returns: np.ndarray
  length: int


class Arena(specified.Specified, dm_env.Environment):
  """`G` games side by side, which begin anew by themselves."""

  def __init__(
    self,
    made: game_vectors.GameVector,
    experiment: experiment_lib.PopulationExperimentConfig,
  ):
    """Takes over games, to close them in the end.

    Args:
      made: the games.
      experiment: tells the members.

    Raises:
      ValueError: if their players are not those of the config, or their seats
        cannot be shared out evenly.
    """
    config: Any = experiment.population
    self._games = made
    self._name = experiment.name
    self.spec = made.spec
    super().__init__(made.spec.environment)
    seating.check_teams(self.spec.teams, config)
    self._shape = made.num_games, len(self.spec.teams)
    self.seats_per_member = seating.seats_per_member(
      config.num_members, *self._shape
    )
    self._returns = np.zeros((*self._shape, self.spec.num_events), np.float32)
    self._lengths = np.zeros(made.num_games, np.int64)
    self._num_played = np.zeros(made.num_games, np.int64)
    self._results: list[Result] = []
    self.seat(np.resize(np.arange(config.num_members), self._shape))

  @property
  def num_environments(self) -> int:
    """Rows: seats of all members."""
    return len(self._order)

  @property
  def all_played(self) -> bool:
    """Whether a game has ended on each place since members were seated."""
    return bool(self._num_played.all())

  def seat(self, seats: np.ndarray) -> None:
    """Seats members, int32 [G, P], all equally often; to be followed by reset.

    Args:
      seats: the member on each seat.
    """
    self._seats = np.array(seats, np.int32)
    # The seat, of all seats in a row, behind each row of the members.
    self._order = np.argsort(self._seats.reshape(-1), kind='stable')
    self._rows = np.argsort(self._order)
    self._num_played[:] = 0

  def reset(self) -> dm_env.TimeStep:
    """Starts all games; leaves of the timestep are [N * M, ...]."""
    self._returns[:] = 0
    self._lengths[:] = 0
    return self._to_rows(self._games.reset())

  def step(self, action: types.ArrayTree) -> dm_env.TimeStep:
    """Plays a step of each game, or starts a new one after `LAST`.

    Args:
      action: leaves [N * M].

    Raises:
      InvalidTimestepError: if a reward is not finite.
      ValueError: if an outcome is neither win nor draw nor loss.
    """
    timestep = self._games.step(jax.tree.map(self._to_seats, action))
    self._count(timestep)
    return self._to_rows(timestep)

  def step_rows(self, action: types.ArrayTree, rows: Sequence[int]) -> None:
    """Plays a step of as many games as there are players for.

    Args:
      action: leaves [N * M].
      rows: of players who may act; how many they are is all that counts.
    """
    num_games = len(rows) // self._shape[1]
    self._games.step_games(
      jax.tree.map(self._to_seats, action), range(num_games)
    )

  def take_results(self) -> list[Result]:
    """Returns the games that have ended since the last call."""
    results, self._results = self._results, []
    return results

  def close(self) -> None:
    """Closes the games."""
    self._games.close()

  def _to_rows(self, timestep: dm_env.TimeStep) -> dm_env.TimeStep:
    return jax.tree.map(
      lambda leaf: leaf.reshape(-1, *leaf.shape[2:])[self._order], timestep
    )

  def _to_seats(self, leaf: np.ndarray) -> np.ndarray:
    return np.asarray(leaf)[self._rows].reshape(*self._shape, *leaf.shape[1:])

  def _count(self, timestep: dm_env.TimeStep) -> None:
    """Adds a step up, leaves [G, P, ...], and notes the games that ended."""
    is_finite = np.isfinite(timestep.reward).reshape(self._shape[0], -1)
    if not is_finite.all():
      place = int(np.argmin(is_finite.all(axis=1)))
      raise validation.InvalidTimestepError(
        f'reward of game {self._name}[{place}]'
        f' ({timestep.reward[place].tolist()}) must be finite; mend the game,'
        ' or leave out what it divides by zero.'
      )
    step_type = timestep.step_type[:, 0]
    moved = step_type != _FIRST
    rewards = timestep.reward.reshape(*self._shape, -1)
    self._returns += np.where(moved[:, None, None], rewards, 0.0)
    self._lengths += moved
    ended = np.flatnonzero(step_type == _LAST)
    if ended.size:
      self._note_results(ended)

  def _note_results(self, ended: np.ndarray) -> None:
    outcomes = self._games.outcomes(ended.tolist())
    for place, outcome in zip(ended, outcomes, strict=True):
      games.check_outcome(outcome, max(self.spec.teams) + 1)
      self._results.append(
        Result(
          int(place),
          self._seats[place].copy(),
          np.asarray(outcome, np.float32),
          self._returns[place].copy(),
          int(self._lengths[place]),
        )
      )
    self._returns[ended] = 0
    self._lengths[ended] = 0
    self._num_played[ended] += 1


def make_games(
  experiment: experiment_lib.PopulationExperimentConfig, seeds: Sequence[int]
) -> game_vectors.GameVector:
  """Makes games: of Python or in JAX, also of environments of one agent.

  Args:
    experiment: tells the factory; what it makes in JAX it makes once.
    seeds: of the games, in JAX the first one of all.

  Raises:
    TypeError: if the factory makes none of these.
  """
  made: Any = experiment.environment_factory(seeds[0])
  if isinstance(made, functional.FunctionalEnvironment):
    made = functional.as_game(made)
  if isinstance(made, functional.FunctionalGame):
    return game_vectors.CompiledGameVector(made, len(seeds), seeds[0])
  rest = [experiment.environment_factory(seed) for seed in seeds[1:]]
  return game_vectors.HostGameVector(
    [_as_game(one, experiment.name) for one in (made, *rest)]
  )


def _as_game(made: Any, name: str) -> games.GameEnvironment:
  if isinstance(made, dm_env.Environment):
    return games.SoloGame(validation.ValidatedEnvironment(made, name))
  if not hasattr(made, 'outcome'):
    raise TypeError(
      f'environment_factory must make a game for a population, and made a'
      f' {type(made).__name__}; give a games.GameEnvironment, a functional game'
      ' or, for a single-agent task, a dm_env.Environment.'
    )
  return made


def count_seats(
  experiment: experiment_lib.PopulationExperimentConfig,
) -> int:
  """Returns the seats of each member in an arena.

  Raises:
    ValueError: if seats cannot be shared out evenly.
  """
  config: Any = experiment.population
  return seating.seats_per_member(
    config.num_members, experiment.num_environments, config.num_players
  )


def read_spec(
  experiment: experiment_lib.PopulationExperimentConfig,
) -> game_vectors.GameSpec:
  """Returns what the experiment plays, read off a game of its own."""
  with contextlib.closing(make_games(experiment, [0])) as made:
    return made.spec
