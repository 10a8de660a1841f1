"""Comparisons with rlax, in a process of their own.

rlax cannot be imported after Reverb, which other tests import: this file runs
alone and says how many cases were equal.
"""

import itertools

import jax
import jax.numpy as jnp
import loss_streams
import numpy as np
import rlax

from ftwax.losses import pixel_control, returns

T = 7


def compare_pixel_control():
  """Values and gradients of a stream within one episode."""
  rng = np.random.default_rng(0)
  shape, cell_size = (T + 1, 8, 12, 3), 4
  trajectory = loss_streams.random_trajectory(0, T, end=0.0)
  frames = rng.integers(0, 256, shape).astype(np.uint8)
  values = jnp.asarray(rng.normal(size=(T + 1, 2, 3, 3)), jnp.float32)

  def loss(values):
    losses = pixel_control.pixel_control_loss(
      values, frames, trajectory, 0.9, cell_size
    )
    return jnp.sum(losses), losses

  def expected_loss(values):
    losses = rlax.pixel_control_loss(
      jnp.asarray(frames, jnp.float32) / 255.0,
      trajectory.previous_action[1:],
      values,
      0.9,
      cell_size,
    )
    return jnp.sum(losses), jnp.sum(losses, axis=(1, 2))

  found, expected = (
    jax.value_and_grad(f, has_aux=True)(values) for f in (loss, expected_loss)
  )
  jax.tree.map(
    lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-5),
    found,
    expected,
  )
  return 1


def compare_returns():
  """Streams of one episode that may terminate in the middle."""
  cases = list(itertools.product(range(3), (1.0, 0.7, 0.0)))
  for seed, lambda_ in cases:
    rng = np.random.default_rng(seed)
    r_t, v_t = (jnp.asarray(rng.normal(size=T), jnp.float32) for _ in range(2))
    v_tm1 = jnp.concatenate([jnp.ones(1), v_t[:-1]])
    discount_t = jnp.full(T, 0.9).at[3].set(0.0)
    ones = jnp.ones(T)
    np.testing.assert_allclose(
      returns.lambda_returns(r_t, discount_t, v_t, ones, lambda_),
      rlax.lambda_returns(r_t, discount_t, v_t, lambda_),
      atol=1e-5,
    )
    np.testing.assert_allclose(
      returns.n_step_returns(r_t, discount_t, v_t, ones, 3),
      rlax.n_step_bootstrapped_returns(r_t, discount_t, v_t, 3),
      atol=1e-5,
    )
    values = jnp.concatenate([v_tm1[:1], v_t])
    np.testing.assert_allclose(
      returns.generalized_advantages(
        v_tm1, v_t, r_t, discount_t, ones, lambda_
      ),
      rlax.truncated_generalized_advantage_estimation(
        r_t, discount_t, lambda_, values
      ),
      atol=1e-5,
    )
  return len(cases)


if __name__ == '__main__':
  print(compare_pixel_control() + compare_returns())
