import jax
import jax.numpy as jnp
import numpy as np

from ftwax.losses import latent_kl


def draw(seed, *shape):
  rng = np.random.default_rng(seed)
  locs = [rng.normal(size=shape).astype(np.float32) for _ in range(2)]
  scales = [
    rng.uniform(0.05, 2.0, size=shape).astype(np.float32) for _ in range(2)
  ]
  return locs, scales


def test_divergence_is_that_of_sampling():
  (loc_p, loc_q), (scale_p, scale_q) = draw(0, 1, 3)
  rng = np.random.default_rng(1)
  z = loc_p + scale_p * rng.normal(size=(200_000, 3))

  def log_density(z, loc, scale):
    return -0.5 * ((z - loc) / scale) ** 2 - np.log(scale)

  samples = log_density(z, loc_p, scale_p) - log_density(z, loc_q, scale_q)
  expected = np.mean(np.sum(samples, -1))
  found = latent_kl.normal_kl(loc_p, scale_p, loc_q, scale_q)
  np.testing.assert_allclose(found[0], expected, rtol=2e-2)


def test_divergence_of_equals_is_zero_and_so_is_its_gradient():
  (loc, _), (scale, _) = draw(0, 2, 3)
  gradient = jax.grad(
    lambda *p: jnp.sum(latent_kl.normal_kl(*p, loc, scale)), (0, 1)
  )(loc, scale)
  for leaf in (latent_kl.normal_kl(loc, scale, loc, scale), *gradient):
    np.testing.assert_allclose(leaf, 0.0, atol=1e-6)


def test_posterior_counts_always_and_prior_on_ticks():
  locs, scales = draw(0, 4, 2, 3)
  always = jnp.ones((4, 2), bool)
  ticks = jnp.array([[1, 0], [0, 1], [0, 0], [1, 1]], bool)
  losses = latent_kl.latent_kl(locs, scales, (always, ticks))
  np.testing.assert_allclose(
    losses.posterior_prior,
    latent_kl.normal_kl(locs[0], scales[0], locs[1], scales[1]),
    rtol=1e-6,
  )
  fixed = latent_kl.normal_kl(
    locs[1], scales[1], np.zeros((4, 2, 3)), np.full((4, 2, 3), 0.1)
  )
  np.testing.assert_allclose(
    losses.prior_fixed, np.where(ticks, fixed, 0.0), rtol=1e-5
  )


def test_levels_are_priors_of_the_level_below():
  (loc0, loc1), (scale0, scale1) = draw(0, 4, 3)
  (loc2, _), (scale2, _) = draw(1, 4, 3)
  ticks = jnp.array([1, 0, 1, 0], bool)
  losses = latent_kl.latent_kl(
    (loc0, loc1, loc2),
    (scale0, scale1, scale2),
    (jnp.ones(4, bool), ticks, ticks),
  )
  expected = latent_kl.normal_kl(loc0, scale0, loc1, scale1) + np.where(
    ticks, latent_kl.normal_kl(loc1, scale1, loc2, scale2), 0.0
  )
  np.testing.assert_allclose(losses.posterior_prior, expected, rtol=1e-5)
