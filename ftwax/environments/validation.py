"""Checks the timesteps of an environment against its specs.

Invalid data is cheapest to detect at its source: a NaN reward found here names
the environment and the field; found in the learner, it is a lost run. Cheap
checks run at every step; bounds are only checked where an episode starts.
"""

import math
from typing import Any, NamedTuple, NoReturn

import dm_env
import jax
import numpy as np
from dm_env import specs

from ftwax import distributions, internal_rewards, types
from ftwax.environments import environment_faults, specified

# Rewards are stored as float32, in which a reward of 1e300 is infinite.
_LARGEST = float(np.finfo(np.float32).max)

# Looked up once, since checking a step must take only a few microseconds.
_NUMBERS = (float, int, np.floating, np.integer)
_ARRAYS = (np.ndarray, np.generic)

# Pairs of a demand and its remedy, as used in error messages.
ORDER = (
  'be FIRST where an episode starts and only there',
  'return FIRST from reset and from the step after LAST',
)
IS_DISCOUNT = (
  'be a scalar in [0, 1]',
  'return 0 where the episode terminates, else 1, or None at FIRST',
)
IS_FINITE = (
  'be finite',
  'find out why the environment returns NaN or infinity',
)
CHANGE_SPEC = (
  'change the observations of the environment, or its observation_spec'
)


class InvalidTimestepError(environment_faults.EnvironmentFault, ValueError):
  """A timestep violates the specs of its environment."""


class Leaf(NamedTuple):
  """Demands on an array of the observation.

  Attributes:
    name: name of the array in messages.
    shape: expected shape.
    dtype: expected dtype.
    is_float: whether values must be checked for NaN and infinity.
    spec: spec of the array, with its bounds.
  """

  name: str
  shape: tuple[int, ...]
  dtype: np.dtype[Any]
  is_float: bool
  spec: Any


class ValidatedEnvironment(specified.Specified, dm_env.Environment):
  """Checks every timestep of an environment and returns it unchanged.

  Checks at every step: the order of step types (`FIRST` at the start and after
  `LAST`, and only there); structure, shapes and dtypes of the observation; that
  its floats are finite; that the reward is finite, and a scalar or a vector
  according to its spec; and that the discount is a scalar in [0, 1]. At
  `FIRST`, reward and discount may be None, and the bounds of the observation
  are checked as well.

  Args:
    environment: the environment to check; `close` closes it.
    name: name of the environment in messages.

  Raises:
    ValueError: if agents cannot act on the action spec or the reward has more
      than one axis.
  """

  def __init__(self, environment: dm_env.Environment, name: str):
    self._environment = environment
    self._name = name
    super().__init__(types.make_environment_spec(environment))
    check_spec(self._spec, name)
    # Typed Any, since jax's stubs hide the methods of tree structures.
    self._structure: Any = jax.tree.structure(self._spec.observations)
    self._is_single_array = jax.tree_util.treedef_is_leaf(self._structure)
    self._leaves = observation_leaves(self._spec)
    self._reward_shape = self._spec.rewards.shape
    self._must_be_first = True

  @property
  def environment(self) -> dm_env.Environment:
    """The wrapped environment."""
    return self._environment

  def reset(self) -> dm_env.TimeStep:
    """Returns the first timestep of a new episode.

    Raises:
      InvalidTimestepError: if the timestep violates the specs.
    """
    self._must_be_first = True
    return self._check(self._call('reset'))

  def step(self, action: types.ArrayTree) -> dm_env.TimeStep:
    """Returns the next timestep.

    Raises:
      InvalidTimestepError: if the timestep violates the specs.
    """
    return self._check(self._call('step', action))

  def close(self) -> None:
    """Closes the environment."""
    self._call('close')

  def _call(self, method: str, *args: Any) -> Any:
    try:
      return getattr(self._environment, method)(*args)
    except (Exception, SystemExit) as error:
      environment_faults.fail(self._name, method, error)

  def _check(self, timestep: dm_env.TimeStep) -> dm_env.TimeStep:
    if not isinstance(timestep, dm_env.TimeStep):
      fail(
        self._name,
        'what is returned',
        f'a {type(timestep).__name__}',
        'be a dm_env.TimeStep',
        'return dm_env.restart, transition, truncation or termination',
      )
    step_type, reward, discount, observation = timestep
    is_first = step_type == types.FIRST
    if is_first != self._must_be_first:
      fail(self._name, 'step_type', repr(step_type), *ORDER)
    self._must_be_first = step_type == types.LAST
    self._check_reward(is_first, reward)
    self._check_discount(is_first, discount)
    for value, leaf in zip(
      self._flatten(observation), self._leaves, strict=True
    ):
      self._check_leaf(value, leaf)
      if is_first:
        self._check_bounds(value, leaf)
    return timestep

  def _check_reward(self, is_first: bool, reward: Any) -> None:
    if is_first and reward is None:
      return
    if self._reward_shape:
      self._check_events(reward)
    # NaN fails every comparison, so `not <=` also rejects NaN.
    elif not abs(_as_float(reward)) <= _LARGEST:
      fail(
        self._name,
        'reward',
        repr(reward),
        'be a finite scalar in float32',
        'return a float32, or None at FIRST',
      )

  def _check_events(self, events: Any) -> None:
    shape = self._reward_shape
    if np.shape(events) != shape or not np.all(np.abs(events) <= _LARGEST):
      fail(
        self._name,
        'reward',
        repr(events),
        f'hold a finite number for each of the {shape[0]} events of its spec',
        'return float32 counts of events, or None at FIRST',
      )

  def _check_discount(self, is_first: bool, discount: Any) -> None:
    if is_first and discount is None:
      return
    # Python floats, since comparing NumPy scalars takes longer than the rest.
    if not 0.0 <= _as_float(discount) <= 1.0:
      fail(self._name, 'discount', repr(discount), *IS_DISCOUNT)

  def _check_leaf(self, value: Any, leaf: Leaf) -> None:
    name, shape, dtype, is_float, spec = leaf
    if not isinstance(value, _ARRAYS):
      fail(
        self._name,
        name,
        f'a {type(value).__name__}',
        f'be a NumPy array or scalar of its spec, {spec!r}',
        'convert it with np.asarray(value, spec.dtype)',
      )
    if value.shape != shape or value.dtype != dtype:
      fail(
        self._name,
        name,
        f'shape {value.shape}, dtype {value.dtype}',
        f'be of shape {shape} and dtype {dtype} as its spec says',
        CHANGE_SPEC,
      )
    # Takes half the time of `np.isfinite(value).all()`.
    if is_float and np.count_nonzero(np.isfinite(value)) != value.size:
      fail(
        self._name,
        name,
        f'with {np.extract(~np.isfinite(value), value)[0]}',
        *IS_FINITE,
      )

  def _check_bounds(self, value: Any, leaf: Leaf) -> None:
    try:
      leaf.spec.validate(value)
    except ValueError:
      fail(
        self._name,
        leaf.name,
        f'from {np.min(value)} to {np.max(value)}',
        in_bounds(leaf),
        CHANGE_SPEC,
      )

  def _flatten(self, observation: Any) -> list[Any]:
    if self._is_single_array:
      return [observation]
    try:
      return self._structure.flatten_up_to(observation)
    except (ValueError, TypeError):
      fail(
        self._name,
        'observation',
        f'structure {jax.tree.structure(observation)}',
        f'have the structure of its spec, {self._structure}',
        CHANGE_SPEC,
      )


def observation_leaves(spec: types.EnvironmentSpec) -> list[Leaf]:
  """Returns the demands on each array of the observation.

  Make them once, since creating the names is slow.
  """
  return [
    Leaf(
      name='observation' + jax.tree_util.keystr(path),
      shape=leaf.shape,
      dtype=leaf.dtype,
      is_float=leaf.dtype.kind in 'fc',
      spec=leaf,
    )
    for path, leaf in jax.tree.leaves_with_path(spec.observations)
  ]


class RowChecker:
  """Checks the values of timesteps of parallel environments or games.

  Shapes and dtypes are checked where rows are made or stacked. This class
  checks the other demands of `ValidatedEnvironment`, for all rows at once.
  """

  def __init__(
    self,
    spec: types.EnvironmentSpec,
    num_rows: int,
    num_players: int,
    name: str,
    first: int = 0,
  ):
    """Prepares the checks.

    Args:
      spec: spec of one environment or of one player.
      num_rows: number of rows of a timestep.
      num_players: number of rows that belong to one game.
      name: name of the environment in messages, which add the index of the
        game.
      first: index of the first game.

    Raises:
      ValueError: if agents cannot act on the spec; see `check_spec`.
    """
    check_spec(spec, name)
    self._leaves = observation_leaves(spec)
    self._num_players = num_players
    self._name = name
    self._first = first
    self._must_be_first = np.ones(num_rows, bool)

  def restart(self) -> None:
    """Expects the first step of an episode in every row."""
    self._must_be_first[:] = True

  def continue_after(self, step_type: types.NumpyArray) -> None:
    """Expects the successors of these step types, [num_rows]."""
    self._must_be_first = np.asarray(step_type) == types.LAST

  def check(self, timestep: dm_env.TimeStep) -> dm_env.TimeStep:
    """Returns `timestep`, leaves [num_rows, ...], unchanged.

    Raises:
      InvalidTimestepError: if a row violates the specs; names its game.
    """
    step_type, reward, discount, observation = timestep
    is_first = step_type == types.FIRST
    self._check('step_type', step_type, is_first == self._must_be_first, *ORDER)
    self._must_be_first = step_type == types.LAST
    self._check('reward', reward, np.abs(reward) <= _LARGEST, *IS_FINITE)
    in_range = (discount >= 0.0) & (discount <= 1.0)
    self._check('discount', discount, in_range, *IS_DISCOUNT)
    for leaf, rows in zip(
      self._leaves, jax.tree.leaves(observation), strict=True
    ):
      if leaf.is_float:
        self._check(leaf.name, rows, np.isfinite(rows), *IS_FINITE)
      if isinstance(leaf.spec, specs.BoundedArray) and is_first.any():
        inside = (rows >= leaf.spec.minimum) & (rows <= leaf.spec.maximum)
        # Bounds are only checked where an episode starts.
        inside[~is_first] = True
        self._check(leaf.name, rows, inside, in_bounds(leaf), CHANGE_SPEC)
    return timestep

  def _check(
    self,
    field: str,
    rows: types.NumpyArray,
    is_good: types.NumpyArray,
    *demand: str,
  ) -> None:
    if is_good.all():
      return
    place = np.unravel_index(np.argmin(is_good), is_good.shape)
    game = self._first + place[0] // self._num_players
    fail(f'{self._name}[{game}]', field, rows[place], *demand)


def in_bounds(leaf: Leaf) -> str:
  """Returns the words of the demand on bounds."""
  return f'lie within the bounds of its spec, {leaf.spec!r}'


def fail(
  name: str, field: str, value: Any, demand: str, remedy: str
) -> NoReturn:
  """Raises an InvalidTimestepError that names the problem and a remedy."""
  raise InvalidTimestepError(
    f'{field} of environment {name!r} ({value}) must {demand}; {remedy}.'
  )


def _as_float(value: Any) -> float:
  """Returns `value` as a Python float; NaN unless it is a real scalar."""
  if isinstance(value, _NUMBERS):
    return float(value)
  if isinstance(value, np.ndarray) and value.shape == ():
    return _as_float(value[()])
  return math.nan


def check_spec(spec: types.EnvironmentSpec, name: str) -> None:
  """Raises a ValueError unless agents support its actions and rewards.

  Args:
    spec: spec of one environment.
    name: name of the environment in messages.
  """
  try:
    distributions.check_action_spec(spec.actions)
  except ValueError as error:
    raise ValueError(f'environment {name!r}: {error}') from error
  try:
    internal_rewards.num_events(spec.rewards)
  except (AttributeError, ValueError) as error:
    raise ValueError(f'environment {name!r}: {error}') from error
  if getattr(spec.discounts, 'shape', None) != ():
    raise ValueError(
      f'discount_spec of environment {name!r} ({spec.discounts!r}) must be that'
      ' of a scalar; make a single-agent environment for each agent.'
    )
