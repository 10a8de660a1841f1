"""Double Q-learning against rlax, and against sums term by term."""

import types as python_types

import jax
import jax.numpy as jnp
import loss_streams
import numpy as np
import optax
import pytest
import rlax

from ftwax import distributions
from ftwax.losses import q_learning

T, NUM_ACTIONS = 13, 3
EPSILON = 1e-3


def _agent(n_step=3, rescaling=EPSILON, huber_delta=np.inf, share=0.9):
  return python_types.SimpleNamespace(
    n_step=jnp.int32(n_step),
    rescaling=rescaling,
    huber_delta=huber_delta,
    replay=python_types.SimpleNamespace(max_error_share=share),
  )


def _transitions(seed, end=0.3):
  """A stream with action values of two networks."""
  rng = np.random.default_rng(seed + 3000)
  transitions = loss_streams.random_transitions(seed, T, NUM_ACTIONS, end=end)
  q = jnp.asarray(rng.normal(size=(T + 1, NUM_ACTIONS)), jnp.float32)
  target = jnp.asarray(rng.normal(size=(T, NUM_ACTIONS)), jnp.float32)
  weight = jnp.asarray(rng.uniform(size=T), jnp.float32)
  return transitions._replace(
    logits_tm1=q[:-1],
    logits_t=q[1:],
    targets=q_learning.QTargets(target, weight),
  )


def _returns_by_definition(r, discount, v, mask, n):
  """Sums the rewards of up to n steps of an episode, one by one."""
  found = np.zeros(T)
  for start in range(T):
    factor = 1.0
    for step in range(start, T):
      found[start] += factor * r[step]
      factor *= discount[step]
      is_last = step == T - 1 or not mask[step + 1] or step - start == n - 1
      if is_last:
        found[start] += factor * v[step]
        break
  return found * mask


@pytest.mark.parametrize('n', [1, 2, 5, T, T + 4])
def test_returns_equal_their_definition(n):
  for seed in range(6):
    t = _transitions(seed)
    v = t.targets.logits_t[:, 0]
    arguments = t.r_t, t.discount_t, v, t.mask_tm1
    found = jax.jit(q_learning.n_step_returns)(*arguments, jnp.int32(n))
    expected = _returns_by_definition(*map(np.asarray, arguments), n)
    np.testing.assert_allclose(found * t.mask_tm1, expected, atol=1e-5)


def test_an_infinite_reward_of_no_action_is_not_seen():
  t = _transitions(0)
  mask = np.asarray(t.mask_tm1)
  assert not mask.all()
  bad = t._replace(r_t=jnp.where(mask == 0, jnp.nan, t.r_t))

  def total(q, transitions):
    found = q_learning.q_learning_loss(
      transitions._replace(logits_tm1=q), _agent()
    )
    return jnp.sum(found.value), found.priority

  for transitions in (t, bad):
    (loss, priority), gradient = jax.value_and_grad(total, has_aux=True)(
      t.logits_tm1, transitions
    )
    if transitions is t:
      expected = loss, priority, gradient
  np.testing.assert_array_equal(loss, expected[0])
  np.testing.assert_array_equal(priority, expected[1])
  np.testing.assert_array_equal(gradient, expected[2])
  np.testing.assert_array_equal(gradient[mask == 0], 0.0)


@pytest.mark.parametrize('n', [1, 3, 5])
def test_errors_within_an_episode_are_those_of_rlax(n):
  t = _transitions(1, end=0.0)
  assert np.asarray(t.mask_tm1).all()
  expected = rlax.transformed_n_step_q_learning(
    t.logits_tm1,
    t.a_tm1,
    t.targets.logits_t,
    jnp.argmax(t.logits_t, axis=-1),
    t.r_t,
    t.discount_t,
    n,
    tx_pair=rlax.SIGNED_HYPERBOLIC_PAIR,
  )
  found = q_learning.q_learning_loss(t, _agent(n))
  np.testing.assert_allclose(
    found.value, t.targets.weight * 0.5 * expected**2, rtol=1e-3, atol=1e-5
  )
  error = np.abs(expected)
  np.testing.assert_allclose(
    found.priority, 0.9 * error.max() + 0.1 * error.mean(), rtol=1e-3
  )
  np.testing.assert_allclose(found.metrics['td_error'], error.mean(), rtol=1e-3)


def test_returns_across_episodes_are_those_of_rlax_that_end_with_them():
  for seed in range(4):
    t = _transitions(seed)
    v = t.targets.logits_t[:, 1]
    is_end = np.append(np.asarray(t.mask_tm1)[1:] == 0, False)
    expected = rlax.n_step_bootstrapped_returns(
      t.r_t, t.discount_t, v, 4, jnp.where(is_end, 0.0, 1.0)
    )
    found = q_learning.n_step_returns(
      t.r_t, t.discount_t, v, t.mask_tm1, jnp.int32(4)
    )
    mask = np.asarray(t.mask_tm1) != 0
    np.testing.assert_allclose(found[mask], expected[mask], atol=1e-5)


def test_rescaling_has_an_inverse_and_is_off_without_an_epsilon():
  x = jnp.asarray([-300.0, -1.0, -0.01, 0.0, 0.5, 1.0, 20.0, 500.0])
  rescaled = q_learning.rescale(x, EPSILON)
  expected = np.sign(x) * (np.sqrt(np.abs(x) + 1) - 1) + EPSILON * x
  np.testing.assert_allclose(rescaled, expected, rtol=1e-6)
  np.testing.assert_allclose(
    q_learning.unscale(rescaled, EPSILON), x, rtol=1e-3, atol=1e-3
  )
  assert q_learning.rescale(x, None) is x
  assert q_learning.unscale(x, None) is x


def test_huber_is_that_of_optax_and_square_without_a_limit():
  x = jnp.linspace(-3.0, 3.0, 13)

  def by_optax(x, delta):
    return optax.huber_loss(x, delta=delta)

  for delta in (0.4, 1.1, 2.1):
    np.testing.assert_allclose(
      q_learning.huber(x, delta), by_optax(x, delta), rtol=1e-6
    )
    gradients = [
      jax.vmap(jax.grad(huber), (0, None))(x, delta)
      for huber in (q_learning.huber, by_optax)
    ]
    np.testing.assert_allclose(*gradients, rtol=1e-6)
  np.testing.assert_allclose(q_learning.huber(x, jnp.inf), 0.5 * x**2)
  np.testing.assert_allclose(
    jax.vmap(lambda x: jax.grad(q_learning.huber)(x, jnp.inf))(x), x
  )


def test_parts_of_an_action_learn_towards_one_target():
  """Branching Q-networks: the target is the mean over parts."""
  first, second = _transitions(2), _transitions(3)
  both = first._replace(
    logits_tm1={'a': first.logits_tm1, 'b': second.logits_tm1},
    logits_t={'a': first.logits_t, 'b': second.logits_t},
    behaviour_logits_tm1={
      'a': first.behaviour_logits_tm1, 'b': second.behaviour_logits_tm1
    },
    a_tm1={'a': first.a_tm1, 'b': second.a_tm1},
    targets=q_learning.QTargets(
      {'a': first.targets.logits_t, 'b': second.targets.logits_t},
      first.targets.weight,
    ),
  )  # fmt: skip
  agent = _agent(rescaling=None)
  values = [
    np.take_along_axis(
      np.asarray(t.targets.logits_t),
      np.argmax(t.logits_t, axis=-1)[:, None],
      axis=-1,
    )[:, 0]
    for t in (first, second)
  ]
  target = _returns_by_definition(
    np.asarray(first.r_t),
    np.asarray(first.discount_t),
    np.mean(values, axis=0),
    np.asarray(first.mask_tm1),
    3,
  )
  mask, weight = np.asarray(first.mask_tm1), np.asarray(first.targets.weight)
  losses = []
  for t in (first, second):
    action = np.maximum(np.asarray(t.a_tm1), 0)
    q = np.take_along_axis(np.asarray(t.logits_tm1), action[:, None], 1)[:, 0]
    losses.append(0.5 * (target - q) ** 2)
  found = q_learning.q_learning_loss(both, agent)
  np.testing.assert_allclose(
    found.value, mask * weight * np.mean(losses, axis=0), rtol=1e-4, atol=1e-5
  )


def test_lambda_targets_within_an_episode_are_those_of_rlax():
  t = _transitions(4, end=0.0)
  value = jnp.max(t.logits_t, axis=-1)
  agent = python_types.SimpleNamespace(q_lambda=jnp.float32(0.7))
  found = q_learning.q_lambda_loss(t._replace(v_t=value, targets=None), agent)
  error = rlax.q_lambda(
    t.logits_tm1, t.a_tm1, t.r_t, t.discount_t, t.logits_t, 0.7
  )
  np.testing.assert_allclose(found.value, 0.5 * error**2, rtol=1e-4, atol=1e-5)
  np.testing.assert_allclose(
    found.metrics['td_error'], np.mean(np.abs(error)), rtol=1e-5
  )


def test_forbidden_actions_are_neither_greedy_nor_a_maximum():
  q = jnp.asarray([[5.0, 1.0, 2.0], [0.0, -3.0, -4.0]])
  target = jnp.asarray([[7.0, 8.0, 9.0], [1.0, 2.0, 3.0]])
  mask = jnp.asarray([[0, 1, 1], [0, 0, 1]])
  masked = distributions.mask_logits(q, mask)
  found = q_learning.double_q_values(masked, target)
  np.testing.assert_array_equal(found, [9.0, 3.0])
