"""Operations on learner batches: their axes, own rewards, and minibatches."""

from typing import Any

import jax
import jax.numpy as jnp

from ftwax import internal_rewards as internal_rewards_lib
from ftwax import types
from ftwax.agents.actor_critic import acting, normalization

# Batch axis of each field: after time, except for the recurrent state, which
# has no time axis.
TRAJECTORY_AXIS = types.Trajectory(1, 1, 1, 0, 1, 1)

# Marks leaves without a batch axis.
NO_AXIS = -1


def batch_axes(batch: types.LearnerBatch) -> types.LearnerBatch:
  """Returns the batch axis of each leaf, as a tree prefix of the batch."""
  replay, prediction = batch.replay, batch.reward_prediction
  return types.LearnerBatch(
    trajectory=TRAJECTORY_AXIS,
    replay=replay and types.ReplayBatch(TRAJECTORY_AXIS, NO_AXIS),
    reward_prediction=(
      prediction and types.RewardPredictionBatch(1, 0, NO_AXIS)
    ),
  )


def with_own_rewards(
  internal_rewards: types.InternalRewards, batch: types.LearnerBatch
) -> types.LearnerBatch:
  """Replaces the environment's rewards by the agent's own, scalars."""

  def weigh_trajectory(trajectory: types.Trajectory) -> types.Trajectory:
    return trajectory._replace(
      timestep=acting.with_own_reward(internal_rewards, trajectory.timestep)
    )

  replay, prediction = batch.replay, batch.reward_prediction
  if replay is not None:
    replay = replay._replace(trajectory=weigh_trajectory(replay.trajectory))
  if prediction is not None:
    events = prediction.reward
    # A scalar reward is one event, [B, 1].
    events = events[:, None] if events.ndim == 1 else events
    prediction = prediction._replace(
      reward=internal_rewards_lib.weigh(internal_rewards, events)
    )
  return types.LearnerBatch(
    weigh_trajectory(batch.trajectory), replay, prediction
  )


def with_normalized_observations(
  statistics: Any, batch: types.LearnerBatch
) -> types.LearnerBatch:
  """Normalizes the observations in all parts of a batch.

  Args:
    statistics: see `normalization.normalize`.
    batch: leaves [T + 1 or T, B, ...].
  """

  def normalize_trajectory(trajectory: types.Trajectory) -> types.Trajectory:
    return trajectory._replace(
      timestep=normalization.with_normalized_observation(
        statistics, trajectory.timestep
      )
    )

  replay, prediction = batch.replay, batch.reward_prediction
  if replay is not None:
    replay = replay._replace(trajectory=normalize_trajectory(replay.trajectory))
  if prediction is not None:
    prediction = prediction._replace(
      observation=normalization.normalize(statistics, prediction.observation)
    )
  return types.LearnerBatch(
    normalize_trajectory(batch.trajectory), replay, prediction
  )


def take_columns(
  batch: types.LearnerBatch, columns: types.Array
) -> types.LearnerBatch:
  """Selects some sequences of each source of a batch.

  Args:
    batch: B sequences of each source.
    columns: int32 [n], indices of sequences.

  Returns:
    A batch with n sequences of each source.
  """

  def take(axis: int, tree: types.ArrayTree) -> types.ArrayTree:
    if axis == NO_AXIS:
      return tree
    return jax.tree.map(lambda x: jnp.take(x, columns, axis), tree)

  return jax.tree.map(take, batch_axes(batch), batch)
