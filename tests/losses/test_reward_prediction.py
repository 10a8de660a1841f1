import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ftwax.losses import reward_prediction


@pytest.mark.parametrize(
  ('threshold', 'expected'),
  [(0.0, [1, 1, 0, 2, 2, 0]), (0.1, [1, 0, 0, 0, 2, 0])],
)
def test_classes_are_zero_negative_positive(threshold, expected):
  reward = jnp.array([-2.0, -0.1, 0.0, 0.1, 3.0, np.nan], jnp.float32)
  found = reward_prediction.reward_class(reward, threshold)
  assert found.dtype == jnp.int32
  np.testing.assert_array_equal(found, expected)


def test_loss_and_gradient_equal_the_oracle():
  """Of every row, not only of the first."""
  rng = np.random.default_rng(0)
  logits = (3 * rng.normal(size=(8, 3))).astype(np.float32)
  reward = np.array([0, -1, 2, 0, 0.5, -3, 0, 1], np.float32)
  labels = np.array([0, 1, 2, 0, 2, 1, 0, 2])
  probabilities = np.exp(np.float64(logits))
  probabilities /= probabilities.sum(-1, keepdims=True)
  np.testing.assert_allclose(
    reward_prediction.reward_prediction_loss(logits, reward),
    -np.log(probabilities[np.arange(8), labels]),
    atol=1e-5,
  )
  gradient = jax.grad(
    lambda x: jnp.sum(reward_prediction.reward_prediction_loss(x, reward))
  )(logits)
  np.testing.assert_allclose(
    gradient, probabilities - np.eye(3)[labels], atol=1e-5
  )


def test_logits_of_other_classes_are_refused():
  with pytest.raises(ValueError, match=r'logits \(2, 4\) must be \(2, 3\)'):
    reward_prediction.reward_prediction_loss(jnp.zeros((2, 4)), jnp.zeros(2))
