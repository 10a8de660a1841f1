"""KL divergences of the latents of a temporal hierarchy.

See Jaderberg et al., 2019 (arXiv:1807.01281), section 5.4 of the supplement. At
every step, the posterior of the fast core is regularized towards the prior from
the slow core. On ticks of the slow core, where the prior changes, the prior is
regularized towards a fixed normal N(0, 0.1^2). All are diagonal normals.

`normal_kl` is used instead of `rlax.multivariate_normal_kl_divergence`, whose
value and gradient take 1.6 to 1.9 times as long.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp

from ftwax import shapes, types

FIXED_SCALE = 0.1


class Divergences(NamedTuple):
  """Divergences in nats, each float32 [...].

  Attributes:
    posterior_prior: KL(posterior || prior).
    prior_fixed: KL(prior || N(0, 0.1^2)), zero except on ticks of the slow
      core.
  """

  posterior_prior: types.Array
  prior_fixed: types.Array


def normal_kl(
  loc_p: types.Array,
  scale_p: types.Array,
  loc_q: types.Array | float,
  scale_q: types.Array | float,
) -> types.Array:
  """Computes KL(p || q) [...] of diagonal normals.

  sum_k log(s_q / s_p) + (s_p^2 + (m_p - m_q)^2) / (2 s_q^2) - 1/2.

  Args:
    loc_p: [..., num_latents], means m_p.
    scale_p: [..., num_latents], standard deviations s_p, above zero.
    loc_q: means m_q, of the same shape or one number for all.
    scale_q: standard deviations s_q, above zero, as `loc_q`.

  Raises:
    ValueError: if an argument does not have this shape.
  """
  shapes.check(
    'normal_kl',
    loc_p=(loc_p, '... K'),
    scale_p=(scale_p, '... K'),
    loc_q=(loc_q, '... K' if jnp.ndim(loc_q) else ''),
    scale_q=(scale_q, '... K' if jnp.ndim(scale_q) else ''),
  )
  ratio = scale_p / scale_q  # [..., num_latents]
  difference = (loc_p - loc_q) / scale_q
  terms = jnp.square(ratio) + jnp.square(difference) - 1.0
  return jnp.sum(0.5 * terms - jnp.log(ratio), axis=-1)  # [...]


def latent_kl(
  locs: Sequence[types.Array],
  scales: Sequence[types.Array],
  ticks: Sequence[types.Array],
) -> Divergences:
  """Computes the divergences at each step.

  Args:
    locs: means [..., num_latents] of each level's latent, the fastest first:
      the posterior, then the prior. With more than two levels, each one is the
      prior of the level before it.
    scales: standard deviations, of the same shapes.
    ticks: bool [...] of each level, whether it ticks. The divergence of a level
      only counts on its ticks, so that a held latent does not count twice.

  Returns:
    The divergences; `posterior_prior` is summed over all but the slowest level.
  """
  names = [
    (f'{name}[{level}]', leaf, shape)
    for name, leaves, shape in (
      ('locs', locs, '... K'),
      ('scales', scales, '... K'),
      ('ticks', ticks, '...'),
    )
    for level, leaf in enumerate(leaves)
  ]
  shapes.check(
    'latent_kl', **{name: (leaf, shape) for name, leaf, shape in names}
  )
  posterior_prior = jnp.zeros(locs[0].shape[:-1])  # [...]
  for level in range(len(locs) - 1):
    # No gradient is stopped: the posterior is drawn to the prior, and the prior
    # learns to predict the posterior.
    divergence = normal_kl(
      locs[level], scales[level], locs[level + 1], scales[level + 1]
    )
    posterior_prior += jnp.where(ticks[level], divergence, 0.0)
  prior_fixed = normal_kl(locs[-1], scales[-1], 0.0, FIXED_SCALE)
  return Divergences(
    posterior_prior=posterior_prior,
    prior_fixed=jnp.where(ticks[-1], prior_fixed, 0.0),
  )
