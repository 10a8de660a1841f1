"""Steps several environments together and stacks their timesteps.

An actor selects actions for all its environments in one call of the network,
and steps them as one `VectorEnvironment`. Rows reset automatically: by dm_env's
contract, an environment whose last timestep was `LAST` ignores the next action
and returns a `FIRST` timestep. Each row is thus an endless stream of complete
episodes, `FIRST .. LAST, FIRST .. LAST`. A vector of single-agent environments
is a vector of games of one seat; see `game_vectors.GameVector`.
"""

import contextlib
import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import dm_env
import jax
import numpy as np
from dm_env import specs

from ftwax import registry, trees, types
from ftwax.environments import (
  curricula,
  environment_faults,
  episode_metrics,
  games,
  specified,
  validation,
)

# The kinds of dtypes that are real numbers.
_REAL = 'biuf'

_ARRAYS = (np.ndarray, np.generic)


class EnvironmentVector(Protocol):
  """`E` environments that are stepped by one call; see `VectorEnvironment`."""

  @property
  def num_environments(self) -> int:
    """`E`, the number of rows."""

  def observation_spec(self) -> types.SpecTree:
    """Returns the specs of one environment's observation."""

  def action_spec(self) -> types.SpecTree:
    """Returns the specs of one environment's action."""

  def reward_spec(self) -> types.SpecTree:
    """Returns the spec of one environment's reward."""

  def discount_spec(self) -> types.SpecTree:
    """Returns the spec of one environment's discount."""

  def reset(self) -> dm_env.TimeStep:
    """Returns the first timesteps of a new episode in every row."""

  def step(self, action: types.ArrayTree) -> dm_env.TimeStep:
    """Steps each environment, or resets it after `LAST`."""

  def close(self) -> None:
    """Closes all environments."""


@registry.register('vector')
@dataclasses.dataclass(frozen=True)
class VectorFactory:
  """Marks an environment factory that makes a whole vector.

  Attributes:
    make: `(num_environments, seed) -> vector` with that number of rows, for
      example a `gymnasium_adapter.GymnasiumVectorEnvironment`.
  """

  make: Callable[[int, int], EnvironmentVector]

  def __call__(self, seed: int, num_environments: int = 1) -> EnvironmentVector:
    """Makes a vector.

    Raises:
      TypeError: if the result is not a vector.
      ValueError: if it has another number of rows.
    """
    made = self.make(num_environments, seed)
    num_rows = getattr(made, 'num_environments', None)
    if num_rows is None:
      raise types.InvalidTypeError(
        'VectorFactory.make must make a vector of environments, but made a'
        f' {type(made).__name__}; wrap it in a'
        ' gymnasium_adapter.GymnasiumVectorEnvironment, or give a function of a'
        ' seed, without VectorFactory.'
      )
    if num_rows != num_environments:
      made.close()
      raise ValueError(
        'VectorFactory.make must make the number of rows that it is called with'
        f' ({num_environments}), but made {num_rows}; pass its first argument'
        ' on to the vector.'
      )
    return made


class PythonGames(specified.Specified, dm_env.Environment):
  """Base class of games in Python, whose state cannot be saved.

  Attributes:
    spec: spec of each game.
    num_games: `G`.
    game: None; see `game_vectors.GameVector`.
    state: None.
  """

  game = None
  state = None

  def __init__(self, spec: games.GameSpec, num_games: int):
    """Stores the spec and the number of games."""
    super().__init__(spec.environment)
    self.spec = spec
    self.num_games = num_games
    PythonGames.measure(self, ())

  def outcomes(self, places: Sequence[int]) -> types.NumpyArray:
    """Returns the outcomes of games that have just ended: draws, [K, 1]."""
    return np.zeros((len(places), 1), np.float32)

  def measure(self, names: episode_metrics.Names) -> None:
    """Asks for metrics; see `game_vectors.GameVector`."""
    self._metric_names = names
    self._missing = episode_metrics.Missing(names)

  def episode_metrics(self, places: Sequence[int]) -> list[dict[str, float]]:
    """Returns the metrics of games that have just ended: none."""
    return [{} for _ in places]

  def play_whole_games(self) -> None:
    """Does nothing: games have no lives."""

  def set_parameters(self, values: curricula.Values) -> None:
    """Gives the next episodes other parameters; see `curricula`."""
    curricula.fail(self, values)

  def _select(
    self, found: Sequence[Mapping[str, Any]]
  ) -> list[dict[str, float]]:
    """Returns the metrics that are asked for, one dict for each game."""
    chosen = []
    for one in map(episode_metrics.read, found):
      self._missing.check(one)
      chosen.append(episode_metrics.select(self._metric_names, one))
    return chosen

  def save(self) -> None:
    """Returns None: Python games restart when a run is resumed."""

  def restore(self, state: Any, timestep: dm_env.TimeStep) -> None:
    """Does nothing."""
    del state, timestep


class VectorEnvironment(PythonGames):
  """Steps `E` environments, one after another, as if they were one.

  Timesteps are checked (see `validation`) and stacked over environments:

  - `step_type` int32 [E];
  - `reward` float32 [E], or [E, num_events] for a vector reward, 0 at `FIRST`;
  - `discount` float32 [E], 1 at `FIRST`;
  - `observation` leaves [E, ...] with the dtypes of the observation spec.

  Environments may return rewards and discounts of any real dtype, and None at
  `FIRST`. All arrays are new at each step; the caller may keep or modify them.
  Specs are those of a single environment, without the leading axis.
  """

  def __init__(
    self,
    environments: Sequence[Any],
    name: str = 'environment',
    first: int = 0,
  ):
    """Takes ownership of the environments; `close` closes them.

    Args:
      environments: environments with equal specs.
      name: name of the environments in messages.
      first: index of the first environment in messages.

    Raises:
      ValueError: if there are no environments, their specs differ, or agents
        cannot act on them.
    """
    if not environments:
      raise ValueError(
        'environments must hold at least one environment, not 0; pass e.g.'
        ' [make_environment(seed) for seed in range(num_environments)].'
      )
    self._environments = tuple(environments)
    super().__init__(
      _common_spec([games.spec_of(each) for each in environments]),
      len(environments),
    )
    num_players = self.spec.num_players
    self._num_rows = self.num_games * num_players
    self._checker = validation.Checker(
      self._spec, self._num_rows, num_players, name, first
    )
    self._zero_reward = np.zeros(self._spec.rewards.shape)
    # Typed Any, since jax's stubs hide the methods of tree structures.
    self._structure: Any = jax.tree.structure(self._spec.observations)
    self._action_structure: Any = jax.tree.structure(self._spec.actions)

  @property
  def num_environments(self) -> int:
    """`E`, the number of rows."""
    return self._num_rows

  def reset(self) -> dm_env.TimeStep:
    """Returns the first timesteps of a new episode in every row."""
    self._checker.restart()
    return self._stack(self._call('reset', range(self.num_games)))

  def step(self, action: types.ArrayTree) -> dm_env.TimeStep:
    """Steps each environment with its row of `action`.

    Args:
      action: leaves [E, ...], in the structure of the action spec. Rows whose
        last timestep was `LAST` are reset instead and ignore their action.

    Returns:
      The next timesteps, stacked.

    Raises:
      EnvironmentFault: if an environment raises.
      InvalidTimestepError: if a timestep violates the specs.
      ValueError: if `action` has another structure or a leaf has another shape.
    """
    rows = self._action_rows(action)
    return self._stack(self._call('step', range(self.num_games), rows))

  def measure(self, names: episode_metrics.Names) -> None:
    """Asks for metrics; see `game_vectors.GameVector`."""
    super().measure(names)
    for environment in self._environments:
      if hasattr(environment, 'measure'):
        environment.measure(names)

  def episode_metrics(self, places: Sequence[int]) -> list[dict[str, float]]:
    """Returns the metrics of games that have just ended, if they have any."""
    if not hasattr(self._environments[0], 'episode_metrics'):
      return super().episode_metrics(places)
    return self._select(self._call('episode_metrics', places))

  def set_parameters(self, values: curricula.Values) -> None:
    """Gives the next episodes other parameters; see `curricula`."""
    for environment in self._environments:
      if not hasattr(environment, curricula.METHOD):
        curricula.fail(environment, values)
      environment.set_parameters(values)

  def play_whole_games(self) -> None:
    """Ends episodes with games alone, and not with lives, from the next on."""
    for environment in self._environments:
      if hasattr(environment, 'play_whole_games'):
        environment.play_whole_games()

  @property
  def wrappers(self) -> tuple[str, ...]:
    """Names of Gymnasium's wrappers around an environment."""
    return getattr(self._environments[0], 'wrappers', ())

  @property
  def infos(self) -> list[Mapping[str, Any]]:
    """What Gymnasium's environments returned last beside observations."""
    return [getattr(one, 'info', {}) for one in self._environments]

  def close(self) -> None:
    """Closes all environments, even if closing one of them fails."""
    with contextlib.ExitStack() as stack:
      for place in range(self.num_games):
        stack.callback(self._call, 'close', [place])

  def _call(
    self, method: str, places: Sequence[int], *arguments: Iterable[Any]
  ) -> list[Any]:
    """Calls a method of the environments at some places, one by one."""
    done: list[Any] = []
    try:
      for place, *own in zip(places, *arguments, strict=True):
        done.append(getattr(self._environments[place], method)(*own))
    except (Exception, SystemExit) as error:
      name = self._checker.name_of(places[len(done)])
      environment_faults.fail(name, method, error)
    return done

  def _action_rows(self, action: types.ArrayTree) -> Iterable[Any]:
    """Returns the action of each environment."""
    leaves = action_leaves(self._spec, action, self._num_rows)
    if isinstance(self._spec.actions, specs.Array):
      return leaves[0]
    return map(self._action_structure.unflatten, zip(*leaves, strict=True))

  def _stack(self, timesteps: Sequence[dm_env.TimeStep]) -> dm_env.TimeStep:
    for row, timestep in enumerate(timesteps):
      if not isinstance(timestep, dm_env.TimeStep):
        validation.fail(
          self._checker.name_of(row),
          'what is returned',
          f'a {type(timestep).__name__}',
          'be a dm_env.TimeStep',
          'return dm_env.restart, transition, truncation or termination',
        )
    step_types, rewards, discounts, rows = zip(*timesteps, strict=True)
    step_type = self._numbers(0, step_types)
    if types.FIRST in step_types:
      rewards = _fill(self._zero_reward, rewards, step_types)
      discounts = _fill(1.0, discounts, step_types)
    reward, discount = self._numbers(1, rewards), self._numbers(2, discounts)
    leaves = self._stack_observations(rows)
    self._checker.check_values([step_type, reward, discount, *leaves])
    return dm_env.TimeStep(
      step_type.astype(np.int32),
      reward.astype(np.float32),
      discount.astype(np.float32),
      self._structure.unflatten(leaves),
    )

  def _numbers(self, index: int, values: Sequence[Any]) -> types.NumpyArray:
    """Stacks the numbers of one field; keeps their dtype."""
    field = self._checker.fields[index]
    try:
      stacked = np.array(values)
    except ValueError:  # Of several shapes.
      stacked = np.empty(())
    if (
      stacked.shape != (len(values), *field.shape)
      or stacked.dtype.kind not in _REAL
    ):
      shapes = [np.shape(value) == field.shape for value in values]
      kinds = [np.asarray(value).dtype.kind in _REAL for value in values]
      row = int(np.argmin(np.logical_and(shapes, kinds)))
      name = self._checker.name_of(row)
      validation.fail(
        name, field.name, repr(values[row]), *field.demands[0][:2]
      )
    return stacked

  def _stack_observations(self, rows: Sequence[Any]) -> list[types.NumpyArray]:
    """Copies observations into one new array for each leaf."""
    fields = self._checker.fields[3:]
    if isinstance(self._spec.observations, specs.Array):
      return [self._stack_leaf(rows, fields[0])]
    flat = []
    for row, observation in enumerate(rows):
      try:
        flat.append(self._structure.flatten_up_to(observation))
      except (ValueError, TypeError):
        name = self._checker.name_of(row)
        at = self._checker.step_of(row)
        validation.fail_structure(name, observation, self._structure, at)
    columns = zip(*flat, strict=True)
    return [*map(self._stack_leaf, columns, fields)]

  def _stack_leaf(
    self, rows: Sequence[Any], field: validation.Field
  ) -> types.NumpyArray:
    shape, dtype = field.shape, field.dtype
    stacked = np.empty((len(rows), *shape), dtype)
    for row, values in enumerate(rows):
      if (
        not isinstance(values, _ARRAYS)
        or values.shape != shape
        or values.dtype != dtype
      ):
        name = self._checker.name_of(row)
        at = self._checker.step_of(row)
        validation.fail_shape(name, field, values, shape, at)
      stacked[row] = values
    return stacked


class JoinedVectors(specified.Specified, dm_env.Environment):
  """The first rows of several vectors as one `EnvironmentVector`.

  Rows that are left over are stepped, too, with the actions of other ones.
  """

  def __init__(self, vectors: Sequence[Any], num_environments: int):
    """Takes ownership of the vectors; `close` closes them.

    Args:
      vectors: vectors of one kind, of at least as many rows together.
      num_environments: number of rows.
    """
    super().__init__(
      _common_spec([games.spec_of(each) for each in vectors]).environment
    )
    self._vectors = tuple(vectors)
    self.spaces = getattr(vectors[0], 'spaces', '')
    self.wrappers = getattr(vectors[0], 'wrappers', ())
    self.num_environments = num_environments
    sizes = [each.num_environments for each in vectors]
    ends = np.cumsum(sizes).tolist()
    # The row of each row of the vectors; those left over have one of these.
    self._rows = [
      np.arange(end - size, end) % num_environments
      for size, end in zip(sizes, ends, strict=True)
    ]

  def reset(self) -> dm_env.TimeStep:
    """Returns the first timesteps of a new episode in every row."""
    return self._join([each.reset() for each in self._vectors])

  def step(self, action: types.ArrayTree) -> dm_env.TimeStep:
    """Steps each environment with its row of `action`, leaves [E, ...]."""
    return self._join([
      each.step(trees.take(action, rows))
      for each, rows in zip(self._vectors, self._rows, strict=True)
    ])  # fmt: skip

  def measure(self, names: episode_metrics.Names) -> None:
    """Asks for metrics over all steps of episodes."""
    for each in self._vectors:
      if hasattr(each, 'measure'):
        each.measure(names)

  def episode_metrics(self, places: Sequence[int]) -> list[dict[str, float]]:
    """Returns the metrics of the episodes that have just ended at rows."""
    found: list[dict[str, float]] = []
    for place in places:
      for each, rows in zip(self._vectors, self._rows, strict=True):
        if place < len(rows):
          ask: Any = getattr(each, 'episode_metrics', None)
          found += ask([place]) if ask is not None else [{}]
          break
        place -= len(rows)  # noqa: PLW2901
    return found

  def set_parameters(self, values: curricula.Values) -> None:
    """Gives the next episodes other parameters; see `curricula`."""
    for each in self._vectors:
      if not hasattr(each, curricula.METHOD):
        curricula.fail(each, values)
      each.set_parameters(values)

  def play_whole_games(self) -> None:
    """Ends episodes with games alone, and not with lives, from the next on."""
    for each in self._vectors:
      if hasattr(each, 'play_whole_games'):
        each.play_whole_games()

  def close(self) -> None:
    """Closes all vectors, even if closing one of them fails."""
    with contextlib.ExitStack() as stack:
      for each in self._vectors:
        stack.callback(each.close)

  def _join(self, timesteps: Sequence[dm_env.TimeStep]) -> dm_env.TimeStep:
    joined: dm_env.TimeStep = jax.tree.map(
      lambda *leaves: np.concatenate(leaves)[: self.num_environments],
      *timesteps,
    )
    return joined


def join(
  make: Callable[[int], Any], first: Any, seeds: Sequence[int]
) -> EnvironmentVector:
  """Returns a vector with a row for each seed.

  Args:
    make: makes a vector of any number of rows, given the seed of its first.
    first: what it has made of the first seed.
    seeds: one seed for each row.
  """
  size = first.num_environments
  if size == len(seeds):
    vector: EnvironmentVector = first
    return vector
  others = [make(seed) for seed in seeds[size::size]]
  return JoinedVectors([first, *others], len(seeds))


def action_leaves(
  spec: types.EnvironmentSpec, action: types.ArrayTree, num_rows: int
) -> list[types.NumpyArray]:
  """Returns the leaves of `action`; checks that their shapes are [E, ...]."""
  if isinstance(spec.actions, specs.Array):
    leaves, parts = [np.asarray(action)], [spec.actions]
  else:
    parts = jax.tree.leaves(spec.actions)
    structure: Any = jax.tree.structure(spec.actions)
    leaves = [np.asarray(leaf) for leaf in structure.flatten_up_to(action)]
  for leaf, one in zip(leaves, parts, strict=True):
    if leaf.shape != (num_rows, *one.shape):
      raise ValueError(
        f'each part of action (shape {leaf.shape}) must have the shape'
        f' {(num_rows, *one.shape)}; send one action for each environment.'
      )
  return leaves


def _fill(
  default: Any, values: Sequence[Any], step_types: Sequence[Any]
) -> tuple[Any, ...]:
  """Returns the value of each row, or the default for None at `FIRST`."""
  return tuple(
    default if value is None and step_type == types.FIRST else value
    for value, step_type in zip(values, step_types, strict=True)
  )


def _common_spec(found: Sequence[games.GameSpec]) -> games.GameSpec:
  """Returns the spec of all environments."""
  for index, spec in enumerate(found):
    for field, expected, value in zip(
      (*spec.environment._fields, *spec._fields[1:]),
      (*found[0].environment, *found[0][1:]),
      (*spec.environment, *spec[1:]),
      strict=True,
    ):
      if expected != value:
        raise ValueError(
          f'{field} of environment {index} ({value!r}) must equal those of'
          f' environment 0 ({expected!r}); vectors hold environments of one'
          ' kind, so make one for each kind.'
        )
  return found[0]
