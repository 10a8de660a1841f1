"""Episodes of environments, for tests."""

import dm_env
import numpy as np


def play(loop, choose):
  """Plays an episode to its end, which must be a terminal one.

  Args:
    loop: a `functional.HostLoop`.
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
