"""Several games of one kind played side by side, a row for each seat.

Every task is a game: an environment of one agent is a game of one seat. Leaves
of timesteps and actions are [G * P, ...], the P seats of the first of G games
before those of the second. Games restart by themselves: the step after `LAST`
starts a new one and ignores the action.
"""

import contextlib
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import dm_env
import jax
import numpy as np

from ftwax import types
from ftwax.environments import (
  adapting,
  compiled_games,
  environment_faults,
  functional,
  games,
  validated_vector,
  validation,
  vector,
)

# Makes an environment or a game, given a seed, or a whole vector. It may also
# make a `gymnasium.Env`, which gets the seed when it is reset first.
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
  """`G` games of one kind; see the module's docstring."""

  @property
  def spec(self) -> games.GameSpec:
    """Specs of each game."""

  @property
  def num_games(self) -> int:
    """`G`."""

  @property
  def state(self) -> functional.State | None:
    """States of games in JAX, leaves [G, ...]; None for games in Python."""

  def reset(self) -> dm_env.TimeStep:
    """Starts all games."""

  def step(self, action: types.ArrayTree) -> dm_env.TimeStep:
    """Plays a step of each game, or starts a new one after `LAST`."""

  def step_games(self, action: types.ArrayTree, places: Sequence[int]) -> None:
    """Plays a step of some games and drops their timesteps.

    Args:
      action: leaves [G * P, ...].
      places: indices of games, none of which has just ended.
    """

  def outcomes(self, places: Sequence[int]) -> types.NumpyArray:
    """Returns the outcomes of games that have just ended.

    Args:
      places: indices of games.

    Returns:
      float32 [len(places), num_teams]; see `games.GameEnvironment.outcome`.
    """

  def save(self) -> Any:
    """Returns a pytree to continue from, or None: games in Python have none."""

  def restore(self, state: Any, timestep: dm_env.TimeStep) -> None:
    """Continues from what `save` returned after `timestep`."""

  def close(self) -> None:
    """Releases what the games hold."""


class HostGames:
  """What is the same for all games in Python: nothing of them can be saved."""

  state = None

  def save(self) -> None:
    """Returns None: the games of a resumed run begin anew."""

  def restore(self, state: Any, timestep: dm_env.TimeStep) -> None:
    """Does nothing."""
    del state, timestep


class SoloGames(HostGames):
  """Environments of one agent as games of one seat, which always end drawn."""

  def __init__(self, environments: vector.EnvironmentVector):
    """Takes over environments, to close them in the end.

    Args:
      environments: G environments that are stepped together.
    """
    self._environments = environments
    self.num_games = environments.num_environments
    spec = types.make_environment_spec(environments)
    self.spec = games.GameSpec(spec, (0,), functional.event_names_of(spec))

  def reset(self) -> dm_env.TimeStep:
    """Starts an episode in every environment."""
    return self._environments.reset()

  def step(self, action: types.ArrayTree) -> dm_env.TimeStep:
    """Steps each environment, or resets it after `LAST`."""
    return self._environments.step(action)

  def step_games(self, action: types.ArrayTree, places: Sequence[int]) -> None:
    """Steps some environments and drops their timesteps."""
    self._environments.step_rows(action, places)

  def outcomes(self, places: Sequence[int]) -> types.NumpyArray:
    """Returns draws, [len(places), 1]."""
    return np.zeros((len(places), 1), np.float32)

  def close(self) -> None:
    """Closes the environments."""
    self._environments.close()


class PythonGames(HostGames):
  """Games in Python, stepped one after the other; see `GameVector`."""

  def __init__(
    self, made: Sequence[games.GameEnvironment], name: str, first: int = 0
  ):
    """Takes over games, to close them in the end.

    Args:
      made: at least one.
      name: of the games, for messages.
      first: the number of the first one, for messages.

    Raises:
      ValueError: if their specs differ.
    """
    self._games = tuple(made)
    self._name, self._first = name, first
    self.spec = _common_spec(made)
    self.num_games = len(self._games)
    num_players = self.spec.num_players
    self._checker = validation.RowChecker(
      self.spec.environment,
      self.num_games * num_players,
      num_players,
      name,
      first,
    )

  def reset(self) -> dm_env.TimeStep:
    """Starts all games."""
    self._checker.restart()
    places = range(self.num_games)
    return self._stack([self._call(place, 'reset') for place in places])

  def step(self, action: types.ArrayTree) -> dm_env.TimeStep:
    """Plays a step of each game, or starts a new one after `LAST`."""
    return self._stack(self._step(action, range(self.num_games)))

  def step_games(self, action: types.ArrayTree, places: Sequence[int]) -> None:
    """Plays a step of some games and drops their timesteps."""
    self._step(action, places)

  def outcomes(self, places: Sequence[int]) -> types.NumpyArray:
    """Returns the outcomes of games that have just ended."""
    outcomes = np.stack([self._call(place, 'outcome') for place in places])
    games.check_outcomes(outcomes, max(self.spec.teams) + 1)
    return outcomes.astype(np.float32)

  def close(self) -> None:
    """Closes every game, also those behind one that cannot be closed."""
    with contextlib.ExitStack() as stack:
      for place in range(self.num_games):
        stack.callback(self._call, place, 'close')

  def _call(self, place: int, method: str, *args: Any) -> Any:
    try:
      return getattr(self._games[place], method)(*args)
    except (Exception, SystemExit) as error:
      name = f'{self._name}[{self._first + place}]'
      environment_faults.fail(name, method, error)

  def _step(
    self, action: types.ArrayTree, places: Sequence[int]
  ) -> list[dm_env.TimeStep]:
    num_players = self.spec.num_players

    def seats(place: int) -> types.ArrayTree:
      rows = slice(place * num_players, (place + 1) * num_players)
      return jax.tree.map(lambda leaf: leaf[rows], action)

    return [self._call(place, 'step', seats(place)) for place in places]

  def _stack(self, timesteps: Sequence[dm_env.TimeStep]) -> dm_env.TimeStep:
    try:
      stacked = jax.tree.map(lambda *rows: np.concatenate(rows), *timesteps)
    except (TypeError, ValueError) as error:
      environment_faults.fail(self._name, 'timesteps of different kinds', error)
    return self._checker.check(stacked)


def make_games(
  environment_factory: EnvironmentFactory,
  seeds: Sequence[int],
  name: str,
  first: int = 0,
) -> GameVector:
  """Makes games side by side from what a factory makes.

  Args:
    environment_factory: makes an environment or a game, given a seed. One in
      JAX, and the vector of a `vector.VectorFactory`, is made once for all
      rows, from the first seed.
    seeds: one for each game.
    name: of the games, for messages.
    first: the number of the first game, for messages.

  Returns:
    A game for each seed.

  Raises:
    TypeError: if the factory makes none of these.
    ValueError: if what it makes is off its specs.
  """
  make = functools.partial(_make, environment_factory, name)
  if isinstance(environment_factory, vector.VectorFactory):
    rows = make(seeds[0], len(seeds))
    return SoloGames(validated_vector.ValidatedVector(rows, name, first))
  made: Any = adapting.adapt(make(seeds[0]), seeds[0])
  if isinstance(made, functional.FunctionalEnvironment):
    made = functional.as_game(made)
  if isinstance(made, functional.FunctionalGame):
    return compiled_games.CompiledGames(made, len(seeds), seeds[0], name)
  others = [adapting.adapt(make(seed), seed) for seed in seeds[1:]]
  all_made = [made, *others]
  if hasattr(made, 'outcome'):
    return PythonGames(all_made, name, first)
  if not isinstance(made, dm_env.Environment):
    raise TypeError(
      f'environment_factory must make an environment or a game, and made a'
      f' {type(made).__name__}; give a dm_env.Environment, a'
      ' gymnasium.Env, a games.GameEnvironment, or a functional environment or'
      ' game.'
    )
  validated = [
    validation.ValidatedEnvironment(environment, f'{name}[{index}]')
    for index, environment in enumerate(all_made, start=first)
  ]
  return SoloGames(vector.VectorEnvironment(validated))


def _make(
  environment_factory: EnvironmentFactory, name: str, *args: int
) -> Any:
  try:
    return environment_factory(*args)
  except (Exception, SystemExit) as error:
    environment_faults.fail_to_make(name, error)


def read_spec(
  environment_factory: EnvironmentFactory, name: str
) -> games.GameSpec:
  """Returns the spec of what a factory makes, read off a game of its own."""
  with contextlib.closing(make_games(environment_factory, [0], name)) as made:
    return made.spec


def read_scripts(
  environment_factory: EnvironmentFactory,
) -> Mapping[str, functional.Script]:
  """Returns the scripted players of a game in JAX, by name."""
  made: Any = environment_factory(0)
  if isinstance(made, functional.FunctionalGame):
    return made.scripts
  if hasattr(made, 'close'):
    made.close()
  return {}


def _spec_of(game: games.GameEnvironment) -> games.GameSpec:
  return games.GameSpec(
    types.make_environment_spec(game),
    tuple(game.teams),
    tuple(game.event_names),
  )


def _common_spec(made: Sequence[games.GameEnvironment]) -> games.GameSpec:
  first = _spec_of(made[0])
  games.check_game(first.environment, first.teams, first.event_names)
  for index, game in enumerate(made[1:], start=1):
    if _spec_of(game) != first:
      raise ValueError(
        f'game {index} ({_spec_of(game)}) must be like game 0 ({first}); make'
        ' games of one kind in environment_factory.'
      )
  return first
