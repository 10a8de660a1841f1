"""Trials: several episodes of one task as one episode, for memories of RL2.

See `networks.rl2_core`, which says what such a memory does with them.
"""

from collections.abc import Callable, Mapping

import dm_env
import numpy as np

from ftwax import types

# As in `networks.rl2_core`, spelt out: environments import no network.
EPISODE_START = 'episode_start'


class TrialEnvironment(dm_env.Environment):
  """Makes an episode, the trial, out of several of another environment.

  Where one of them ends inside the trial, the timestep holds its last reward
  and the first observation of the next, and the discount is 1, since what is
  learned there is of use later; its last observation is not shown. The trial
  terminates with the last of them.

  Observations are dicts with the entry `EPISODE_START`, float32, 1 where an
  episode begins and 0 elsewhere. One that is not a dict becomes the entry
  `observation`.
  """

  def __init__(
    self,
    environment: dm_env.Environment,
    num_episodes: int,
    start_trial: Callable[[], None] = lambda: None,
  ):
    """Wraps `environment`.

    Args:
      environment: what is done for several episodes.
      num_episodes: of a trial.
      start_trial: called before each, to choose a task, which the environment
        must then keep until the next call.

    Raises:
      ValueError: if a trial has no episode, or the observation already has the
        entry `EPISODE_START`.
    """
    if num_episodes < 1:
      raise ValueError(
        f'num_episodes ({num_episodes}) of a trial must be at least 1; choose'
        ' how long a task is kept.'
      )
    spec = environment.observation_spec()
    if isinstance(spec, Mapping) and EPISODE_START in spec:
      raise ValueError(
        f'observation_spec ({list(spec)}) must not have the entry'
        f' {EPISODE_START!r} before it is wrapped; wrap it once.'
      )
    self._environment = environment
    self._num_episodes = num_episodes
    self._start_trial = start_trial
    self._episodes_left = 0

  def observation_spec(self) -> types.SpecTree:
    """Returns the specs of the observation, a dict."""
    start = dm_env.specs.BoundedArray((), np.float32, 0, 1, EPISODE_START)
    return _entries(self._environment.observation_spec()) | {
      EPISODE_START: start
    }

  def action_spec(self) -> types.SpecTree:
    """Returns the specs of the action."""
    return self._environment.action_spec()

  def reward_spec(self) -> types.SpecTree:
    """Returns the spec of the reward."""
    return self._environment.reward_spec()

  def discount_spec(self) -> types.SpecTree:
    """Returns the spec of the discount."""
    return self._environment.discount_spec()

  def reset(self) -> dm_env.TimeStep:
    """Starts a trial."""
    self._start_trial()
    self._episodes_left = self._num_episodes
    return _with_start(self._environment.reset(), 1.0)

  def step(self, action: types.ArrayTree) -> dm_env.TimeStep:
    """Goes on with the trial, or starts one after its end."""
    if not self._episodes_left:
      return self.reset()
    timestep = self._environment.step(action)
    if not timestep.last():
      return _with_start(timestep, 0.0)
    self._episodes_left -= 1
    if not self._episodes_left:
      zero = np.zeros_like(timestep.discount)[()]
      return _with_start(timestep._replace(discount=zero), 0.0)
    following = self._environment.reset()
    return _with_start(
      dm_env.transition(
        timestep.reward,
        following.observation,
        np.ones_like(timestep.discount)[()],
      ),
      1.0,
    )

  def close(self) -> None:
    """Closes the environment."""
    self._environment.close()


def _entries(observation: types.ArrayTree) -> dict:
  if isinstance(observation, Mapping):
    return dict(observation)
  return {'observation': observation}


def _with_start(timestep: dm_env.TimeStep, start: float) -> dm_env.TimeStep:
  observation = _entries(timestep.observation)
  return timestep._replace(
    observation=observation | {EPISODE_START: np.float32(start)}
  )
