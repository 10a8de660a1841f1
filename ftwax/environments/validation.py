"""Checks timesteps against the specs of their environment.

Invalid data is cheapest to detect at its source: a NaN reward found here names
the environment and the field; found in the learner, it is a lost run. What must
hold is one table, `make_fields`, for environments in Python and in JAX:
`Checker` evaluates it with NumPy and raises, and `find_faults` evaluates it in
compiled loops, which cannot raise, and returns flags.
"""

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

import dm_env
import jax
import jax.numpy as jnp
import numpy as np
from absl import logging
from dm_env import specs

from ftwax import continuous, distributions, internal_rewards, trees, types
from ftwax.environments import environment_faults

# Rewards are stored as float32, in which a reward of 1e300 is infinite.
_LARGEST = np.finfo(np.float32).max

_CHANGE_SPEC = (
  'change the observations of the environment, or its observation_spec'
)


class InvalidTimestepError(environment_faults.EnvironmentFault, ValueError):
  """A timestep violates the specs of its environment."""


class Rows(NamedTuple):
  """What demands read besides the values of their field.

  Attributes:
    is_first: bool [B], whether each row is `FIRST`.
    must_be_first: bool [B], whether it has to be.
    acts: bool [B], whether an action follows.
    may_be_first: bool [B], whether it may be; with absences alone, where it
      differs from `must_be_first` if it is not known.
  """

  is_first: Any
  must_be_first: Any
  acts: Any
  may_be_first: Any


class Demand(NamedTuple):
  """A demand on the values of a field.

  Attributes:
    demand: what the values must do.
    remedy: what to do where they do not.
    holds: `(values, rows) -> bool [B, ...]`, for arrays of NumPy and of JAX.
    only_first: whether it is made only where episodes start, and not at every
      step.
  """

  demand: str
  remedy: str
  holds: Callable[[Any, Rows], Any]
  only_first: bool = False


class Field(NamedTuple):
  """A field of a timestep and what it must be.

  Attributes:
    name: name in messages.
    shape: shape of one row.
    dtype: dtype; None for any numbers, which are converted.
    demands: demands on its values.
  """

  name: str
  shape: tuple[int, ...]
  dtype: np.dtype[Any] | None
  demands: tuple[Demand, ...]


def make_fields(spec: types.EnvironmentSpec) -> list[Field]:
  """Returns step type, reward, discount and the leaves of the observation.

  Make them once, since creating the names is slow.

  Args:
    spec: spec of one environment or of one player.
  """
  order = Demand(
    'be FIRST where an episode starts and only there',
    'return FIRST from reset and from the step after LAST',
    _is_in_order_of_seats if spec.absences else _is_in_order,
  )
  words = 'be a finite scalar in float32', 'return a float32, or None at FIRST'
  if spec.rewards.shape:
    words = (
      f'hold a finite number for each of the {spec.rewards.shape[0]} events of'
      ' its spec',
      'return float32 counts of events, or None at FIRST',
    )
  in_unit_interval = Demand(
    'be a scalar in [0, 1]',
    'return 0 where the episode terminates, else 1, or None at FIRST',
    lambda values, rows: (values >= 0.0) & (values <= 1.0),
  )
  is_finite = Demand(*words, _is_at_most(_LARGEST))
  return [
    Field('step_type', (), None, (order,)),
    Field('reward', spec.rewards.shape, None, (is_finite,)),
    Field('discount', (), None, (in_unit_interval,)),
    *(
      Field(
        'observation' + jax.tree_util.keystr(path),
        leaf.shape,
        leaf.dtype,
        tuple(_observation_demands(leaf, path, spec)),
      )
      for path, leaf in jax.tree.leaves_with_path(spec.observations)
    ),
  ]


def _is_in_order(values: Any, rows: Rows) -> Any:
  is_known = (values >= types.FIRST) & (values <= types.LAST)
  return (rows.is_first == rows.must_be_first) & is_known


def _is_in_order_of_seats(values: Any, rows: Rows) -> Any:
  """As `_is_in_order`, but a seat may also be absent, or repeat `LAST`."""
  is_known = (values >= types.FIRST) & (values <= types.ABSENT)
  is_wrong = (rows.is_first & ~rows.may_be_first) | (
    (values == types.MID) & rows.must_be_first
  )
  return is_known & ~is_wrong


def _observation_demands(
  spec: Any, path: tuple[Any, ...], of: types.EnvironmentSpec
) -> Iterator[Demand]:
  """Yields the demands on a leaf of the observations of an environment."""
  if path and getattr(path[0], 'key', None) == types.ACTION_MASK:
    yield Demand(
      'allow an action wherever one is taken',
      'end the episode where none is left, or make a seat that waits'
      ' types.ABSENT',
      functools.partial(_allows, len(path) == 1, of.actions),
    )
  if spec.dtype.kind in 'fc':
    yield Demand(
      'be finite',
      'find out why the environment returns NaN or infinity',
      _is_at_most(np.finfo(spec.dtype).max),
    )
  if _has_bounds(spec):
    yield Demand(
      f'lie within the bounds of its spec, {spec!r}',
      _CHANGE_SPEC,
      lambda values, rows: (values >= spec.minimum) & (values <= spec.maximum),
      only_first=True,
    )


def _allows(
  is_whole: bool, actions: types.SpecTree, values: Any, rows: Rows
) -> Any:
  """Returns whether masks allow an action where one is taken, bool [B, ...].

  Args:
    is_whole: whether the values are the mask of all parts of the action.
    actions: specs of the action.
    values: [B, ...].
    rows: rows [B].
  """
  allowed = (values != 0).any(axis=-1)
  if is_whole:
    allowed = distributions.has_choices(actions, values)
  return allowed | ~trees.align(rows.acts, allowed)


def _is_at_most(largest: Any) -> Callable[[Any, Rows], Any]:
  limit = np.asarray(largest)  # Takes half the time of a number.
  # NaN fails every comparison.
  return lambda values, rows: abs(values) <= limit


def _has_bounds(spec: Any) -> bool:
  """Returns whether a value of the spec's dtype can be out of bounds."""
  if not isinstance(spec, specs.BoundedArray):
    return False
  if spec.dtype.kind in 'iu':
    info = np.iinfo(spec.dtype)
    return bool(
      np.any(spec.minimum > info.min) or np.any(spec.maximum < info.max)
    )
  return spec.dtype.kind == 'f' and bool(
    np.any(np.isfinite(spec.minimum)) or np.any(np.isfinite(spec.maximum))
  )


def find_faults(
  fields: Sequence[Field], timesteps: dm_env.TimeStep
) -> types.Array:
  """Returns for each step and demand whether any row violates it, compiled.

  Args:
    fields: see `make_fields`.
    timesteps: consecutive timesteps, leaves [T + 1, B, ...]; `B` may be several
      axes. The first was checked before, as the last of the steps before it.

  Returns:
    Flags, bool [T, num_demands], in the order of the fields.
  """
  step_type = timesteps.step_type
  rows = Rows(
    step_type[1:] == types.FIRST,
    step_type[:-1] == types.LAST,
    step_type[1:] < types.LAST,
    step_type[:-1] >= types.LAST,
  )
  flags = []
  for field, values in zip(fields, _leaves(timesteps), strict=True):
    for demand in field.demands:
      is_fault = ~demand.holds(values[1:], rows)  # [T, B, ...]
      if demand.only_first:
        axes = tuple(range(step_type.ndim, is_fault.ndim))
        is_fault = rows.is_first & jnp.any(is_fault, axes)  # [T, B]
      flags.append(jnp.any(is_fault, tuple(range(1, is_fault.ndim))))
  return jnp.stack(flags, axis=1)


class Checker:
  """Checks the timesteps of parallel environments or games with NumPy."""

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
    self.fields = make_fields(spec)
    self._name, self._first = name, first
    self._num_rows, self._num_players = num_rows, num_players
    self._absences = spec.absences
    # Typed Any, since jax's stubs hide the methods of tree structures.
    self._structure: Any = jax.tree.structure(spec.observations)
    self.restart()

  def restart(self) -> None:
    """Expects the first step of an episode in every row."""
    self._must_be_first: types.NumpyArray = np.ones(self._num_rows, bool)
    # Calls of `check_values`, and those at which rows began an episode.
    self._num_steps, self._began = 0, np.zeros(self._num_rows, int)

  def continue_after(self, step_type: types.NumpyArray) -> None:
    """Expects the successors of these step types, [num_rows]."""
    self._must_be_first = np.asarray(step_type) == types.LAST

  def check(self, timestep: dm_env.TimeStep) -> dm_env.TimeStep:
    """Returns `timestep`, leaves [num_rows, ...], unchanged.

    Raises:
      InvalidTimestepError: if it violates the specs; where values do, the
        message names their game.
    """
    if jax.tree.structure(timestep.observation) != self._structure:
      fail_structure(self._name, timestep.observation, self._structure)
    leaves = _leaves(timestep)
    for field, values in zip(self.fields, leaves, strict=True):
      shape = (self._num_rows, *field.shape)
      if np.shape(values) != shape or field.dtype not in (None, values.dtype):
        fail_shape(self._name, field, values, shape)
    self.check_values(leaves)
    return timestep

  def check_values(self, leaves: Sequence[Any]) -> None:
    """Checks the values of all fields, leaves [num_rows, ...].

    Raises:
      InvalidTimestepError: if one violates a demand.
    """
    step_type = leaves[0]
    is_first = step_type == types.FIRST
    any_first = np.count_nonzero(is_first) > 0
    must_be = self._must_be_first
    acts = step_type < types.LAST
    rows = Rows(is_first, must_be, acts, must_be)
    self._must_be_first = step_type == types.LAST
    if self._absences:
      # An absent row stays in its episode, or out of any.
      is_absent = step_type == types.ABSENT
      self._must_be_first = np.where(is_absent, must_be, self._must_be_first)
    self._num_steps += 1
    if any_first:
      self._began[is_first] = self._num_steps
    for field, values in zip(self.fields, leaves, strict=True):
      for demand in field.demands:
        if demand.only_first and not any_first:
          continue
        is_good = demand.holds(values, rows)
        if demand.only_first:
          is_good[~is_first] = True
        if np.count_nonzero(is_good) < is_good.size:
          place = np.unravel_index(np.argmin(is_good), is_good.shape)
          # A demand on whole rows shows the row.
          self._fail(place[0], field.name, values[place], demand)

  def _fail(self, row: Any, field: str, value: Any, demand: Demand) -> NoReturn:
    """Raises the error of a row's value; names its seat and step."""
    game, seat = np.divmod(row, self._num_players)
    at = f'seat {seat}, ' if self._num_players > 1 else ''
    at = f' Seen at {at}step {self._num_steps - self._began[row]}.'
    fail(self.name_of(game), field, value, *demand[:2], at)

  def step_of(self, game: int) -> str:
    """Returns at which step of its episode a game is, before it is checked."""
    row = game * self._num_players
    step = self._num_steps + 1 - self._began[row]
    return f' Seen at step {0 if self._must_be_first[row] else step}.'

  def name_of(self, game: int | np.integer[Any]) -> str:
    """Returns the name of a game in messages."""
    return f'{self._name}[{self._first + game}]'


def fail_parts(
  name: str, method: str, returned: Any, demand: str, remedy: str
) -> NoReturn:
  """Raises the error of a method that returned other parts than demanded."""
  value = f'a {type(returned).__name__}'
  if isinstance(returned, tuple):
    value = f'{len(returned)} values'
  fail(name, f'what {method} returns', value, f'be {demand}', remedy)


def fail_structure(
  name: str, observation: Any, structure: Any, seen: str = ''
) -> NoReturn:
  """Raises the error of an observation without the structure of its spec."""
  fail(
    name,
    'observation',
    f'structure {jax.tree.structure(observation)}',
    f'have the structure of its spec, {structure}',
    _CHANGE_SPEC,
    seen,
  )


def fail_shape(
  name: str,
  field: Field,
  values: Any,
  shape: tuple[int, ...],
  seen: str = '',
) -> NoReturn:
  """Raises the error of values whose shape or dtype is not that of a field."""
  value, kind = f'a {type(values).__name__}', 'a NumPy array of'
  if isinstance(values, np.ndarray | np.generic):
    value, kind = f'shape {values.shape}, dtype {values.dtype}', 'of'
    if values.ndim == 0 and shape:  # None becomes NaN.
      value = f'{values}, {value}'
  dtype = '' if field.dtype is None else f' and dtype {field.dtype}'
  fail(
    name,
    field.name,
    value,
    f'be {kind} shape {shape}{dtype} as its spec says',
    _CHANGE_SPEC,
    seen,
  )


def fail(
  name: str, field: str, value: Any, demand: str, remedy: str, seen: str = ''
) -> NoReturn:
  """Raises an InvalidTimestepError that names the problem and a remedy."""
  raise InvalidTimestepError(
    f'{field} of environment {name!r} ({value}) must {demand}; {remedy}.{seen}'
  )


def _leaves(timestep: dm_env.TimeStep) -> list[Any]:
  """Returns the values of all fields, in the order of `make_fields`."""
  step_type, reward, discount, observation = timestep
  return [step_type, reward, discount, *jax.tree.leaves(observation)]


@functools.cache  # The warning is given once.
def _warn_of_bounds(name: str, path: str) -> None:
  logging.warning(
    'action%s of environment %r has bounds beyond a million, which are taken'
    ' for none: actions are of the size of 1; give the bounds that matter.',
    path,
    name,
  )


def check_spec(spec: types.EnvironmentSpec, name: str) -> None:
  """Raises a ValueError unless agents support its actions and rewards.

  Args:
    spec: spec of one environment.
    name: name of the environment in messages.
  """
  try:
    distributions.check_action_spec(spec.actions)
    internal_rewards.num_events(spec.rewards)
  except (AttributeError, ValueError) as error:
    raise ValueError(f'environment {name!r}: {error}') from error
  for path, leaf in jax.tree.leaves_with_path(spec.actions):
    for side in ('minimum', 'maximum'):
      bound = np.asarray(getattr(leaf, side, 0.0))
      is_huge = np.isfinite(bound) & ~continuous.is_bound(bound)
      if continuous.is_spec(leaf) and is_huge.any():
        _warn_of_bounds(name, jax.tree_util.keystr(path))
  observations = spec.observations
  if isinstance(observations, Mapping) and types.ACTION_MASK in observations:
    distributions.split_mask(
      distributions.part_sizes(spec.actions),
      trees.zeros_like_spec(observations[types.ACTION_MASK], ()),
    )
  if getattr(spec.discounts, 'shape', None) != ():
    raise ValueError(
      f'discount_spec of environment {name!r} ({spec.discounts!r}) must be that'
      ' of a scalar; make a single-agent environment for each agent.'
    )
