"""Trajectories as any replay holds them, and the sequences in them.

Reward prediction (Jaderberg et al., 2017, arXiv:1611.05397, section 3.2)
predicts from a few consecutive frames of an episode the reward that comes next.
Half of the sequences it learns from end before a reward that is not zero. Both
the replay on the device and that in Reverb keep whole trajectories, with the
class of the sequence that ends at each of their timesteps.
"""

from typing import Any, NamedTuple

import dm_env
import jax
import jax.numpy as jnp
import numpy as np

from ftwax import distributions, trees, types

# Classes of a timestep: no sequence ends there, or one does, and the reward
# that comes next is zero or not. An empty slot of a replay is of the first.
NONE, ZERO, NONZERO = 0, 1, 2


class Sequences(NamedTuple):
  """The sequences for reward prediction.

  Attributes:
    num_frames: consecutive observations in a sequence.
    period: timesteps between the ends of two sequences.
    threshold: not negative; a reward whose size is not above it counts as zero.
  """

  num_frames: int
  period: int
  threshold: float = 0.0


def classify(step_type: Any, reward: Any, sequences: Sequences) -> Any:
  """Returns the class of each timestep that an action follows.

  Args:
    step_type: int32 [T + 1, ...], of NumPy or JAX, traced or not.
    reward: float32 [T + 1, ...], the agent's own, weighted by its internal
      rewards.
    sequences: where sequences may end.

  Returns:
    int8 [T, ...], of NumPy or JAX as `step_type` is.
  """
  xp: Any = jnp if isinstance(step_type, jax.Array) else np
  length = len(step_type) - 1
  ends = np.arange(length).reshape(-1, *(1,) * (step_type.ndim - 1))
  has_sequence = (ends % sequences.period == 0) & (step_type[:-1] != types.LAST)
  for offset in range(sequences.num_frames - 1):
    # The sequence's later frames must not begin an episode, nor its first one
    # lie before the trajectory.
    earlier = np.maximum(np.arange(length) - offset, 0)
    has_sequence &= (ends > offset) & (step_type[earlier] != types.FIRST)
  is_zero = abs(reward[1:]) <= sequences.threshold
  follows = xp.where(is_zero, ZERO, NONZERO)
  return xp.where(has_sequence, follows, NONE).astype(np.int8)


def make_template(
  environment_spec: types.EnvironmentSpec,
  recurrent_state: types.RecurrentState,
  sequence_length: int,
) -> types.Trajectory:
  """Returns one trajectory of zeros, in the shapes and dtypes of real ones.

  Args:
    environment_spec: specs of observations, actions and rewards.
    recurrent_state: state of the core, arrays or shapes [B, ...] of any B.
    sequence_length: T, transitions in a trajectory.

  Returns:
    NumPy arrays [T + 1, ...], or [T, ...] in the logits, and [...] in the
    recurrent state.
  """
  steps = (sequence_length + 1,)
  return types.Trajectory(
    timestep=dm_env.TimeStep(
      step_type=np.zeros(steps, np.int32),
      reward=np.zeros((*steps, *environment_spec.rewards.shape), np.float32),
      discount=np.zeros(steps, np.float32),
      observation=trees.zeros_like_spec(environment_spec.observations, steps),
    ),
    previous_action=distributions.no_action(environment_spec.actions, steps),
    logits=distributions.zero_logits(
      environment_spec.actions, (sequence_length,)
    ),
    recurrent_state=jax.tree.map(
      lambda leaf: np.zeros(leaf.shape[1:], leaf.dtype), recurrent_state
    ),
  )
