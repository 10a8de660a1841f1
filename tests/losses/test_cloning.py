"""Cloning: plain it is cross-entropy; weights follow MARWIL's equation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ftwax.losses import cloning


@pytest.fixture
def steps():
  draw = np.random.default_rng(0)
  log_prob = -draw.uniform(0.1, 3.0, (5, 3)).astype(np.float32)
  advantage = draw.normal(size=(5, 3)).astype(np.float32)
  mask = (draw.uniform(size=(5, 3)) < 0.7).astype(np.float32)
  return log_prob, advantage, mask


def test_without_a_scale_all_actions_count_alike(steps):
  log_prob, advantage, mask = steps
  loss = cloning.cloning_loss(log_prob, advantage, mask)
  np.testing.assert_allclose(loss, -log_prob * mask, rtol=1e-6)


def test_weights_are_exponents_of_scaled_advantages(steps):
  log_prob, advantage, mask = steps
  loss = cloning.cloning_loss(log_prob, advantage, mask, 0.7)
  rms = np.sqrt(np.sum(mask * advantage**2) / mask.sum())
  weight = np.exp(np.minimum(0.7 * advantage / rms, 3.0))
  np.testing.assert_allclose(loss, -weight * log_prob * mask, rtol=1e-5)


def test_gradients_go_to_log_probabilities_that_count(steps):
  log_prob, advantage, mask = steps

  def total(log_prob, advantage):
    bad = jnp.where(mask != 0, advantage, jnp.nan)  # Of no action.
    return jnp.sum(cloning.cloning_loss(log_prob, bad, mask, 1.0))

  of_log_prob, of_advantage = jax.grad(total, (0, 1))(log_prob, advantage)
  np.testing.assert_array_equal(of_advantage, 0.0)
  assert np.all((of_log_prob < 0) == (mask != 0))


def test_shapes_are_asserted(steps):
  log_prob, advantage, mask = steps
  with pytest.raises(
    ValueError, match=r'mask of cloning_loss must have the sh'
  ):
    cloning.cloning_loss(log_prob, advantage, mask[:, 0])
