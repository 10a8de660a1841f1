"""Advantage actor-critic (Mnih et al., 2016, arXiv:1602.01783), A2C and A3C.

Policy gradients with the advantage of n-step returns, which bootstrap at the
end of the stream, or with generalized advantage estimation (Schulman et al.,
2016, arXiv:1506.02438). The stream must come from the current policy: there is
no off-policy correction. For lagging actors or replayed streams use `vtrace`.
"""

import jax
import jax.numpy as jnp

from ftwax import distributions, registry, types
from ftwax.losses import policy_loss, returns


@registry.register('loss.a2c')
def advantage_actor_critic_loss(
  transitions: policy_loss.Transitions,
  hyperparameters: types.Hyperparameters,
  normalize_advantages: bool = False,
) -> policy_loss.PolicyLossOutput:
  """Computes policy gradient, value error and entropy on one stream.

  Args:
    transitions: leaves [T, ...]; the behaviour logits are not used.
    hyperparameters: only `gae_lambda` is used: 1 for n-step returns as in A3C,
      less for lower variance and higher bias.
    normalize_advantages: whether to normalize the advantages of the policy loss
      to mean 0 and variance 1 over all streams. The streams must be mapped over
      with the axis name `policy_loss.STREAMS`.

  Returns:
    The losses, each [T].
  """
  policy_loss.check_transitions('advantage_actor_critic_loss', transitions)
  advantages = generalized_advantages(transitions, hyperparameters)  # [T]
  v_tm1 = jax.lax.stop_gradient(transitions.v_tm1)
  # Equal to the advantages, but with the gradient of the value. Normalization
  # must not affect these.
  errors = advantages + v_tm1 - transitions.v_tm1
  if normalize_advantages:
    advantages = policy_loss.normalize_advantages(
      advantages, transitions.mask_tm1, policy_loss.STREAMS
    )
  mask = transitions.mask_tm1 != 0
  entropy = distributions.entropy(transitions.logits_tm1)  # [T]
  return policy_loss.PolicyLossOutput(
    policy=-advantages * policy_loss.log_prob_tm1(transitions),
    value=jnp.where(mask, 0.5 * jnp.square(errors), 0.0),
    entropy=jnp.where(mask, entropy, 0.0),
    metrics={},
  )


def generalized_advantages(
  transitions: policy_loss.Transitions, hyperparameters: types.Hyperparameters
) -> types.Array:
  """Computes the advantages [T] of one stream, with gradients stopped.

  Args:
    transitions: leaves [T, ...].
    hyperparameters: only `gae_lambda` is used.
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
