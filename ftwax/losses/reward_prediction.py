"""Reward prediction (Jaderberg et al., 2017, arXiv:1611.05397, section 3.2).

An auxiliary task: predict from consecutive frames whether the next reward is
zero, negative or positive. It shapes the torso. Half of the sampled sequences
precede a nonzero reward, so that rare rewards count as much as common ones.

The cross-entropy is not `rlax.categorical_cross_entropy`, whose value and
gradient take 1.1 to 1.4 times as long and which rlax plans to deprecate.
"""

import jax
import jax.numpy as jnp

from ftwax import shapes, types

ZERO, NEGATIVE, POSITIVE = range(3)


def reward_class(
  reward: types.Array, threshold: types.Array | float = 0.0
) -> types.Array:
  """Returns `ZERO`, `NEGATIVE` or `POSITIVE`, int32 [...].

  Args:
    reward: [...].
    threshold: not negative; a reward counts as zero if its absolute value does
      not exceed the threshold.
  """
  shapes.check_scalars('reward_class', threshold=threshold)
  signed = jnp.where(reward < -threshold, NEGATIVE, ZERO)
  return jnp.where(reward > threshold, POSITIVE, signed).astype(jnp.int32)


def reward_prediction_loss(
  logits: types.Array,
  reward: types.Array,
  threshold: types.Array | float = 0.0,
) -> types.Array:
  """Returns the cross-entropy in nats of each prediction, float32 [B].

  Args:
    logits: [B, 3], logits of `ZERO`, `NEGATIVE` and `POSITIVE`.
    reward: [B], rewards after the frames.
    threshold: see `reward_class`.

  Raises:
    ValueError: if there are not three logits for each reward.
  """
  if logits.shape != (*reward.shape, 3):
    raise ValueError(
      f'logits {logits.shape} must be {(*reward.shape, 3)}, with three classes'
      ' for each reward; give the head three outputs.'
    )
  labels = jax.nn.one_hot(reward_class(reward, threshold), 3)  # [B, 3]
  return -jnp.sum(labels * jax.nn.log_softmax(logits), axis=-1)
