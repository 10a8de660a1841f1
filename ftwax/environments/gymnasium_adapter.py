"""Gymnasium's environments as dm_env's, alone and in vectors.

A terminated episode ends with discount 0; a truncated one with discount 1, so
that its value goes on; one that is both is terminated.

On vectors. Gymnasium's vector environments step all rows at once, in one of
three autoreset modes, while a stream of timesteps has one `LAST` and then one
`FIRST` timestep for each end of an episode. `NEXT_STEP` is just that. With
`SAME_STEP` a row has already been reset when its `LAST` timestep comes out; to
hand out its `FIRST` at the next step the row would have to stand still while
the others go on, which `step` cannot do: it would take an action that nobody
chose and lose the transition. `DISABLED` has the same fault, since there too a
row cannot be reset in the same call that steps the others. Where such a vector
shows its environments (`SyncVectorEnv`), they are stepped one by one instead,
which gives the same streams; where it does not, it is refused.
"""

from typing import Any

import dm_env
import numpy as np
from dm_env import specs

from ftwax import types
from ftwax.environments import extras, gymnasium_spaces, specified
from ftwax.environments import vector as vector_lib

with extras.required('gymnasium'):
  import gymnasium
  from gymnasium import vector as gymnasium_vector


class GymnasiumEnvironment(specified.Specified, dm_env.Environment):
  """A Gymnasium environment as a dm_env one.

  Observations are copied, in the dtypes of the spec (64 bits become 32).
  Rewards and discounts are float32; both are None at `FIRST`.

  Args:
    env: a Gymnasium environment whose actions are choices, vectors, or composed
      of such; see `ftwax.environments.gymnasium_spaces`.
    seed: passed to the first reset only; later episodes go on from there.
      None leaves it to the environment.

  Raises:
    ValueError: if a space cannot be expressed as a spec.
  """

  def __init__(self, env: gymnasium.Env, seed: int | None = None):
    self._env = env
    self._seed = seed
    super().__init__(_make_specs(env.observation_space, env.action_space))
    self._encode = gymnasium_spaces.make_encoder(env.observation_space)
    self._decode = gymnasium_spaces.make_decoder(env.action_space)
    self._must_reset = True

  @property
  def env(self) -> gymnasium.Env:
    """The Gymnasium environment."""
    return self._env

  def reset(self) -> dm_env.TimeStep:
    """Returns the first timestep of a new episode."""
    observation, _ = self._env.reset(seed=self._seed)
    self._seed = None
    self._must_reset = False
    return dm_env.restart(self._encode(observation))

  def step(self, action: types.ArrayTree) -> dm_env.TimeStep:
    """Returns the next timestep, a `FIRST` one after `LAST` or at the start."""
    if self._must_reset:
      return self.reset()
    observation, reward, terminated, truncated, _ = self._env.step(
      self._decode(action)
    )
    self._must_reset = bool(terminated or truncated)
    return dm_env.TimeStep(
      dm_env.StepType.LAST if self._must_reset else dm_env.StepType.MID,
      np.float32(reward),
      np.float32(0 if terminated else 1),
      self._encode(observation),
    )

  def close(self) -> None:
    """Closes the Gymnasium environment."""
    self._env.close()


class GymnasiumVectorEnvironment(specified.Specified, dm_env.Environment):
  """A Gymnasium vector environment with the timesteps of a `VectorEnvironment`.

  Given the same seeds and actions its rows are the streams that
  `GymnasiumEnvironment(env, seed + row)` gives, in every autoreset mode that
  it takes: `NEXT_STEP` with any vector environment, `SAME_STEP` and `DISABLED`
  with a `SyncVectorEnv`, whose environments it then steps one by one.

  Args:
    vector_env: its metadata must tell its `autoreset_mode`.
    seed: row `i` gets `seed + i` at the first reset; None gives no seeds.

  Raises:
    ValueError: if the autoreset mode is not told or cannot be served (see the
      module's docstring), or if a space cannot be expressed as a spec.
  """

  def __init__(
    self, vector_env: gymnasium_vector.VectorEnv, seed: int | None = None
  ):
    self._vector_env = vector_env
    self._seed = seed
    super().__init__(
      _make_specs(
        vector_env.single_observation_space, vector_env.single_action_space
      )
    )
    self._encode = gymnasium_spaces.make_encoder(
      vector_env.single_observation_space
    )
    self._decode = gymnasium_spaces.make_decoder(vector_env.single_action_space)
    self._one_by_one = _make_one_by_one(vector_env, seed)
    self._ended: np.ndarray | None = None

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
      np.full(num_rows, dm_env.StepType.FIRST, np.int32),
      np.zeros(num_rows, np.float32),
      np.ones(num_rows, np.float32),
      self._encode(observation),
    )

  def step(self, action: types.ArrayTree) -> dm_env.TimeStep:
    """Steps each row with its row of `action`, leaves [E].

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
    step_type = np.full(len(ended), dm_env.StepType.MID, np.int32)
    step_type[is_first] = dm_env.StepType.FIRST
    step_type[ended] = dm_env.StepType.LAST
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


def _make_specs(
  observation_space: gymnasium.Space, action_space: gymnasium.Space
) -> types.EnvironmentSpec:
  return types.EnvironmentSpec(
    observations=gymnasium_spaces.observation_spec(
      observation_space, 'observation_space'
    ),
    actions=gymnasium_spaces.action_spec(action_space, 'action_space'),
    rewards=specs.Array((), np.float32, 'reward'),
    discounts=specs.BoundedArray((), np.float32, 0, 1, 'discount'),
  )


def _make_one_by_one(
  vector_env: Any, seed: int | None
) -> vector_lib.VectorEnvironment | None:
  """Returns what steps the rows one by one, None if `vector_env` can."""
  mode = vector_env.metadata.get('autoreset_mode')
  modes = gymnasium_vector.AutoresetMode
  if mode is None:
    raise ValueError(
      f'the metadata of {vector_env} ({vector_env.metadata}) must tell its'
      " autoreset_mode; set metadata['autoreset_mode'] to what it does."
    )
  if modes(mode) == modes.NEXT_STEP:
    return None
  # Not a wrapper around one: what it does to the timesteps would be skipped.
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
