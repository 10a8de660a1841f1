"""V-trace actor-critic (Espeholt et al., 2018, arXiv:1802.01561).

The behaviour policy mu lags behind the learner's policy pi. V-trace weights its
data by clipped importance ratios, so that values and policy gradient are those
of pi:

  rho_t = min(rho_bar, pi(a_t) / mu(a_t)),  c_t = lambda min(1, pi / mu)
  delta_t = rho_t (r_{t+1} + gamma_{t+1} V_{t+1} - V_t)
  v_t - V_t = delta_t + gamma_{t+1} c_t (v_{t+1} - V_{t+1})

A step without an action, between two episodes, has a ratio of zero. Then delta
and c vanish, which ends the recursion: v = V there, so the step before it
bootstraps from the value itself.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from ftwax import distributions, registry, shapes, types
from ftwax.losses import policy_loss
from ftwax.losses import returns as returns_lib


class VTraceReturns(NamedTuple):
  """Targets of one stream, with gradients stopped.

  Attributes:
    errors: float32 [T], v_t - V(x_t), errors of the value.
    advantages: float32 [T], rho_t (r_{t+1} + gamma_{t+1} v_{t+1} - V(x_t)).
  """

  errors: types.Array
  advantages: types.Array


def vtrace(
  v_tm1: types.Array,
  v_t: types.Array,
  r_t: types.Array,
  discount_t: types.Array,
  rho_tm1: types.Array,
  lambda_: types.Array | float = 1.0,
  clip_rho_threshold: types.Array | float = 1.0,
  clip_pg_rho_threshold: types.Array | float = 1.0,
) -> VTraceReturns:
  """Computes V-trace targets and advantages (equation 1 and section 4.2).

  Args:
    v_tm1: [T], values before each action.
    v_t: [T], values after each action.
    r_t: [T], rewards.
    discount_t: [T], discounts.
    rho_tm1: [T], importance ratios pi(a) / mu(a), not clipped; zero where no
      action was taken.
    lambda_: mixes one-step targets (0) and full V-trace targets (1).
    clip_rho_threshold: rho_bar, upper bound on the ratios in the targets.
    clip_pg_rho_threshold: upper bound on the ratios in the advantages.

  Returns:
    Errors and advantages.

  Raises:
    ValueError: if an argument does not have this shape.
  """
  shapes.check(
    'vtrace',
    v_tm1=(v_tm1, 'T'),
    v_t=(v_t, 'T'),
    r_t=(r_t, 'T'),
    discount_t=(discount_t, 'T'),
    rho_tm1=(rho_tm1, 'T'),
    lambda_=(lambda_, ''),
    clip_rho_threshold=(clip_rho_threshold, ''),
    clip_pg_rho_threshold=(clip_pg_rho_threshold, ''),
  )
  v_tm1, v_t, rho_tm1 = jax.lax.stop_gradient((v_tm1, v_t, rho_tm1))
  delta_tm1 = jnp.minimum(clip_rho_threshold, rho_tm1) * (
    r_t + discount_t * v_t - v_tm1
  )
  errors = returns_lib.accumulate(
    delta_tm1, discount_t * (jnp.minimum(1.0, rho_tm1) * lambda_)
  )
  # The value after a step is not the next step's v_tm1, which padding lacks.
  errors_t = jnp.concatenate([errors[1:], jnp.zeros_like(errors[:1])])  # [T]
  # (1 - lambda) V + lambda v, where v = V + error. The error is zero at a step
  # without an action.
  targets_t = v_t + lambda_ * errors_t
  advantages = jnp.minimum(clip_pg_rho_threshold, rho_tm1) * (
    r_t + discount_t * targets_t - v_tm1
  )
  return VTraceReturns(errors, advantages)


@registry.register('loss.vtrace')
def vtrace_loss(
  transitions: policy_loss.Transitions,
  hyperparameters: types.Hyperparameters,
  lambda_: types.Array | float = 1.0,
  clip_rho_threshold: types.Array | float = 1.0,
  clip_pg_rho_threshold: types.Array | float = 1.0,
  normalize_advantages: bool = False,
) -> policy_loss.PolicyLossOutput:
  """Computes V-trace policy gradient, value error and entropy on one stream.

  Args:
    transitions: leaves [T, ...].
    hyperparameters: not used here; the agent weights the terms.
    lambda_: see `vtrace`.
    clip_rho_threshold: see `vtrace`.
    clip_pg_rho_threshold: see `vtrace`.
    normalize_advantages: whether to normalize advantages, weighted by their
      ratios, to mean 0 and variance 1 over all streams. The streams must be
      mapped over with the axis name `policy_loss.STREAMS`.

  Returns:
    The losses, each [T].
  """
  del hyperparameters
  policy_loss.check_transitions('vtrace_loss', transitions)
  log_prob = policy_loss.log_prob_tm1(transitions)
  behaviour_log_prob = distributions.log_prob(
    transitions.behaviour_logits_tm1, transitions.a_tm1
  )
  log_rho_tm1 = log_prob - behaviour_log_prob
  # Masked before the exponential, which may overflow for a placeholder action.
  rho_tm1 = jnp.exp(jnp.where(transitions.mask_tm1 > 0, log_rho_tm1, -jnp.inf))
  returns = vtrace(
    transitions.v_tm1,
    transitions.v_t,
    transitions.r_t,
    transitions.discount_t,
    rho_tm1,
    lambda_,
    clip_rho_threshold,
    clip_pg_rho_threshold,
  )
  advantages = returns.advantages
  if normalize_advantages:
    weights = jnp.minimum(clip_pg_rho_threshold, rho_tm1)
    advantages = policy_loss.normalize_advantages(
      advantages, jax.lax.stop_gradient(weights), policy_loss.STREAMS
    )
  # Only the value that is subtracted below has a gradient.
  targets = jax.lax.stop_gradient(transitions.v_tm1) + returns.errors
  return policy_loss.PolicyLossOutput(
    policy=-advantages * log_prob,
    value=0.5 * jnp.square(targets - transitions.v_tm1),
    entropy=transitions.mask_tm1
    * distributions.entropy(transitions.logits_tm1),
    metrics={
      'rho': jnp.sum(rho_tm1) / jnp.maximum(1.0, jnp.sum(transitions.mask_tm1))
    },
  )
