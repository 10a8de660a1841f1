"""Parallel games of one kind, with a row for each seat.

Every task is a game: a single-agent environment is a game with one seat.
Timesteps and actions have leaves [G * P, ...]: the P seats of game 0, then
those of game 1, and so on. Games restart automatically: the step after `LAST`
starts a new game and ignores the action.
"""

import contextlib
import functools
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import dm_env
import jax
import numpy as np

from ftwax import trees, types
from ftwax.environments import (
  absences,
  adapting,
  compiled_games,
  curricula,
  environment_faults,
  episode_metrics,
  functional,
  games,
  validation,
  vector,
)

# Makes an environment or a game, given a seed, or a whole vector. It may also
# make a `gymnasium.Env`, whose first reset uses the seed.
EnvironmentFactory = (
  Callable[
    [int],
    dm_env.Environment
    | games.GameEnvironment
    | functional.FunctionalEnvironment
    | functional.FunctionalGame,
  ]
  | vector.VectorFactory
)


class GameVector(Protocol):
  """`G` games of one kind; see the module docstring."""

  @property
  def spec(self) -> games.GameSpec:
    """Spec of each game."""

  @property
  def num_games(self) -> int:
    """`G`, number of games."""

  @property
  def game(self) -> functional.FunctionalGame | None:
    """One of the games, if they are written in JAX."""

  @property
  def state(self) -> functional.State | None:
    """States of JAX games, leaves [G, ...]; None for Python games."""

  def reset(self) -> dm_env.TimeStep:
    """Starts all games."""

  def step(self, action: types.ArrayTree) -> dm_env.TimeStep:
    """Steps each game, or starts a new one after `LAST`."""

  def outcomes(self, places: Sequence[int]) -> types.NumpyArray:
    """Returns the outcomes of games that have just ended.

    Args:
      places: indices of games.

    Returns:
      float32 [len(places), num_teams]; see `games.GameEnvironment.outcome`.
    """

  def measure(self, names: episode_metrics.Names) -> None:
    """Asks for metrics of episodes; see the option of an experiment."""

  def episode_metrics(self, places: Sequence[int]) -> list[dict[str, float]]:
    """Returns the metrics of games that have just ended, for each a dict."""

  def play_whole_games(self) -> None:
    """Ends episodes with games alone, and not with lives, from the next on."""

  def set_parameters(self, values: curricula.Values) -> None:
    """Gives the next episodes other parameters; see `curricula`.

    Raises:
      ValueError: if the environments take none.
    """

  def save(self) -> Any:
    """Returns a pytree to restore; None for Python games."""

  def restore(self, state: Any, timestep: dm_env.TimeStep) -> None:
    """Continues from the result of `save` and the timestep at that time."""

  def close(self) -> None:
    """Releases the resources of the games."""


class VectorGames(vector.PythonGames):
  """The rows of a vector as games of one seat; their timesteps are checked."""

  def __init__(
    self, environments: vector.EnvironmentVector, name: str, first: int = 0
  ):
    """Takes ownership of a vector; `close` closes it.

    Args:
      environments: G environments that are stepped together.
      name: name of the environments in messages.
      first: index of the first environment in messages.

    Raises:
      ValueError: if agents cannot act on its specs.
    """
    num_rows = environments.num_environments
    super().__init__(games.spec_of(environments), num_rows)
    self._environments = environments
    self.wrappers = getattr(environments, 'wrappers', ())
    self._name = name
    self._checker = validation.Checker(self._spec, num_rows, 1, name, first)

  def reset(self) -> dm_env.TimeStep:
    """Starts an episode in every environment."""
    self._checker.restart()
    return self._checker.check(self._call('reset'))

  def step(self, action: types.ArrayTree) -> dm_env.TimeStep:
    """Steps each environment, or resets it after `LAST`."""
    vector.action_leaves(self._spec, action, self.num_games)
    return self._checker.check(self._call('step', action))

  def measure(self, names: episode_metrics.Names) -> None:
    """Asks for metrics of episodes."""
    super().measure(names)
    if hasattr(self._environments, 'measure'):
      self._environments.measure(names)

  def episode_metrics(self, places: Sequence[int]) -> list[dict[str, float]]:
    """Returns the metrics of episodes that have just ended."""
    if not hasattr(self._environments, 'episode_metrics'):
      return super().episode_metrics(places)
    return self._select(self._call('episode_metrics', places))

  def play_whole_games(self) -> None:
    """Ends episodes with games alone, and not with lives, from the next on."""
    if hasattr(self._environments, 'play_whole_games'):
      self._environments.play_whole_games()

  def set_parameters(self, values: curricula.Values) -> None:
    """Gives the next episodes other parameters; see `curricula`."""
    environments: Any = self._environments
    if not hasattr(environments, curricula.METHOD):
      curricula.fail(environments, values)
    environments.set_parameters(values)

  def close(self) -> None:
    """Closes the environments."""
    self._call('close')

  def _call(self, method: str, *args: Any) -> Any:
    try:
      return getattr(self._environments, method)(*args)
    except (Exception, SystemExit) as error:
      environment_faults.fail(self._name, method, error)


class TeamGames(vector.VectorEnvironment):
  """Python games of teams, stepped one after another; see `GameVector`."""

  def __init__(
    self, made: Sequence[games.GameEnvironment], name: str, first: int = 0
  ):
    """Takes ownership of the games; see `vector.VectorEnvironment`."""
    games.check_game(games.spec_of(made[0]))
    self._name = name
    self._owed: absences.Owed | None = None
    super().__init__(made, name, first)

  def reset(self) -> dm_env.TimeStep:
    """Starts all games."""
    self._owed = None
    return super().reset()

  def outcomes(self, places: Sequence[int]) -> types.NumpyArray:
    """Returns the outcomes of games that have just ended."""
    outcomes = np.stack(self._call('outcome', places))
    games.check_outcomes(outcomes, max(self.spec.teams) + 1)
    return outcomes.astype(np.float32)

  def _action_rows(self, action: types.ArrayTree) -> list[types.ArrayTree]:
    num_players = self.spec.num_players

    def seats(place: int) -> types.ArrayTree:
      rows = slice(place * num_players, (place + 1) * num_players)
      return trees.take(action, rows)

    return [seats(place) for place in range(self.num_games)]

  def _stack(self, timesteps: Sequence[dm_env.TimeStep]) -> dm_env.TimeStep:
    try:
      stacked: dm_env.TimeStep = jax.tree.map(
        lambda *rows: np.concatenate(rows), *timesteps
      )
    except (TypeError, ValueError) as error:
      environment_faults.fail(
        self._name, 'stacking timesteps of different structures', error
      )
    self._checker.check(stacked)
    if not self._spec.absences:
      return stacked
    if self._owed is None:
      self._owed = absences.start(stacked)
      return stacked
    paid, self._owed = absences.pay(self._owed, stacked)
    return paid


def make_games(
  environment_factory: EnvironmentFactory,
  seeds: Sequence[int],
  name: str,
  first: int = 0,
) -> GameVector:
  """Makes parallel games.

  Args:
    environment_factory: makes an environment or a game, given a seed. A JAX
      environment, or the vector of a `vector.VectorFactory`, is made once for
      all rows, from the first seed. Of other functions that make vectors, as
      many are made as these games need.
    seeds: one seed for each game.
    name: name of the games in messages.
    first: index of the first game in messages.

  Returns:
    The games, one for each seed.

  Raises:
    TypeError: if the factory makes neither an environment nor a game.
    ValueError: if an environment or game violates its specs.
  """
  make = functools.partial(_make, environment_factory, name)
  if isinstance(environment_factory, vector.VectorFactory):
    return VectorGames(make(seeds[0], len(seeds)), name, first)
  made: Any = adapting.wrap(make(seeds[0]), seeds[0])
  if isinstance(made, functional.FunctionalEnvironment):
    compiled_games.check_shapes(made)  # Names shapes without seats.
    made = functional.as_game(made)
  if isinstance(made, functional.FunctionalGame):
    return compiled_games.CompiledGames(made, len(seeds), seeds[0], name)

  def make_other(seed: int) -> Any:
    return adapting.wrap(make(seed), seed)

  if hasattr(made, 'num_environments') and not hasattr(made, 'outcome'):
    return VectorGames(vector.join(make_other, made, seeds), name, first)
  all_made = [made, *map(make_other, seeds[1:])]
  if hasattr(made, 'outcome'):
    return TeamGames(all_made, name, first)
  adapting.check_made(made)
  return vector.VectorEnvironment(all_made, name, first)


def _make(
  environment_factory: EnvironmentFactory, name: str, *args: int
) -> Any:
  try:
    return environment_factory(*args)
  except (Exception, SystemExit) as error:
    environment_faults.fail(name, environment_faults.MAKE, error)


def read_spec(
  environment_factory: EnvironmentFactory, name: str
) -> games.GameSpec:
  """Makes a game, reads its spec and closes it."""
  with contextlib.closing(make_games(environment_factory, [0], name)) as made:
    return made.spec
