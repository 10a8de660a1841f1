"""Robots of MuJoCo whose observations have no velocities, only positions."""

import gymnasium


class Positions(gymnasium.ObservationWrapper):
  """Leaves out the velocities, which are the last of an observation."""

  def __init__(self, environment):
    super().__init__(environment)
    space = environment.observation_space
    self._num_kept = space.shape[0] - environment.unwrapped.model.nv
    self.observation_space = gymnasium.spaces.Box(
      space.low[: self._num_kept], space.high[: self._num_kept]
    )

  def observation(self, observation):
    """Returns the positions, float32 [observations - velocities]."""
    return observation[: self._num_kept].astype('float32')


def hopper():
  """Makes Hopper-v5 without velocities."""
  return Positions(gymnasium.make('Hopper-v5'))


def half_cheetah():
  """Makes HalfCheetah-v5 without velocities."""
  return Positions(gymnasium.make('HalfCheetah-v5'))
