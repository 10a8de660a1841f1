"""Value replay (Jaderberg et al., 2017, arXiv:1611.05397, section 3.3).

An auxiliary task: the value is regressed on replayed sequences as well. What
it bootstraps from are the values of the network that learns, not those that
were stored, and there is no gradient of the policy. As in the paper, returns
are those of the policy that acted; to correct them for the policy that learns
take `vtrace.vtrace_loss` on the replayed sequences instead.
"""

import jax
import jax.numpy as jnp

from ftwax import types
from ftwax.losses import policy_loss, returns


def value_replay_loss(
  transitions: policy_loss.Transitions,
  lambda_: types.Array | float = 1.0,
) -> types.Array:
  """Returns half the squared error of the value over one stream.

  Args:
    transitions: leaves [T, ...], of a replayed trajectory; logits and actions
      are not read.
    lambda_: see `returns.lambda_returns`.

  Returns:
    float32 [T], zero where no action was taken.
  """
  targets = returns.lambda_returns(
    transitions.r_t,
    transitions.discount_t,
    jax.lax.stop_gradient(transitions.v_t),
    transitions.mask_tm1,
    lambda_,
  )
  errors = jnp.where(
    transitions.mask_tm1 != 0, targets - transitions.v_tm1, 0.0
  )
  return 0.5 * jnp.square(errors)
