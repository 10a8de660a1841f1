"""Behavioral cloning, plain or weighted by advantages.

The loss of a recorded action is its negative log-probability. With weights it
is that of MARWIL (Wang et al., 2018, "Exponentially Weighted Imitation Learning
for Batched Historical Data", equation 3): actions that led to more than the
value expected count more, by exp(scale * advantage / rms(advantages)).
"""

import jax
import jax.numpy as jnp

from ftwax import shapes, types

# Weights beyond e to this power would let a few steps decide.
_MAX_EXPONENT = 3.0


def cloning_loss(
  log_prob: types.Array,
  advantage: types.Array,
  mask: types.Array,
  scale: types.Array | float = 0.0,
) -> types.Array:
  """Returns the loss of each recorded action, float32 [T, B].

  Args:
    log_prob: float32 [T, B], log-probabilities of the recorded actions.
    advantage: float32 [T, B], what followed minus what the value expected; no
      gradient flows through it.
    mask: float32 [T, B], 1 where an action counts and 0 elsewhere.
    scale: weight of advantages, at least 0; with 0 all actions count alike.
  """
  shapes.check(
    'cloning_loss',
    log_prob=(log_prob, 'T B'),
    advantage=(advantage, 'T B'),
    mask=(mask, 'T B'),
    scale=(scale, ''),
  )
  is_counted = mask != 0
  own = jnp.where(is_counted, jax.lax.stop_gradient(advantage), 0.0)
  count = jnp.maximum(1.0, jnp.sum(is_counted))
  rms = jnp.sqrt(jnp.sum(jnp.square(own)) / count)
  exponent = scale * own / jnp.maximum(rms, 1e-6)
  weight = jnp.exp(jnp.minimum(exponent, _MAX_EXPONENT))
  return jnp.where(is_counted, -weight * log_prob, 0.0)
