"""Weights of sequences by content: within an episode, balanced rewards.

They are for `sampling.sample_weighted`. They are computed from the stored steps
at each call, in O(E L), since an agent's rewards for events may change.
"""

import jax.numpy as jnp

from ftwax import shapes, types
from ftwax.replay.functional import contents, prioritized, replay_checks
from ftwax.replay.functional import replay_config as config_lib
from ftwax.replay.functional import ring as ring_lib


def within_episodes(
  config: config_lib.ReplayConfig, state: contents.ReplayState
) -> types.Array:
  """Returns whether each slot begins a sequence within one episode.

  As weights they sample uniformly from these sequences.

  Args:
    config: static; only `step_type_field` and `sequence_length` are used.
    state: the state.

  Returns:
    float32 [E, L], 1 where such a sequence begins and 0 elsewhere.
  """
  step_type = ring_lib.select(state.ring.data, config.step_type_field)
  is_first = (step_type == types.FIRST).astype(jnp.int32)
  # Slots are consecutive modulo L: the count continues into the first slots.
  length = config.sequence_length - 1
  count = jnp.cumsum(jnp.concatenate([is_first, is_first[:, :length]], 1), 1)
  # Equal if no `FIRST` is among the T - 1 steps after the first one.
  inside = count[:, length:] == count[:, : is_first.shape[1]]
  inside &= prioritized.candidates_in_slots(config, state.ring)
  return inside.astype(jnp.float32)


def reward_balanced(
  config: config_lib.ReplayConfig,
  state: contents.ReplayState,
  skew: types.Array | float = 2.0,
  threshold: types.Array | float = 0.0,
  reward: types.Array | None = None,
) -> types.Array:
  """Weights sequences by whether their last reward is zero.

  With probability 1 / skew the sampled sequence ends in a nonzero reward,
  otherwise in a reward of zero; sampling is uniform within each class. If a
  class is empty, all are sampled from the other one. Reward prediction uses
  this (Jaderberg et al., 2017, arXiv:1611.05397, section 3.2); its sequences
  consist of frames and, last, the step with the reward.

  Args:
    config: static; see `within_episodes`.
    state: the state.
    skew: at least 1; 2 balances the classes, 1 samples only nonzero rewards.
    threshold: non-negative; a reward counts as zero if its absolute value does
      not exceed the threshold.
    reward: float32 [E, L], reward of the step in each slot; None for those
      stored in `config.reward_field`, which must be scalars.

  Returns:
    float32 [E, L], which sums to one unless there is nothing to sample.

  Raises:
    ValueError: outside `jit`, if `skew` is below 1 or `threshold` is negative.
  """
  replay_checks.check(
    config.checkify,
    jnp.asarray(skew) >= 1,
    'skew ({skew}) must be at least 1, since 1 / skew is a probability; choose'
    ' 2 to balance zero and other rewards.',
    skew=skew,
  )
  replay_checks.check(
    config.checkify,
    jnp.asarray(threshold) >= 0,
    'threshold ({threshold}) must not be negative, like the absolute rewards'
    ' that it is compared with; choose 0.',
    threshold=threshold,
  )
  if reward is None:
    reward = ring_lib.select(state.ring.data, config.reward_field)
  num_rows, length = ring_lib.dimensions(state.ring)
  shapes.check('reward_balanced', reward=(reward, f'{num_rows} {length}'))
  # To each slot, the reward of the step T - 1 slots later, modulo L.
  last_reward = jnp.roll(reward, 1 - config.sequence_length, axis=1)
  is_zero = (jnp.abs(last_reward) <= threshold).astype(jnp.float32)
  inside = within_episodes(config, state)
  zero, nonzero = inside * is_zero, inside * (1.0 - is_zero)
  num_zero, num_nonzero = jnp.sum(zero), jnp.sum(nonzero)
  share = jnp.where(num_zero == 0, 1.0, 1.0 / skew)
  share = jnp.where(num_nonzero == 0, 0.0, share)
  return nonzero * share / jnp.maximum(1.0, num_nonzero) + zero * (
    1.0 - share
  ) / jnp.maximum(1.0, num_zero)
