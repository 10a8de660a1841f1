"""Advantage actor-critic (Mnih et al., 2016, arXiv:1602.01783), A2C and A3C.

The policy gradient with the advantage of the n-step return, which reaches to
the end of the stream, or of any mixture of returns (generalized advantages,
Schulman et al., 2016, arXiv:1506.02438). The stream must be the policy's own:
there is no correction for actors whose parameters lag behind; where they do,
take `vtrace` instead, as on replayed streams.
"""

import jax
import jax.numpy as jnp

from ftwax import distributions, types
from ftwax.losses import policy_loss, returns


def advantage_actor_critic_loss(
  transitions: policy_loss.Transitions,
  hyperparameters: types.Hyperparameters,
  normalize_advantages: bool = False,
) -> policy_loss.PolicyLossOutput:
  """Policy gradient, value error and entropy on one stream.

  Args:
    transitions: leaves [T, ...]; the logits of behaviour are not read.
    hyperparameters: `gae_lambda` is read: 1 for n-step returns as in A3C, less
      for less variance and more bias.
    normalize_advantages: brings those of the policy's loss to mean 0 and
      variance 1 over all streams, which must be mapped over as
      `policy_loss.STREAMS`.

  Returns:
    The losses, each [T].
  """
  advantages = generalized_advantages(transitions, hyperparameters)
  v_tm1 = jax.lax.stop_gradient(transitions.v_tm1)
  errors = advantages + v_tm1 - transitions.v_tm1
  if normalize_advantages:
    advantages = policy_loss.normalize_advantages(
      advantages, transitions.mask_tm1, policy_loss.STREAMS
    )
  mask = transitions.mask_tm1 != 0
  entropy = distributions.entropy(transitions.logits_tm1)
  return policy_loss.PolicyLossOutput(
    policy=-advantages * policy_loss.log_prob_tm1(transitions),
    value=jnp.where(mask, 0.5 * jnp.square(errors), 0.0),
    entropy=jnp.where(mask, entropy, 0.0),
    metrics={},
  )


def generalized_advantages(
  transitions: policy_loss.Transitions, hyperparameters: types.Hyperparameters
) -> types.Array:
  """Returns the advantages [T] of one stream, without a gradient.

  Args:
    transitions: leaves [T, ...].
    hyperparameters: `gae_lambda` is read.
  """
  v_tm1, v_t = jax.lax.stop_gradient((transitions.v_tm1, transitions.v_t))
  return returns.generalized_advantages(
    v_tm1,
    v_t,
    transitions.r_t,
    transitions.discount_t,
    transitions.mask_tm1,
    hyperparameters.gae_lambda,
  )
