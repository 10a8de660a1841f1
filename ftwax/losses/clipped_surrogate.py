"""Proximal policy optimization (Schulman et al., 2017, arXiv:1707.06347).

PPO takes several gradient steps on the same streams and keeps the policy near
the behaviour policy by clipping the probability ratio (equation 7):

  L = -min(ratio A, clip(ratio, 1 - epsilon, 1 + epsilon) A)

The old policy is the behaviour policy: its logits are stored with the actions,
so that the ratio is one at the first step if the actor does not lag.
Advantages, value targets, old values and old log-probabilities are computed
once for the whole batch by `make_targets`, with the parameters before the first
step. Every step reads them from `Transitions.targets`.

The clipped loss does not use rlax's, which returns a mean over steps. Computed
step by step, value and gradient of rlax's take 1.0 times as long as these
(T = 20, B = 16) or 1.2 times (T = 128, B = 8), as its `fmin` also checks for
NaN.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from ftwax import distributions, registry, types
from ftwax.losses import advantage_actor_critic, policy_loss


class PPOTargets(NamedTuple):
  """Targets of all gradient steps on a batch; float32 [T] or [T, B].

  Attributes:
    advantages: normalized if made by `make_targets`; zero where no action was
      taken.
    returns: targets of the value.
    v_tm1: values before the first step, which value clipping refers to.
    log_prob_tm1: log-probabilities of the actions under the old policy.
  """

  advantages: types.Array
  returns: types.Array
  v_tm1: types.Array
  log_prob_tm1: types.Array


def make_targets(
  transitions: policy_loss.Transitions, hyperparameters: types.Hyperparameters
) -> PPOTargets:
  """Computes the targets of a batch, with advantages normalized over the batch.

  Args:
    transitions: leaves [T, B, ...], at the parameters before the first step.
    hyperparameters: only `gae_lambda` is used.

  Returns:
    Targets [T, B], with gradients stopped.
  """
  policy_loss.check_transitions('make_targets', transitions, 'T ...')
  targets = make_plain_targets(transitions, hyperparameters)
  # The returns keep the scale of the rewards.
  return targets._replace(
    advantages=policy_loss.normalize_advantages(
      targets.advantages, transitions.mask_tm1
    )
  )


def make_plain_targets(
  transitions: policy_loss.Transitions, hyperparameters: types.Hyperparameters
) -> PPOTargets:
  """Computes targets [T] or [T, B], without normalizing advantages."""
  advantages = advantage_actor_critic.generalized_advantages(
    transitions, hyperparameters
  )
  v_tm1 = jax.lax.stop_gradient(transitions.v_tm1)
  log_prob_tm1 = distributions.log_prob(
    transitions.behaviour_logits_tm1, transitions.a_tm1
  )
  return PPOTargets(advantages, advantages + v_tm1, v_tm1, log_prob_tm1)


@registry.register('loss.ppo')
def ppo_loss(
  transitions: policy_loss.Transitions, hyperparameters: types.Hyperparameters
) -> policy_loss.PolicyLossOutput:
  """Computes clipped policy loss, value error and entropy on one stream.

  Args:
    transitions: leaves [T, ...]. If `targets` is None, they are computed from
      the given values, and advantages are not normalized.
    hyperparameters: `clip_epsilon`, the distance from 1 at which the ratio is
      clipped; `value_clip`, the change from the old value at which the value is
      clipped, infinity for no clipping; without targets also `gae_lambda`.

  Returns:
    The losses, each [T], and as metrics the fraction of clipped ratios and
    KL(old policy || new policy) in nats.
  """
  policy_loss.check_transitions('ppo_loss', transitions)
  targets = transitions.targets
  if targets is None:
    targets = make_plain_targets(transitions, hyperparameters)
  mask = transitions.mask_tm1 != 0
  # Masked before the exponential: where no action was taken, it may overflow,
  # and a product with zero would then be NaN.
  log_ratio = jnp.where(
    mask,
    policy_loss.log_prob_tm1(transitions) - targets.log_prob_tm1,
    0.0,
  )
  entropy = distributions.entropy(transitions.logits_tm1)  # [T]
  ratio = jnp.exp(log_ratio)  # [T]
  epsilon = hyperparameters.clip_epsilon
  clipped = jnp.clip(ratio, 1.0 - epsilon, 1.0 + epsilon)
  num_actions = jnp.maximum(1, jnp.sum(mask))
  return policy_loss.PolicyLossOutput(
    policy=-jnp.minimum(
      ratio * targets.advantages, clipped * targets.advantages
    ),
    value=jnp.where(
      mask,
      _value_loss(transitions.v_tm1, targets, hyperparameters.value_clip),
      0.0,
    ),
    entropy=jnp.where(mask, entropy, 0.0),
    metrics={
      'clip_fraction': jnp.sum(jnp.abs(ratio - 1.0) > epsilon) / num_actions,
      # The estimator k3 of KL: low variance, never negative as exp(x) >= 1 + x.
      'kl_old_new': jnp.sum(ratio - 1.0 - log_ratio) / num_actions,
    },
  )


@registry.register('loss.ppo_normalized')
def normalized_ppo_loss(
  transitions: policy_loss.Transitions, hyperparameters: types.Hyperparameters
) -> policy_loss.PolicyLossOutput:
  """Computes `ppo_loss` with advantages normalized over the minibatch.

  Each optimizer step thus raises the probabilities of the better actions of its
  own minibatch, whatever the mean of their advantages. This counts where a
  minibatch is a few sequences, whose transitions are alike.

  Args:
    transitions: leaves [T, ...], with targets of `make_plain_targets`; the
      streams of a minibatch are mapped, with the axis name
      `policy_loss.STREAMS`.
    hyperparameters: see `ppo_loss`.

  Returns:
    See `ppo_loss`.
  """
  targets: PPOTargets = transitions.targets
  advantages = policy_loss.normalize_advantages(
    targets.advantages, transitions.mask_tm1, policy_loss.STREAMS
  )
  targets = targets._replace(advantages=advantages)
  return ppo_loss(transitions._replace(targets=targets), hyperparameters)


def _value_loss(
  v_tm1: types.Array, targets: PPOTargets, value_clip: types.Array
) -> types.Array:
  """Returns half the larger squared error [T], value clipped and unclipped."""
  change = jnp.clip(v_tm1 - targets.v_tm1, -value_clip, value_clip)
  error = jnp.square(targets.returns - v_tm1)
  bounded_error = jnp.square(targets.returns - targets.v_tm1 - change)
  # As the minimum in the policy's loss, the maximum is a pessimistic bound.
  return 0.5 * jnp.maximum(error, bounded_error)
