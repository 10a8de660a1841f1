"""Proximal policy optimization (Schulman et al., 2017, arXiv:1707.06347).

Several gradient steps on the same streams, kept near the policy that acted by
clipping the ratio of probabilities (equation 7):

  L = -min(ratio A, clip(ratio, 1 - epsilon, 1 + epsilon) A)

The old policy is the one that acted: its logits were stored with the actions,
so that the ratio is one at the first step of an actor that does not lag.
Advantages, value targets and old values are those of the parameters before the
first step: `make_targets` makes them once for the whole batch, and every step
finds them in `Transitions.targets`.

The clipped loss is not rlax's, which returns a mean over steps; taken step by
step, its value and gradient take 1.0 times as long as these (T = 20, B = 16)
or 1.2 times (T = 128, B = 8), as its `fmin` also looks for NaN.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from ftwax import distributions, types
from ftwax.losses import advantage_actor_critic, policy_loss


class PPOTargets(NamedTuple):
  """Targets of all gradient steps on a batch; leaves [T] or [T, B].

  Attributes:
    advantages: normalized by `make_targets`, and zero where no action was
      taken.
    returns: targets of the value.
    v_tm1: the value before the first step, near which it is kept.
  """

  advantages: types.Array
  returns: types.Array
  v_tm1: types.Array


def make_targets(
  transitions: policy_loss.Transitions, hyperparameters: types.Hyperparameters
) -> PPOTargets:
  """Makes the targets of a batch, with advantages normalized over all of it.

  Args:
    transitions: leaves [T, B, ...], of the parameters before the first step.
    hyperparameters: `gae_lambda` is read.

  Returns:
    Targets [T, B], without a gradient.
  """
  targets = make_plain_targets(transitions, hyperparameters)
  return targets._replace(
    advantages=policy_loss.normalize_advantages(
      targets.advantages, transitions.mask_tm1
    )
  )


def make_plain_targets(
  transitions: policy_loss.Transitions, hyperparameters: types.Hyperparameters
) -> PPOTargets:
  """Makes the targets of a batch with advantages as they are."""
  return jax.vmap(_stream_targets, in_axes=(1, None), out_axes=1)(
    transitions, hyperparameters
  )


def ppo_loss(
  transitions: policy_loss.Transitions, hyperparameters: types.Hyperparameters
) -> policy_loss.PolicyLossOutput:
  """Clipped policy loss, value error and entropy on one stream.

  Args:
    transitions: leaves [T, ...]. Without `targets` they are made from the
      values given, and advantages are not normalized.
    hyperparameters: `clip_epsilon`, how far the ratio of probabilities counts;
      `value_clip`, how far the value may move from the old one before it stops
      counting, infinity for no bound; without targets, `gae_lambda`.

  Returns:
    The losses, each [T], and as metrics the share of ratios that are clipped
    and the divergence of the old policy from the new one, in nats.
  """
  targets = transitions.targets
  if targets is None:
    targets = _stream_targets(transitions, hyperparameters)
  mask = transitions.mask_tm1 != 0
  log_ratio = jnp.where(
    mask,
    policy_loss.log_prob_tm1(transitions)
    - distributions.log_prob(
      transitions.behaviour_logits_tm1, transitions.a_tm1
    ),
    0.0,
  )
  entropy = distributions.entropy(transitions.logits_tm1)
  ratio = jnp.exp(log_ratio)
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
      # Of low variance and never negative, since exp(x) >= 1 + x.
      'kl_old_new': jnp.sum(ratio - 1.0 - log_ratio) / num_actions,
    },
  )


def _stream_targets(
  transitions: policy_loss.Transitions, hyperparameters: types.Hyperparameters
) -> PPOTargets:
  """Makes the targets of one stream, leaves [T, ...]."""
  advantages = advantage_actor_critic.generalized_advantages(
    transitions, hyperparameters
  )
  v_tm1 = jax.lax.stop_gradient(transitions.v_tm1)
  return PPOTargets(advantages, advantages + v_tm1, v_tm1)


def _value_loss(
  v_tm1: types.Array, targets: PPOTargets, value_clip: types.Array
) -> types.Array:
  """Returns half the squared error, or that of the bounded value if larger."""
  change = jnp.clip(v_tm1 - targets.v_tm1, -value_clip, value_clip)
  error = jnp.square(targets.returns - v_tm1)
  bounded_error = jnp.square(targets.returns - targets.v_tm1 - change)
  return 0.5 * jnp.maximum(error, bounded_error)
