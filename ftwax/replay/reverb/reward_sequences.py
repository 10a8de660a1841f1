"""Where in a trajectory the sequences for reward prediction are.

Jaderberg et al., 2017 (arXiv:1611.05397), section 3.2: from some consecutive
frames of an episode tell the reward that comes next; half of the sequences
sampled end in a reward that is not zero. A table holds whole trajectories, by
reference, each with as much priority as it has sequences of the table's class,
and one of these is chosen when a trajectory has been sampled: so all sequences
are sampled alike and none is stored twice.
"""

from typing import NamedTuple

import dm_env
import numpy as np

# Classes of a timestep: no sequence ends there, or one does, and the reward
# that comes next is zero or not.
NONE, ZERO, NONZERO = 0, 1, 2

_FIRST, _LAST = int(dm_env.StepType.FIRST), int(dm_env.StepType.LAST)


class Sequences(NamedTuple):
  """Which sequences there are.

  Attributes:
    num_frames: consecutive observations in a sequence.
    period: timesteps between the ends of two sequences.
  """

  num_frames: int
  period: int


def classify(
  step_type: np.ndarray, reward: np.ndarray, sequences: Sequences
) -> np.ndarray:
  """Returns the class of each timestep that an action follows, int8 [T, ...].

  Args:
    step_type: int32 [T + 1, ...].
    reward: float32 [T + 1, ...], the agent's own.
    sequences: which there are.
  """
  length = len(step_type) - 1
  ends = np.arange(length).reshape(-1, *(1,) * (step_type.ndim - 1))
  has_sequence = (ends % sequences.period == 0) & (step_type[:-1] != _LAST)
  for offset in range(sequences.num_frames - 1):
    # The sequence's later frames must not begin an episode, nor its first one
    # lie before the trajectory.
    has_sequence &= ends > offset
    earlier = np.maximum(np.arange(length) - offset, 0)
    has_sequence &= step_type[earlier] != _FIRST
  follows = np.where(reward[1:] == 0.0, ZERO, NONZERO)
  return np.where(has_sequence, follows, NONE).astype(np.int8)
