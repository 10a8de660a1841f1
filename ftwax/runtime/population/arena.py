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

from ftwax import internal_rewards, types
from ftwax.environments import functional, games, validation
from ftwax.population import seating
from ftwax.runtime import experiment as experiment_lib

_FIRST, _LAST = int(dm_env.StepType.FIRST), int(dm_env.StepType.LAST)


class GameSpec(NamedTuple):
  """What is played.

  Attributes:
    environment: specs of one player.
    teams: the team of each player.
    event_names: what the entries of the reward count.
  """

  environment: types.EnvironmentSpec
  teams: tuple[int, ...]
  event_names: tuple[str, ...]

  @property
  def num_events(self) -> int:
    """Entries of the reward, 1 for a scalar."""
    return internal_rewards.num_events(self.environment.rewards)


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


class Arena(dm_env.Environment):
  """`G` games side by side, which begin anew by themselves."""

  def __init__(
    self,
    made: Sequence[games.GameEnvironment],
    experiment: experiment_lib.PopulationExperimentConfig,
  ):
    """Takes over games, to close them in the end.

    Args:
      made: the games, at least one.
      experiment: tells the members.

    Raises:
      ValueError: if games differ, their players are not those of the config,
        or their seats cannot be shared out evenly.
    """
    config: Any = experiment.population
    self._games = tuple(made)
    self._name = experiment.name
    self.spec = _common_spec(made)
    seating.check_teams(self.spec.teams, config)
    self._shape = len(made), len(self.spec.teams)
    self.seats_per_member = seating.seats_per_member(
      config.num_members, *self._shape
    )
    self._returns = np.zeros((*self._shape, self.spec.num_events), np.float32)
    self._lengths = np.zeros(len(made), np.int64)
    self._num_played = np.zeros(len(made), np.int64)
    self._results: list[Result] = []
    self.seat(np.resize(np.arange(config.num_members), self._shape))

  @property
  def num_environments(self) -> int:
    """Rows: seats of all members."""
    return len(self._order)

  @property
  def environments(self) -> tuple[games.GameEnvironment, ...]:
    """The games."""
    return self._games

  @property
  def all_played(self) -> bool:
    """Whether a game has ended on each place since members were seated."""
    return bool(self._num_played.all())

  def observation_spec(self) -> types.SpecTree:
    """Returns the specs of one player's observation."""
    return self.spec.environment.observations

  def action_spec(self) -> types.SpecTree:
    """Returns the specs of one player's action."""
    return self.spec.environment.actions

  def reward_spec(self) -> types.SpecTree:
    """Returns the spec of one player's reward."""
    return self.spec.environment.rewards

  def discount_spec(self) -> types.SpecTree:
    """Returns the spec of one player's discount."""
    return self.spec.environment.discounts

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
    return self._to_rows([game.reset() for game in self._games])

  def step(self, action: types.ArrayTree) -> dm_env.TimeStep:
    """Plays a step of each game, or starts a new one after `LAST`.

    Args:
      action: leaves [N * M].

    Raises:
      InvalidTimestepError: if a reward is not finite.
      ValueError: if an outcome is neither win nor draw nor loss.
    """
    timesteps = self.step_games(action, len(self._games))
    for place, timestep in enumerate(timesteps):
      if timestep.step_type[0] != _FIRST:
        self._count(place, timestep)
    return self._to_rows(timesteps)

  def step_games(
    self, action: types.ArrayTree, num_games: int
  ) -> list[dm_env.TimeStep]:
    """Plays a step of the first games alone, and counts nothing.

    Args:
      action: leaves [N * M].
      num_games: how many.

    Returns:
      Their timesteps, leaves [P, ...].
    """
    action = jax.tree.map(self._to_seats, action)
    return [
      game.step(jax.tree.map(lambda leaf, i=place: leaf[i], action))
      for place, game in enumerate(self._games[:num_games])
    ]

  def take_results(self) -> list[Result]:
    """Returns the games that have ended since the last call."""
    results, self._results = self._results, []
    return results

  def close(self) -> None:
    """Closes the games."""
    for game in self._games:
      game.close()

  def _to_rows(self, timesteps: Sequence[dm_env.TimeStep]) -> dm_env.TimeStep:
    return jax.tree.map(
      lambda *leaves: np.concatenate(leaves)[self._order], *timesteps
    )

  def _to_seats(self, leaf: np.ndarray) -> np.ndarray:
    return np.asarray(leaf)[self._rows].reshape(*self._shape, *leaf.shape[1:])

  def _count(self, place: int, timestep: dm_env.TimeStep) -> None:
    if not np.isfinite(timestep.reward).all():
      raise validation.InvalidTimestepError(
        f'reward of game {self._name}[{place}] ({timestep.reward.tolist()})'
        ' must be finite; mend the game, or leave out what it divides by zero.'
      )
    self._returns[place] += timestep.reward.reshape(self._shape[1], -1)
    self._lengths[place] += 1
    if timestep.step_type[0] != _LAST:
      return
    outcome = self._games[place].outcome()
    games.check_outcome(outcome, max(self.spec.teams) + 1)
    self._results.append(
      Result(
        place,
        self._seats[place].copy(),
        np.asarray(outcome, np.float32),
        self._returns[place].copy(),
        int(self._lengths[place]),
      )
    )
    self._returns[place] = 0
    self._lengths[place] = 0
    self._num_played[place] += 1


def make_games(
  experiment: experiment_lib.PopulationExperimentConfig, seeds: Sequence[int]
) -> list[games.GameEnvironment]:
  """Makes games in Python: of one in JAX, or of environments of one agent.

  Args:
    experiment: tells the factory; what it makes in JAX it makes once, so that
      it is compiled once.
    seeds: of the games.

  Raises:
    TypeError: if the factory makes none of these.
  """
  made: Any = experiment.environment_factory(seeds[0])
  if isinstance(made, functional.FunctionalEnvironment):
    made = functional.as_game(made)
  if isinstance(made, functional.FunctionalGame):
    return [games.DmGame(made, seed) for seed in seeds]
  rest = [experiment.environment_factory(seed) for seed in seeds[1:]]
  return [_as_game(one, experiment.name) for one in (made, *rest)]


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
) -> GameSpec:
  """Returns what the experiment plays, read off a game of its own."""
  (made,) = make_games(experiment, [0])
  with contextlib.closing(made):
    return _spec_of(made)


def _spec_of(game: games.GameEnvironment) -> GameSpec:
  return GameSpec(
    types.make_environment_spec(game), tuple(game.teams), game.event_names
  )


def _common_spec(made: Sequence[games.GameEnvironment]) -> GameSpec:
  first = _spec_of(made[0])
  for index, game in enumerate(made[1:], start=1):
    if _spec_of(game) != first:
      raise ValueError(
        f'game {index} ({_spec_of(game)}) must be like game 0 ({first}); make'
        ' games of one kind in environment_factory.'
      )
  return first
