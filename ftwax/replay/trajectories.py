"""Trajectories as every replay stores them, and the sequences in them.

A record is one trajectory with its origin, or a batch of them. Most of its
leaves have a batch axis after that of time, the others have no axis of time.

Reward prediction (Jaderberg et al., 2017, arXiv:1611.05397, section 3.2)
predicts the next reward from a few consecutive frames of an episode. Half of
the sequences precede a nonzero reward. Both the on-device replay and Reverb
store whole trajectories, with the class of the sequence that ends at each of
their timesteps.
"""

import functools
from typing import Any, NamedTuple

import dm_env
import jax
import jax.numpy as jnp
import numpy as np

from ftwax import distributions, trees, types

# Classes of a timestep: no sequence ends there, or one does, and the next
# reward is zero or not. Empty slots of a replay have the first class.
NONE, ZERO, NONZERO = 0, 1, 2


class Record(NamedTuple):
  """A trajectory and its origin; shapes are those of a batch of B.

  Attributes:
    trajectory: leaves [T + 1 or T, B, ...]; the recurrent state is [B, ...].
    reward_class: int8 [T, B]; see `classify`.
    variables_steps: int64 [B], learner steps of the behaviour policy.
    written_at: float64 [B], seconds since the epoch.
  """

  trajectory: types.Trajectory
  reward_class: types.ArrayTree
  variables_steps: types.ArrayTree = ()
  written_at: types.ArrayTree = ()


# Batch axis of the leaves of each field.
BATCH_AXES = Record(types.Trajectory(1, 1, 1, 0, 1), 1, 0, 0)


def swap_batch(record: Record) -> Record:
  """Swaps the axes of time and batch, where there are both."""
  return trees.map_axes(
    lambda axis, leaf: leaf.swapaxes(0, axis), BATCH_AXES, record
  )


def compact(trajectory: types.Trajectory) -> types.Trajectory:
  """Leaves out the timesteps at which there was no decision.

  The others move up. The end is filled with what was left out, as `LAST`; so is
  the last of the others, since no action of it is known.

  Args:
    trajectory: leaves [T + 1 or T, ...], of NumPy or JAX, with any number of
      batch axes. Its first timestep is the last one before it that was not
      `ABSENT`, with the action and the recurrent state of that.

  Returns:
    A trajectory of the same shapes, without `ABSENT`.
  """
  step_type = trajectory.timestep.step_type
  xp: Any = jnp if isinstance(step_type, jax.Array) else np
  length, shape = len(step_type), step_type.shape
  is_absent = step_type.reshape(length, -1) == types.ABSENT
  sort = functools.partial(np.argsort, kind='stable')
  order = (jnp.argsort if xp is jnp else sort)(is_absent, axis=0)
  columns = xp.arange(is_absent.shape[1])

  def take(leaf: Any) -> Any:
    rows = leaf.reshape(len(leaf), -1, *leaf.shape[step_type.ndim :])
    if len(leaf) < length:  # No action follows the last timestep.
      rows = xp.concatenate([rows, xp.zeros_like(rows[:1])])
    taken = rows[order, xp.broadcast_to(columns, order.shape)]
    return taken[: len(leaf)].reshape(leaf.shape)

  moved = jax.tree.map(take, trajectory._replace(recurrent_state=()))
  num_present = xp.sum(~is_absent, axis=0)
  end = xp.where(num_present < length, num_present - 1, length)
  is_end = xp.arange(length)[:, None] >= xp.broadcast_to(end, (1, len(end)))
  timestep = moved.timestep._replace(
    step_type=xp.where(
      is_end.reshape(shape), types.LAST, moved.timestep.step_type
    )
  )
  return moved._replace(
    timestep=timestep, recurrent_state=trajectory.recurrent_state
  )


class Sequences(NamedTuple):
  """The sequences for reward prediction.

  Attributes:
    num_frames: consecutive observations in a sequence.
    period: timesteps between the ends of two sequences.
    threshold: non-negative; a reward counts as zero if its absolute value does
      not exceed the threshold.
  """

  num_frames: int
  period: int
  threshold: float = 0.0


def classify(step_type: Any, reward: Any, sequences: Sequences) -> Any:
  """Returns the class of the first T timesteps, those that an action follows.

  Args:
    step_type: int32 [T + 1, ...], of NumPy or JAX, traced or not.
    reward: float32 [T + 1, ...], the agent's own, weighted by its internal
      rewards.
    sequences: where sequences may end.

  Returns:
    int8 [T, ...], of NumPy or JAX like `step_type`.
  """
  xp: Any = jnp if isinstance(step_type, jax.Array) else np
  length = len(step_type) - 1
  # [T, 1, ...], against time-major rewards.
  ends = np.arange(length).reshape(-1, *(1,) * (step_type.ndim - 1))
  has_sequence = (ends % sequences.period == 0) & (step_type[:-1] != types.LAST)
  for offset in range(sequences.num_frames - 1):
    # The later frames of a sequence must not begin an episode, and its first
    # one must not precede the trajectory.
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
  """Returns a trajectory of zeros with the shapes and dtypes of real ones.

  Args:
    environment_spec: specs of observations, actions and rewards.
    recurrent_state: state of the core, arrays or shapes [B, ...] for any B.
    sequence_length: T, transitions in a trajectory.

  Returns:
    NumPy arrays [T + 1, ...]; [T, ...] in the logits, and [...] in the
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
    seed=np.zeros(steps, np.int32),
  )
