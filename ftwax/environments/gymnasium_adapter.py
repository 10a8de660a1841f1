"""Gymnasium environments, single or vectorized, as dm_env environments.

A terminated episode ends with discount 0, a truncated one with discount 1, so
its value is bootstrapped; an episode that is both counts as terminated.

Gymnasium's vector environments step all rows at once, in one of three autoreset
modes. A stream of timesteps needs two steps at the end of each episode, `LAST`
and `FIRST`. `NEXT_STEP` provides both. With `SAME_STEP`, a row has already been
reset when its last observation comes, as `final_obs`: the row is `LAST` with
that, and in a step of its own, in which the others wait (`types.ABSENT`), it is
`FIRST`. Nothing is lost, and rows that end together share that step. With
`DISABLED`, a row cannot be reset in the call that steps the other rows; such
vectors are refused, except for `SyncVectorEnv`, whose environments are stepped
one by one.
"""

import contextlib
import functools
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import dm_env
import gymnasium
import jax
import numpy as np
from gymnasium import vector as gymnasium_vector
from numpy import typing as npt

from ftwax import encodings, import_guard, trees, types
from ftwax.environments import (
  action_masks,
  curricula,
  episode_metrics,
  gymnasium_spaces,
  specified,
  validation,
  wrappers,
)
from ftwax.environments import vector as vector_lib

# What converters raise at values of other spaces.
_ERRORS = KeyError, OverflowError, TypeError, ValueError

# Discounts.
_ENDED, _GOES_ON = np.float32(0), np.float32(1)


class _Converted(specified.Specified, dm_env.Environment):
  """Specs and converters of the spaces of an environment."""

  def __init__(self, env: Any, observation_space: Any, action_space: Any):
    wrappers.check_statistics(env)
    super().__init__(_make_spec(env, observation_space, action_space))
    self._observation_space = observation_space
    self._convert = gymnasium_spaces.make_encoder(observation_space)
    self._num_steps = 0  # Of the present episode.
    self._decode = gymnasium_spaces.make_decoder(action_space)
    self.spaces = gymnasium_spaces.to_text(observation_space, action_space)
    self._name = type(env.unwrapped).__name__

    self.wrappers = wrappers.names(env)

  def _encode(self, observation: Any) -> Any:
    """Converts an observation; names what is wrong with it."""
    try:
      return self._convert(observation)
    except _ERRORS:
      self._fail(observation)

  def _fail(self, observation: Any) -> NoReturn:
    """Raises the error of an observation that cannot be converted."""
    space = self._observation_space
    fault = gymnasium_spaces.find_fault(space, observation, 'observation')
    gymnasium_spaces.fail(self._name, fault, self._num_steps)


class GymnasiumEnvironment(_Converted):
  """A Gymnasium environment as a dm_env environment.

  Observations are copies with the dtypes of the spec (64 bits become 32).
  Rewards and discounts are float32, both None at `FIRST`.

  Args:
    env: a Gymnasium environment; see `ftwax.environments.gymnasium_spaces` for
      the spaces that it may have.
    seed: seed of the first reset; later episodes continue its random stream.
      None leaves the choice to the environment.
    options: returns the `options` with which an episode is reset, from its
      number, counted from 0.

  Raises:
    ValueError: if a space cannot be expressed as a spec, or a wrapper keeps
      running statistics; see `wrappers`.
  """

  def __init__(
    self,
    env: gymnasium.Env,
    seed: int | None = None,
    options: Callable[[int], dict[str, Any]] | None = None,
  ):
    self._env = env
    self._guard = import_guard.around(env)
    self._seed = seed
    self._options = options
    self._num_resets = 0
    self._parameters: curricula.Values = {}
    super().__init__(env, env.observation_space, env.action_space)
    self._must_reset = True
    self._meter = episode_metrics.Meter()
    self._measures = False  # Whether the meter has to see each step.
    self.info: Any = {}  # What came last beside the observation.
    # What the first reset returned, until it is handed out.
    self._first: tuple[Any, Any] | None = None
    self._find_masks()

  def _find_masks(self) -> None:
    """Finds how legal actions are stated beside the observation."""
    self._masks: action_masks.Masks | None = None
    # Whether a mask may still come that the reset did not have.
    self._may_mask = action_masks.may_have(self._spec)
    self._ask_masks: Callable[[], Any] | None = None
    if not self._may_mask:
      return
    # An error comes again where the first episode begins.
    with contextlib.suppress(Exception):
      self._first = self._reset()
    info: Any = {} if self._first is None else self._first[1]
    with contextlib.suppress(AttributeError):
      self._ask_masks = self._env.get_wrapper_attr(action_masks.METHOD)
    self._masks = action_masks.find(self._spec, info, callable(self._ask_masks))
    if self._masks is not None:
      self._spec = self._masks.add_to(self._spec)
      self._may_mask = False

  @property
  def env(self) -> gymnasium.Env:
    """The wrapped environment."""
    return self._env

  def reset(self) -> dm_env.TimeStep:
    """Returns the first timestep of a new episode."""
    returned, self._first = self._first or self._reset(), None
    observation, info = returned
    self._num_steps = 0
    self._must_reset = False
    self.info = info
    if self._measures:
      self._meter.start()
    seen = self._with_masks(self._encode(observation), info, False)
    return dm_env.restart(seen)

  def _reset(self) -> tuple[Any, Any]:
    """Resets the environment; returns the observation and `info`."""
    options = self._options and self._options(self._num_resets)
    if self._parameters:
      options = {**(options or {}), **self._parameters}
    with self._guard():
      returned = self._env.reset(seed=self._seed, options=options)
    if not (isinstance(returned, tuple) and len(returned) == 2):
      remedy = 'return the observation and an empty dict'
      self._fail_parts('reset', returned, 'observation, info', remedy)
    self._num_resets += 1
    self._seed = None
    observation, info = returned
    return observation, info

  def _with_masks(self, seen: Any, info: Any, is_over: bool) -> Any:
    """Returns an observation with legal actions, if they are not part of it."""
    if self._masks is None:
      if self._may_mask:
        action_masks.check_announced(info, self._name, self._num_steps)
      return seen
    if is_over:
      return self._masks.see(seen, self._masks.allow_all())
    if self._masks.key is None:
      assert self._ask_masks is not None
      value = self._ask_masks()
    else:
      value = info.get(self._masks.key)
    mask = self._masks.read_at(value, self._name, self._num_steps)
    return self._masks.see(seen, mask)

  def step(self, action: types.ArrayTree) -> dm_env.TimeStep:
    """Returns the next timestep, a `FIRST` one after `LAST` or at the start."""
    if self._must_reset:
      return self.reset()
    returned = self._env.step(self._decode(action))
    if not (isinstance(returned, tuple) and len(returned) == 5):
      self._fail_parts(
        'step',
        returned,
        'observation, reward, terminated, truncated, info',
        'split done into terminated, if the task is over, and truncated, if'
        ' only its time is',
      )
    observation, reward, terminated, truncated, info = returned
    self._must_reset = bool(terminated or truncated)
    self._num_steps += 1
    self.info = info
    if self._measures:
      self._meter.add(info)
    try:
      seen = self._convert(observation)
    except _ERRORS:
      self._fail(observation)
    if info or self._masks is not None:
      seen = self._with_masks(seen, info, self._must_reset)
    return dm_env.TimeStep(
      dm_env.StepType.LAST if self._must_reset else dm_env.StepType.MID,
      None if reward is None else np.float32(reward),
      _ENDED if terminated else _GOES_ON,
      seen,
    )

  def measure(self, names: episode_metrics.Names) -> None:
    """Asks for metrics over all steps of episodes."""
    self._meter.measure(names)
    self._measures = self._meter.is_on

  def set_parameters(self, values: curricula.Values) -> None:
    """Gives the next episodes other parameters; see `curricula`."""
    self._first = None
    if self._env.has_wrapper_attr(curricula.METHOD):
      self._env.get_wrapper_attr(curricula.METHOD)(dict(values))
    else:
      self._parameters = dict(values)

  def play_whole_games(self) -> None:
    """Ends episodes with games alone, and not with lives, from the next on."""
    wrappers.play_whole_games(self._env)

  def episode_metrics(self) -> dict[str, float]:
    """Returns the metrics of the episode that has just ended."""
    return self._meter.end(self.info)

  def _fail_parts(
    self, method: str, returned: Any, parts: str, remedy: str
  ) -> NoReturn:
    """Raises the error of a method that returned other parts than these."""
    validation.fail_parts(
      self._name, method, returned, f'({parts}), as of Gym 0.26', remedy
    )

  def render(self) -> Any:
    """Returns an image of the present state, uint8 [H, W, 3].

    Raises:
      ValueError: if the environment was not made with
        `render_mode='rgb_array'`.
    """
    if self._env.render_mode != 'rgb_array':
      raise ValueError(
        f'render_mode ({self._env.render_mode!r}) of {self._env} must be'
        " 'rgb_array' for images; pass render_mode='rgb_array' to"
        ' gymnasium.make.'
      )
    with self._guard():
      return self._env.render()

  def close(self) -> None:
    """Closes the Gymnasium environment."""
    self._env.close()


class GymnasiumVectorEnvironment(_Converted):
  """A Gymnasium vector environment as a `vector.VectorEnvironment`.

  Given the same seeds and actions, row `i` is the stream of timesteps of
  `GymnasiumEnvironment(env, seed + i)`, whatever the autoreset mode.

  Args:
    vector_env: its metadata must hold an `autoreset_mode`: `NEXT_STEP` or
      `SAME_STEP`, or any mode for a `SyncVectorEnv`.
    seed: row `i` uses `seed + i` at the first reset; None for no seeds.

  Raises:
    ValueError: if the autoreset mode is missing or not supported (see the
      module's docstring), or if a space cannot be expressed as a spec.
  """

  def __init__(
    self, vector_env: gymnasium_vector.VectorEnv, seed: int | None = None
  ):
    self._vector_env = vector_env
    self._seed = seed
    super().__init__(
      vector_env,
      vector_env.single_observation_space,
      vector_env.single_action_space,
    )
    self._one_by_one = _make_one_by_one(vector_env, seed)
    if self._one_by_one is None:
      modes = gymnasium_vector.AutoresetMode
      mode = modes(vector_env.metadata['autoreset_mode'])
      self.absences = mode == modes.SAME_STEP
    self._seen: Any = None  # The last observations.
    self._ended: npt.NDArray[np.bool_] | None = None
    self._infos: Any = {}
    self._meters = [episode_metrics.Meter() for _ in range(vector_env.num_envs)]
    self._measures = False  # Whether the meters have to see each step.
    # What the first reset returned, until it is handed out.
    self._first: tuple[Any, Any] | None = None
    self._find_masks()

  def _find_masks(self) -> None:
    """Finds how legal actions are stated beside the observation."""
    self._masks: action_masks.Masks | None = None
    self._may_mask = action_masks.may_have(self._spec)
    self._ask_masks: Callable[[], Any] | None = None
    if self._one_by_one is not None:
      self._spec = types.make_environment_spec(self._one_by_one)
      return
    if not self._may_mask:
      return
    # An error comes again where the first episode begins.
    with contextlib.suppress(Exception):
      self._first = self._reset()
    info: Any = {} if self._first is None else self._first[1]
    self._ask_masks = _mask_method(self._vector_env)
    has_method = self._ask_masks is not None
    self._masks = action_masks.find(self._spec, info, has_method)
    if self._masks is not None:
      self._spec = self._masks.add_to(self._spec)
      self._may_mask = False

  @property
  def num_environments(self) -> int:
    """`E`, the number of rows."""
    return self._vector_env.num_envs

  def reset(self) -> dm_env.TimeStep:
    """Returns the first timesteps of a new episode in every row."""
    if self._one_by_one is not None:
      return self._one_by_one.reset()
    returned, self._first = self._first or self._reset(), None
    observation, info = returned
    self._num_steps = 0
    every = np.ones(self.num_environments, bool)
    self._seen = self._see(observation, info, every)
    return self._begin(every)

  def _reset(self) -> tuple[Any, Any]:
    """Resets all rows; returns the observations and `infos`."""
    observation, info = self._vector_env.reset(seed=self._seed)
    self._seed = None
    return observation, info

  def _see(
    self, observation: Any, infos: Any, acts: npt.NDArray[np.bool_]
  ) -> Any:
    """Returns what agents see: observations, and legal actions.

    Args:
      observation: of all rows.
      infos: of all rows.
      acts: bool [E], rows in which an action is taken.
    """
    seen = self._encode(observation)
    if self._masks is None:
      if infos and self._may_mask:
        action_masks.check_announced(infos, self._name, self._num_steps)
      return seen
    return self._masks.see(seen, self._read_masks(self._masks, infos, acts))

  def _read_masks(
    self, masks: action_masks.Masks, infos: Any, acts: npt.NDArray[np.bool_]
  ) -> types.NumpyArray:
    """Returns the masks of all rows, [E, number of all choices]."""
    there = acts
    if masks.key is None:
      assert self._ask_masks is not None
      value = self._ask_masks()
    else:
      value = infos.get(masks.key)
      # Gymnasium's vectors say which rows have an entry.
      there = infos.get(f'_{masks.key}', acts)
    if value is not None and (acts <= there).all():
      if isinstance(value, np.ndarray) and value.dtype != object:
        return masks.read_at(value, self._name, self._num_steps)
      if isinstance(value, dict):  # Of a mask that is a dict.
        value = _without_flags(value)
        return masks.read_at(value, self._name, self._num_steps)
    found = masks.allow_all(self.num_environments)
    rows = [None] * len(found) if value is None else value
    for row in np.flatnonzero(acts).tolist():
      own = rows[row] if there[row] else None
      name = f'{self._name}[{row}]'
      found[row] = masks.read_at(own, name, self._num_steps)
    return found

  def step(self, action: types.ArrayTree) -> dm_env.TimeStep:
    """Steps each environment with its row of `action`, leaves [E, ...].

    Rows whose last timestep was `LAST` are reset and their action is ignored.
    """
    if self._one_by_one is not None:
      return self._one_by_one.step(action)
    if self._ended is None:
      return self.reset()
    is_first = self._ended
    if self._measures:
      for row in np.flatnonzero(is_first).tolist():
        self._meters[row].start()
    if self.absences and is_first.any():
      return self._begin(is_first)
    observation, reward, terminated, truncated, infos = self._vector_env.step(
      self._decode(action)
    )
    terminated = np.asarray(terminated) & ~is_first
    ended = terminated | (np.asarray(truncated) & ~is_first)
    step_type = np.full(len(ended), types.MID, np.int32)
    step_type[is_first] = types.FIRST
    step_type[ended] = types.LAST
    self._ended = ended
    self._num_steps += 1
    self._infos = infos
    if self._measures:
      self._add_metrics(is_first)
    if infos or self._masks is not None:
      # In SAME_STEP mode, rows that end have begun again.
      acts = np.ones_like(ended) if self.absences else ~ended
      seen = self._see(observation, infos, acts)
    else:
      seen = self._encode(observation)
    self._seen = seen
    if self.absences and ended.any():
      seen = self._with_final(seen, infos, ended)
    return dm_env.TimeStep(
      step_type,
      np.where(is_first, 0, reward).astype(np.float32),
      np.where(terminated, 0, 1).astype(np.float32),
      seen,
    )

  def measure(self, names: episode_metrics.Names) -> None:
    """Asks for metrics over all steps of episodes."""
    if self._one_by_one is not None:
      self._one_by_one.measure(names)
    for meter in self._meters:
      meter.measure(names)
    self._measures = self._meters[0].is_on

  def set_parameters(self, values: curricula.Values) -> None:
    """Gives the next episodes other parameters; see `curricula`."""
    if self._one_by_one is not None:
      self._one_by_one.set_parameters(values)
      return
    self._first = None
    vector_env: Any = self._vector_env
    if hasattr(vector_env, curricula.METHOD):
      vector_env.set_parameters(dict(values))
      return
    try:
      vector_env.call(curricula.METHOD, dict(values))
    except (AttributeError, NotImplementedError):
      curricula.fail(self._vector_env, values)

  def play_whole_games(self) -> None:
    """Ends episodes with games alone, and not with lives, from the next on."""
    for env in getattr(self._vector_env.unwrapped, 'envs', ()):
      wrappers.play_whole_games(env)

  def episode_metrics(self, places: Sequence[int]) -> list[dict[str, float]]:
    """Returns the metrics of the episodes that have just ended at rows."""
    if self._one_by_one is not None:
      return self._one_by_one.episode_metrics(places)
    return [self._meters[row].end(self._info_of(row)) for row in places]

  def _info_of(self, row: int) -> dict[str, Any]:
    """Returns the `info` of a row, the last one of its episode if that ended.

    In SAME_STEP mode, the row's own is that of the next episode.
    """
    infos = self._infos
    if self.absences and self._ended is not None and self._ended[row]:
      final = infos.get('final_info')
      if isinstance(final, dict):
        return _take_info(final, row)
      if final is not None:  # A dict for each row.
        return final[row] or {}
    return _take_info(infos, row)

  def _add_metrics(self, is_first: npt.NDArray[np.bool_]) -> None:
    """Adds the metrics of a step, of rows that do not begin with it."""
    for row in np.flatnonzero(~is_first).tolist():
      self._meters[row].add(self._info_of(row))

  def _begin(self, is_first: npt.NDArray[np.bool_]) -> dm_env.TimeStep:
    """Returns the first timesteps of rows, while the others wait."""
    num_rows = self.num_environments
    self._ended = np.zeros(num_rows, bool)
    return dm_env.TimeStep(
      np.where(is_first, types.FIRST, types.ABSENT).astype(np.int32),
      np.zeros(num_rows, np.float32),
      np.ones(num_rows, np.float32),
      self._seen,
    )

  def _with_final(
    self, seen: Any, infos: dict[str, Any], ended: npt.NDArray[np.bool_]
  ) -> Any:
    """Replaces the observations of rows that ended by their last ones."""
    final = infos.get('final_obs', infos.get('final_observation'))
    if final is None:
      raise ValueError(
        f'infos of {self._vector_env} ({sorted(infos)}) must hold the last'
        " observations of rows that end, as 'final_obs', in SAME_STEP mode; add"
        ' them, or choose NEXT_STEP.'
      )
    rows = np.flatnonzero(ended)
    if isinstance(final, np.ndarray) and final.dtype == object:
      own = [self._encode(final[row]) for row in rows]
      last = jax.tree.map(lambda *leaves: np.stack(leaves), *own)
    else:  # A batch, as the observation is.
      last = trees.take(self._encode(final), rows)
    if self._masks is not None:
      last = self._masks.see(last, self._masks.allow_all(len(rows)))

    def replace(leaf: Any, new: Any) -> Any:
      leaf = np.array(leaf)
      leaf[rows] = new
      return leaf

    return jax.tree.map(replace, seen, last)

  def close(self) -> None:
    """Closes the vector environment."""
    self._vector_env.close()


def _make_spec(
  env: Any,
  observation_space: gymnasium.Space[Any],
  action_space: gymnasium.Space[Any],
) -> types.EnvironmentSpec:
  """Returns the spec of an environment, in which MiniGrid's codes are codes.

  MiniGrid declares codes up to 10 as if they were colors. With one value less,
  `ftwax.encodings` does not take them for pixels.
  """
  spec = gymnasium_spaces.make_spec(observation_space, action_space)
  name = getattr(env.spec, 'id', None) or type(env.unwrapped).__module__
  if not name.lower().startswith(('minigrid', 'babyai')):
    return spec

  def narrow(leaf: Any) -> Any:
    if encodings.is_picture(leaf) and not encodings.is_image(leaf):
      return leaf.replace(maximum=leaf.maximum - 1)
    return leaf

  return spec._replace(observations=jax.tree.map(narrow, spec.observations))


def _without_flags(infos: Any) -> Any:
  """Returns a dict of infos without entries that say which rows have them."""
  if not isinstance(infos, dict):
    return infos
  return {
    key: _without_flags(value)
    for key, value in infos.items()
    if not (key.startswith('_') and key[1:] in infos)
  }


def _take_info(infos: dict[str, Any], row: int) -> dict[str, Any]:
  """Returns the `info` of a row of a vector: entries that it has."""
  info = {}
  for key, value in infos.items():
    is_flag = key.startswith('_') and key[1:] in infos
    has_it = infos.get(f'_{key}')
    if is_flag or (has_it is not None and not has_it[row]):
      continue
    if isinstance(value, dict):
      info[key] = _take_info(value, row)
    elif np.ndim(value) and len(value) > row:
      info[key] = value[row]
    else:  # One value for all rows.
      info[key] = value
  return info


def _mask_method(vector_env: Any) -> Callable[[], Any] | None:
  """Returns the method of masks of a vector, or that of its rows; or None."""
  method = getattr(vector_env, action_masks.METHOD, None)
  if callable(method):
    return method
  try:
    found = vector_env.call('has_wrapper_attr', action_masks.METHOD)
  except (AttributeError, NotImplementedError, TypeError):
    return None
  if not (found and all(found)):
    return None
  return functools.partial(vector_env.call, action_masks.METHOD)


def _make_one_by_one(
  vector_env: Any, seed: int | None
) -> vector_lib.VectorEnvironment | None:
  """Returns a vector that steps rows one by one; None if all go together."""
  mode = vector_env.metadata.get('autoreset_mode')
  modes = gymnasium_vector.AutoresetMode
  if mode is None:
    raise ValueError(
      f'the metadata of {vector_env} ({vector_env.metadata}) must have the key'
      " autoreset_mode; set metadata['autoreset_mode'] to the mode that it"
      ' implements.'
    )
  is_sync = isinstance(vector_env, gymnasium_vector.SyncVectorEnv)
  if modes(mode) == modes.NEXT_STEP or (
    modes(mode) == modes.SAME_STEP and not is_sync
  ):
    return None
  # A wrapper around a `SyncVectorEnv` is refused, since stepping the
  # environments directly would bypass the wrapper.
  if not is_sync:
    raise ValueError(
      f'the autoreset mode of {vector_env} ({mode}) must be NEXT_STEP or'
      ' SAME_STEP, since rows that end must be reset; make it with'
      ' autoreset_mode=gymnasium.vector.AutoresetMode.NEXT_STEP.'
    )
  return vector_lib.VectorEnvironment(
    [
      GymnasiumEnvironment(env, None if seed is None else seed + row)
      for row, env in enumerate(vector_env.envs)
    ]
  )
