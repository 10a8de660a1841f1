"""Trials: several episodes of one task as one episode, for RL2 agents.

See `networks.rl2_core` for the recurrent state that persists across the
episodes of a trial.
"""

from collections.abc import Callable

import dm_env
import numpy as np
from dm_env import specs

from ftwax import types
from ftwax.environments import specified

# Equals `networks.rl2_core.EPISODE_START`: environments import no network.
EPISODE_START = 'episode_start'


class TrialEnvironment(specified.Specified, dm_env.Environment):
  """Plays several episodes of an environment as one long episode, the trial.

  Where an episode ends within the trial, the timestep combines its last reward
  with the first observation of the next episode; its last observation is
  dropped. The discount there is 1, since knowledge from one episode is useful
  in the next. The trial terminates with its last episode.

  Observations are dicts with the entry `EPISODE_START`, float32 [], 1 at the
  first step of each episode and 0 elsewhere. An observation that is not a dict
  becomes the entry 'observation'.
  """

  def __init__(
    self,
    environment: dm_env.Environment,
    num_episodes: int,
    start_trial: Callable[[], None] = lambda: None,
  ):
    """Wraps `environment`.

    Args:
      environment: the environment whose episodes are joined; `close` closes it.
      num_episodes: number of episodes in a trial, at least 1.
      start_trial: called at the start of each trial, to select a task that the
        environment keeps until the next call.

    Raises:
      ValueError: if `num_episodes` is below 1 or the observation already has
        the entry `EPISODE_START`.
    """
    specified.check_at_least(1, num_episodes=num_episodes)
    spec = types.make_environment_spec(environment)
    entries = specified.entries(spec.observations)
    if EPISODE_START in entries:
      raise ValueError(
        f'observation_spec ({list(entries)}) must not have the entry'
        f' {EPISODE_START!r} before wrapping; wrap the environment only once.'
      )
    start = specs.BoundedArray((), np.float32, 0, 1, EPISODE_START)
    super().__init__(
      spec._replace(observations=entries | {EPISODE_START: start})
    )
    self._environment = environment
    self._num_episodes = num_episodes
    self._start_trial = start_trial
    self._episodes_left = 0

  def reset(self) -> dm_env.TimeStep:
    """Starts a trial."""
    self._start_trial()
    self._episodes_left = self._num_episodes
    return _with_start(self._environment.reset(), 1.0)

  def step(self, action: types.ArrayTree) -> dm_env.TimeStep:
    """Returns the next timestep, a `FIRST` one after `LAST` or at the start."""
    if not self._episodes_left:
      return self.reset()
    timestep = self._environment.step(action)
    if not timestep.last():
      return _with_start(timestep, 0.0)
    self._episodes_left -= 1
    if not self._episodes_left:
      # `[()]` makes a scalar of the same dtype from an array without axes.
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


def _with_start(timestep: dm_env.TimeStep, start: float) -> dm_env.TimeStep:
  observation = specified.entries(timestep.observation)
  return timestep._replace(
    observation=observation | {EPISODE_START: np.float32(start)}
  )
