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

from collections.abc import Callable
from typing import Any

import dm_env
import gymnasium
import jax
import numpy as np
from gymnasium import vector as gymnasium_vector
from numpy import typing as npt

from ftwax import encodings, import_guard, trees, types
from ftwax.environments import gymnasium_spaces, specified, validation
from ftwax.environments import vector as vector_lib


class _Converted(specified.Specified, dm_env.Environment):
  """Specs and converters of the spaces of an environment."""

  def __init__(self, env: Any, observation_space: Any, action_space: Any):
    super().__init__(_make_spec(env, observation_space, action_space))
    self._encode = gymnasium_spaces.make_encoder(observation_space)
    self._decode = gymnasium_spaces.make_decoder(action_space)
    self.spaces = gymnasium_spaces.to_text(observation_space, action_space)


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
    ValueError: if a space cannot be expressed as a spec.
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
    super().__init__(env, env.observation_space, env.action_space)
    self._must_reset = True

  @property
  def env(self) -> gymnasium.Env:
    """The wrapped environment."""
    return self._env

  def reset(self) -> dm_env.TimeStep:
    """Returns the first timestep of a new episode."""
    options = self._options and self._options(self._num_resets)
    self._num_resets += 1
    with self._guard():
      returned = self._env.reset(seed=self._seed, options=options)
    remedy = 'return the observation and an empty dict'
    self._check('reset', returned, 'observation, info', remedy)
    observation, _ = returned
    self._seed = None
    self._must_reset = False
    return dm_env.restart(self._encode(observation))

  def step(self, action: types.ArrayTree) -> dm_env.TimeStep:
    """Returns the next timestep, a `FIRST` one after `LAST` or at the start."""
    if self._must_reset:
      return self.reset()
    returned = self._env.step(self._decode(action))
    self._check(
      'step',
      returned,
      'observation, reward, terminated, truncated, info',
      'split done into terminated, if the task is over, and truncated, if'
      ' only its time is',
    )
    observation, reward, terminated, truncated, _ = returned
    self._must_reset = bool(terminated or truncated)
    return dm_env.TimeStep(
      dm_env.StepType.LAST if self._must_reset else dm_env.StepType.MID,
      None if reward is None else np.float32(reward),
      np.float32(0 if terminated else 1),
      self._encode(observation),
    )

  def _check(self, method: str, returned: Any, parts: str, remedy: str) -> None:
    """Raises an error unless a method returned a tuple of these parts."""
    value = f'a {type(returned).__name__}'
    if isinstance(returned, tuple):
      if len(returned) == len(parts.split(', ')):
        return
      value = f'{len(returned)} values'
    validation.fail(
      type(self._env.unwrapped).__name__,
      f'what {method} returns',
      value,
      f'be ({parts}), as of Gym 0.26',
      remedy,
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

  @property
  def num_environments(self) -> int:
    """`E`, the number of rows."""
    return self._vector_env.num_envs

  def reset(self) -> dm_env.TimeStep:
    """Returns the first timesteps of a new episode in every row."""
    if self._one_by_one is not None:
      return self._one_by_one.reset()
    observation, _ = self._vector_env.reset(seed=self._seed)
    self._seed = None
    self._seen = self._encode(observation)
    return self._begin(np.ones(self.num_environments, bool))

  def step(self, action: types.ArrayTree) -> dm_env.TimeStep:
    """Steps each environment with its row of `action`, leaves [E, ...].

    Rows whose last timestep was `LAST` are reset and their action is ignored.
    """
    if self._one_by_one is not None:
      return self._one_by_one.step(action)
    if self._ended is None:
      return self.reset()
    is_first = self._ended
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
    self._seen = seen = self._encode(observation)
    if self.absences and ended.any():
      seen = self._with_final(seen, infos, ended)
    return dm_env.TimeStep(
      step_type,
      np.where(is_first, 0, reward).astype(np.float32),
      np.where(terminated, 0, 1).astype(np.float32),
      seen,
    )

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
