"""Episodes of environments in JAX, and checks of single ones, for tests."""

import dm_env
import jax
import jax.numpy as jnp
import numpy as np

from ftwax import types
from ftwax.environments import specified, vector


class HostLoop:
  """Holds the state of compiled reset and step functions between calls.

  A step before the first reset or after `LAST` resets. Timesteps hold NumPy
  arrays.

  Args:
    made: a functional environment or game, or a vector of either.
    seed: of all episodes.
  """

  def __init__(self, made, seed=0):
    self._reset, self._step = jax.jit(made.reset), jax.jit(made.step)
    self._key = jax.random.PRNGKey(seed)
    self._must_reset = True
    self.state = None

  def reset(self):
    self._key, reset_key = jax.random.split(self._key)
    return self._keep(self._reset(reset_key))

  def step(self, action):
    if self._must_reset:
      return self.reset()
    action = jax.tree.map(lambda leaf: np.asarray(leaf, np.int32), action)
    return self._keep(self._step(self.state, action))

  def _keep(self, made):
    self.state, timestep = made
    timestep = jax.device_get(timestep)
    self._must_reset = bool(np.all(timestep.step_type == dm_env.StepType.LAST))
    return timestep


def play(loop, choose):
  """Plays an episode to its end, which must be a terminal one.

  Args:
    loop: a `HostLoop`.
    choose: an action, given all observations of the episode up to now.

  Returns:
    The observations seen at each action, and the rewards.
  """
  timestep, seen, rewards = loop.reset(), [], []
  while timestep.step_type != dm_env.StepType.LAST:
    seen.append(timestep.observation)
    timestep = loop.step(choose(seen))
    rewards.append(float(timestep.reward))
  assert timestep.discount == 0.0
  return np.array(seen), np.array(rewards)


class Checked(specified.Specified, dm_env.Environment):
  """Passes on the timesteps of an environment, checked as those of a run."""

  def __init__(self, environment, name):
    super().__init__(types.make_environment_spec(environment))
    self._environment = _Recorder(environment)
    self._rows = vector.VectorEnvironment([self._environment], name)

  def reset(self):
    self._rows.reset()
    return self._environment.last

  def step(self, action):
    self._rows.step(jax.tree.map(lambda part: np.asarray(part)[None], action))
    return self._environment.last


class _Recorder(specified.Specified, dm_env.Environment):
  """Keeps the last timestep."""

  def __init__(self, environment):
    super().__init__(types.make_environment_spec(environment))
    self._environment = environment

  def reset(self):
    self.last = self._environment.reset()
    return self.last

  def step(self, action):
    self.last = self._environment.step(action)
    return self.last


def play_all(script, config):
  """Returns a function from key and state to actions [P] of all players."""

  def play(key, state):
    keys = jax.random.split(key, config.num_players)
    players = jnp.arange(config.num_players)
    return jax.vmap(script, in_axes=(0, None, 0))(keys, state, players)

  return play
