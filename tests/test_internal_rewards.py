"""Weights of events: draws, bounds, and the reward that they make."""

import dm_env
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ftwax import hyperparameters, internal_rewards

UNIFORM = hyperparameters.Uniform(-1.0, 1.0)
EACH = (
  hyperparameters.Constant(1.0),
  hyperparameters.Uniform(0.5, 1.0),
  hyperparameters.Uniform(-0.5, 0.0),
)


def _timestep(reward, rows=(2,)):
  return dm_env.TimeStep(
    step_type=jnp.ones(rows, jnp.int32),
    reward=jnp.asarray(reward, jnp.float32),
    discount=jnp.ones(rows),
    observation=(),
  )


def test_the_reward_is_the_inner_product_of_events_and_weights(key):
  weights = jnp.array([0.5, -2.0, 0.0])
  events = np.array([[1, 0, 5], [2, 3, 0]])
  own = internal_rewards.reward(weights, _timestep(events))
  np.testing.assert_allclose(own, [0.5, -5.0])
  gradient = jax.grad(
    lambda w: jnp.sum(internal_rewards.reward(w, _timestep(events)))
  )(weights)
  assert not np.any(gradient)


def test_a_scalar_reward_is_one_event():
  own = internal_rewards.reward(jnp.array([2.0]), _timestep([3.0, -1.0]))
  np.testing.assert_allclose(own, [6.0, -2.0])


def test_weights_of_other_events_are_refused():
  with pytest.raises(ValueError, match=r'must have a weight for each of the 3'):
    internal_rewards.reward(jnp.ones(2), _timestep(np.zeros((2, 3))))


def test_one_prior_is_drawn_for_each_event_alone(key):
  drawn = np.asarray(internal_rewards.sample(key, UNIFORM, 200))
  assert drawn.shape == (200,) and len(set(drawn)) == 200
  assert np.all(np.abs(drawn) <= 1) and abs(drawn.mean()) < 0.2


@pytest.mark.parametrize('explore', ['perturb', 'resample'])
def test_a_prior_for_each_event_bounds_it(key, explore):
  weights = internal_rewards.sample(key, EACH, 3)
  function = getattr(internal_rewards, explore)

  @jax.jit
  def run(key):
    return jax.vmap(lambda k: function(k, weights, EACH, 0.9))(
      jax.random.split(key, 500)
    )

  explored = np.asarray(run(key))
  assert np.all(explored[:, 0] == 1.0)
  assert np.all((explored[:, 1] >= 0.5) & (explored[:, 1] <= 1.0))
  assert np.all((explored[:, 2] >= -0.5) & (explored[:, 2] <= 0.0))
  assert len(set(explored[:, 1])) > 2
  np.testing.assert_allclose(
    internal_rewards.clip(jnp.array([7.0, 7.0, 7.0]), EACH), [7.0, 1.0, 0.0]
  )


def test_perturbing_scales_by_a_fifth(key):
  weights = jnp.full((40,), 0.5)
  explored = np.asarray(internal_rewards.perturb(key, weights, UNIFORM))
  scaled = np.abs(explored[:, None] - np.array([0.4, 0.5, 0.6])).min(axis=1)
  assert np.all(scaled < 1e-6)


def test_weights_may_leave_the_range_that_they_were_drawn_from(key):
  prior = hyperparameters.Uniform(-1.0, 1.0, bounds=(-2.0, 2.0))
  explored = internal_rewards.perturb(key, jnp.full((40,), 0.95), prior, 1.0)
  np.testing.assert_allclose(np.max(explored), 1.14, rtol=1e-6)
  np.testing.assert_allclose(
    internal_rewards.clip(jnp.array([5.0, -5.0]), prior), [2.0, -2.0]
  )


def test_as_many_priors_as_events_are_demanded(key):
  with pytest.raises(ValueError, match=r'\(3 priors\) must be one prior for'):
    internal_rewards.sample(key, EACH, 4)


@pytest.mark.parametrize('shape', [(2, 3), (0,)])
def test_rewards_are_scalars_or_vectors(shape):
  with pytest.raises(
    ValueError, match=r'must be that of a scalar or of a vector'
  ):
    internal_rewards.num_events(dm_env.specs.Array(shape, np.float32))
