"""Operations on learner batches: their axes, own rewards, and minibatches."""

import functools
from collections.abc import Callable
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
  past = types.ReplayBatch(TRAJECTORY_AXIS, NO_AXIS)
  axis_of_weight: Any = None if batch.weight is None else 0
  return types.LearnerBatch(
    trajectory=TRAJECTORY_AXIS,
    replay=replay and past,
    reward_prediction=(
      prediction and types.RewardPredictionBatch(1, 0, NO_AXIS)
    ),
    burn_in=(TRAJECTORY_AXIS,) * len(batch.burn_in),
    weight=axis_of_weight,
    demonstrations=batch.demonstrations and past,
    frozen=dict.fromkeys(batch.frozen, 1),
  )


def with_own_rewards(
  internal_rewards: types.InternalRewards, batch: types.LearnerBatch
) -> types.LearnerBatch:
  """Replaces the environment's rewards by the agent's own, scalars."""

  def weigh(
    prediction: types.RewardPredictionBatch,
  ) -> types.RewardPredictionBatch:
    events = prediction.reward
    # A scalar reward is one event, [B, 1].
    events = events[:, None] if events.ndim == 1 else events
    return prediction._replace(
      reward=internal_rewards_lib.weigh(internal_rewards, events)
    )

  own = functools.partial(acting.with_own_reward, internal_rewards)
  return _change_parts(own, weigh, batch)


def with_normalized_observations(
  statistics: Any, batch: types.LearnerBatch
) -> types.LearnerBatch:
  """Normalizes the observations in all parts of a batch.

  Args:
    statistics: see `normalization.normalize`.
    batch: leaves [T + 1 or T, B, ...].
  """
  # Both a timestep and a prediction have an observation.
  normalize = functools.partial(
    normalization.with_normalized_observation, statistics
  )
  return _change_parts(normalize, normalize, batch)


def _change_parts(
  change_timestep: Callable[[Any], Any],
  change_prediction: Callable[[Any], Any],
  batch: types.LearnerBatch,
) -> types.LearnerBatch:
  """Changes the timesteps of all trajectories, and sequences of frames."""

  def change(trajectory: types.Trajectory) -> types.Trajectory:
    return trajectory._replace(timestep=change_timestep(trajectory.timestep))

  prediction = batch.reward_prediction
  replay, recorded = (
    past and past._replace(trajectory=change(past.trajectory))
    for past in (batch.replay, batch.demonstrations)
  )
  if prediction is not None:
    prediction = change_prediction(prediction)
  return types.LearnerBatch(
    change(batch.trajectory),
    replay,
    prediction,
    tuple(map(change, batch.burn_in)),
    batch.weight,
    recorded,
    batch.frozen,
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
