"""Value replay (Jaderberg et al., 2017, arXiv:1611.05397, section 3.3).

An auxiliary task: regress the value on replayed sequences too, without a policy
gradient. It bootstraps from the learner's current values, not from stored ones.
As in the paper, returns are those of the behaviour policy; to correct them for
the learner's policy, use `v_trace.vtrace_loss` on the replayed sequences.
"""

import jax
import jax.numpy as jnp

from ftwax import shapes, types
from ftwax.losses import policy_loss, returns


def value_replay_loss(
  transitions: policy_loss.Transitions,
  lambda_: types.Array | float = 1.0,
) -> types.Array:
  """Returns half the squared error of the value on one stream.

  Args:
    transitions: leaves [T, ...], of a replayed trajectory; logits and actions
      are not used.
    lambda_: see `returns.lambda_returns`.

  Returns:
    float32 [T], zero where no action was taken.
  """
  return 0.5 * jnp.square(value_errors(transitions, lambda_))


def value_errors(
  transitions: policy_loss.Transitions,
  lambda_: types.Array | float = 1.0,
) -> types.Array:
  """Returns what followed minus the value, float32 [T]; see the loss."""
  shapes.check(
    'value_errors',
    **{'transitions.v_tm1': (transitions.v_tm1, 'T')},
    **{'transitions.r_t': (transitions.r_t, 'T')},
  )
  targets = returns.lambda_returns(
    transitions.r_t,
    transitions.discount_t,
    jax.lax.stop_gradient(transitions.v_t),
    transitions.mask_tm1,
    lambda_,
  )
  return jnp.where(transitions.mask_tm1 != 0, targets - transitions.v_tm1, 0.0)
