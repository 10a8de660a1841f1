"""The Behaviour Suite's experiments (Osband et al., 2020), seeded and typed.

bsuite's environments are dm_env environments, but the dtypes of their timesteps
differ from those of their specs, some loaders use a fixed seed and one takes no
seed. This adapter returns float32 rewards and discounts, takes int32 actions,
and lets the caller choose the seed.
"""

import difflib
import inspect
from typing import Any, cast

import dm_env
import numpy as np

from ftwax import types
from ftwax.environments import extras, specified

with extras.required('bsuite'):
  import bsuite.bsuite
  from bsuite import sweep
  from bsuite.environments import deep_sea
  from bsuite.experiments.deep_sea_stochastic import sweep as stochastic_sweep


class BSuiteEnvironment(specified.Specified, dm_env.Environment):
  """A bsuite environment whose timesteps conform to its specs.

  Rewards and discounts are float32, both None at `FIRST`.

  Args:
    environment: an environment of bsuite.
  """

  def __init__(self, environment: Any):
    super().__init__(
      specified.make_spec(
        environment.observation_spec(),
        int(environment.action_spec().num_values),
      )
    )
    self._environment = environment

  @property
  def bsuite_num_episodes(self) -> int:
    """Number of episodes after which bsuite ends the experiment."""
    return cast(int, self._environment.bsuite_num_episodes)

  def bsuite_info(self) -> dict[str, Any]:
    """Returns the values that bsuite scores, e.g. the total regret."""
    return cast(dict[str, Any], self._environment.bsuite_info())

  def reset(self) -> dm_env.TimeStep:
    """Returns the first timestep of a new episode."""
    return self._conform(self._environment.reset())

  def step(self, action: types.Array) -> dm_env.TimeStep:
    """Returns the next timestep, a `FIRST` one after `LAST` or at the start."""
    return self._conform(self._environment.step(int(action)))

  def _conform(self, timestep: dm_env.TimeStep) -> dm_env.TimeStep:
    if timestep.first():
      return dm_env.restart(timestep.observation)
    return timestep._replace(
      reward=np.float32(timestep.reward),
      discount=np.float32(timestep.discount),
    )


def list_experiments() -> list[str]:
  """Returns the names of all experiments."""
  return sorted(bsuite.bsuite.EXPERIMENT_NAME_TO_ENVIRONMENT)


def make(
  bsuite_id: str = 'catch/0', seed: int | None = None
) -> BSuiteEnvironment:
  """Makes the environment of an experiment.

  Args:
    bsuite_id: name of an experiment and index of its setting, e.g.
      'memory_len/15'; a name alone means index 0. Experiments on MNIST download
      their data here.
    seed: seed of the episodes; None draws one. The `mapping_seed` of a setting
      is bsuite's own.

  Raises:
    ValueError: if there is no such experiment or setting.
  """
  name, _, index = bsuite_id.partition(sweep.SEPARATOR)
  _check_id(name, index or '0', bsuite_id)
  settings = dict(sweep.SETTINGS[f'{name}{sweep.SEPARATOR}{index or 0}'])
  if name == 'deep_sea_stochastic':
    return BSuiteEnvironment(_make_stochastic_deep_sea(seed, **settings))
  load = bsuite.bsuite.EXPERIMENT_NAME_TO_ENVIRONMENT[name]
  # Loaders without a seed make environments that draw no random numbers.
  if 'seed' in inspect.signature(load).parameters:
    settings['seed'] = seed
  return BSuiteEnvironment(load(**settings))


def _make_stochastic_deep_sea(
  seed: int | None, size: int, mapping_seed: int
) -> deep_sea.DeepSea:
  """Makes stochastic deep sea as bsuite's loader does, but with a seed."""
  environment = deep_sea.DeepSea(
    size=size, deterministic=False, mapping_seed=mapping_seed, seed=seed
  )
  environment.bsuite_num_episodes = stochastic_sweep.NUM_EPISODES
  return environment


def _check_id(name: str, index: str, bsuite_id: str) -> None:
  names = list_experiments()
  if name not in names:
    close = difflib.get_close_matches(name, names)
    raise ValueError(
      f'bsuite_id ({bsuite_id!r}) must start with the name of an experiment;'
      f' did you mean {" or ".join(map(repr, close)) or "another one"}?'
      ' ftwax.environments.bsuite_adapter.list_experiments() lists all.'
    )
  num_settings = sum(
    key.split(sweep.SEPARATOR)[0] == name for key in sweep.SETTINGS
  )
  if index not in map(str, range(num_settings)):
    raise ValueError(
      f'bsuite_id ({bsuite_id!r}) must have an index from 0 to'
      f' {num_settings - 1}; choose e.g. {name}/0.'
    )
