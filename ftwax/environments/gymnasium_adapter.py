"""Gymnasium environments, single or vectorized, as dm_env environments.

A terminated episode ends with discount 0, a truncated one with discount 1, so
its value is bootstrapped; an episode that is both counts as terminated.

Gymnasium's vector environments step all rows at once, in one of three autoreset
modes. A stream of timesteps needs two steps at the end of each episode, `LAST`
and `FIRST`, which `NEXT_STEP` provides. With `SAME_STEP`, a row has already
been reset when its `LAST` timestep is returned; with `DISABLED`, it cannot be
reset in the call that steps the other rows. In both modes, emitting `FIRST` one
step later would require a row to pause while the others continue. `step` cannot
do that: it would take an action that no agent chose, and the transition would
be lost. Vectors with these modes are therefore refused, except for
`SyncVectorEnv`, whose environments are stepped one by one.
"""

from collections.abc import Callable
from typing import Any, NoReturn

import dm_env
import jax
import numpy as np
from numpy import typing as npt

from ftwax import encodings, extras, types
from ftwax.environments import gymnasium_spaces, specified, validation
from ftwax.environments import vector as vector_lib

with extras.required('gymnasium', 'gym'):
  import gymnasium
  from gymnasium import vector as gymnasium_vector


class GymnasiumEnvironment(specified.Specified, dm_env.Environment):
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
    self._seed = seed
    self._options = options
    self._num_resets = 0
    super().__init__(_make_spec(env, env.observation_space, env.action_space))
    self._encode = gymnasium_spaces.make_encoder(env.observation_space)
    self._decode = gymnasium_spaces.make_decoder(env.action_space)
    self.spaces = gymnasium_spaces.to_text(
      env.observation_space, env.action_space
    )
    self._must_reset = True

  @property
  def env(self) -> gymnasium.Env:
    """The wrapped environment."""
    return self._env

  def reset(self) -> dm_env.TimeStep:
    """Returns the first timestep of a new episode."""
    options = self._options and self._options(self._num_resets)
    self._num_resets += 1
    returned = self._env.reset(seed=self._seed, options=options)
    if not (isinstance(returned, tuple) and len(returned) == 2):
      self._refuse(
        'reset',
        returned,
        'observation, info',
        'return the observation and an empty dict',
      )
    observation, _ = returned
    self._seed = None
    self._must_reset = False
    return dm_env.restart(self._encode(observation))

  def step(self, action: types.ArrayTree) -> dm_env.TimeStep:
    """Returns the next timestep, a `FIRST` one after `LAST` or at the start."""
    if self._must_reset:
      return self.reset()
    returned = self._env.step(self._decode(action))
    if not (isinstance(returned, tuple) and len(returned) == 5):
      self._refuse(
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

  def _refuse(
    self, method: str, returned: Any, parts: str, remedy: str
  ) -> NoReturn:
    """Raises an error that says what a method must return."""
    value = f'a {type(returned).__name__}'
    if isinstance(returned, tuple):
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
    return self._env.render()

  def close(self) -> None:
    """Closes the Gymnasium environment."""
    self._env.close()


class GymnasiumVectorEnvironment(specified.Specified, dm_env.Environment):
  """A Gymnasium vector environment as a `vector.VectorEnvironment`.

  Given the same seeds and actions, row `i` is the stream of timesteps of
  `GymnasiumEnvironment(env, seed + i)`, whatever the autoreset mode.

  Args:
    vector_env: its metadata must hold an `autoreset_mode`: `NEXT_STEP`, or any
      mode for a `SyncVectorEnv`.
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
      _make_spec(
        vector_env,
        vector_env.single_observation_space,
        vector_env.single_action_space,
      )
    )
    self._encode = gymnasium_spaces.make_encoder(
      vector_env.single_observation_space
    )
    self._decode = gymnasium_spaces.make_decoder(vector_env.single_action_space)
    self.spaces = gymnasium_spaces.to_text(
      vector_env.single_observation_space, vector_env.single_action_space
    )
    self._one_by_one = _make_one_by_one(vector_env, seed)
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
    num_rows = self.num_environments
    self._ended = np.zeros(num_rows, bool)
    return dm_env.TimeStep(
      np.full(num_rows, types.FIRST, np.int32),
      np.zeros(num_rows, np.float32),
      np.ones(num_rows, np.float32),
      self._encode(observation),
    )

  def step(self, action: types.ArrayTree) -> dm_env.TimeStep:
    """Steps each environment with its row of `action`, leaves [E, ...].

    Rows whose last timestep was `LAST` are reset and their action is ignored.
    """
    if self._one_by_one is not None:
      return self._one_by_one.step(action)
    if self._ended is None:
      return self.reset()
    is_first = self._ended
    observation, reward, terminated, truncated, _ = self._vector_env.step(
      self._decode(action)
    )
    terminated = np.asarray(terminated) & ~is_first
    ended = terminated | (np.asarray(truncated) & ~is_first)
    step_type = np.full(len(ended), types.MID, np.int32)
    step_type[is_first] = types.FIRST
    step_type[ended] = types.LAST
    self._ended = ended
    return dm_env.TimeStep(
      step_type,
      np.where(is_first, 0, reward).astype(np.float32),
      np.where(terminated, 0, 1).astype(np.float32),
      self._encode(observation),
    )

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
  vector_env: gymnasium_vector.VectorEnv, seed: int | None
) -> vector_lib.VectorEnvironment | None:
  """Returns a vector that steps rows one by one; None for `NEXT_STEP`."""
  mode = vector_env.metadata.get('autoreset_mode')
  modes = gymnasium_vector.AutoresetMode
  if mode is None:
    raise ValueError(
      f'the metadata of {vector_env} ({vector_env.metadata}) must have the key'
      " autoreset_mode; set metadata['autoreset_mode'] to the mode that it"
      ' implements.'
    )
  if modes(mode) == modes.NEXT_STEP:
    return None
  # A wrapper around a `SyncVectorEnv` is refused, since stepping the
  # environments directly would bypass the wrapper.
  if not isinstance(vector_env, gymnasium_vector.SyncVectorEnv):
    raise ValueError(
      f'the autoreset mode of {vector_env} ({mode}) must be NEXT_STEP, since'
      ' other modes lose a timestep at each end of an episode; make it with'
      ' autoreset_mode=gymnasium.vector.AutoresetMode.NEXT_STEP.'
    )
  return vector_lib.VectorEnvironment(
    [
      GymnasiumEnvironment(env, None if seed is None else seed + row)
      for row, env in enumerate(vector_env.envs)
    ]
  )
