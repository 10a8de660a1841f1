"""V-trace against the sum of its definition, and against rlax."""

from typing import NamedTuple

import chex
import dm_env
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import rlax

from ftwax import types
from ftwax.losses import policy_loss, v_trace

T = 7


def _vtrace_by_definition(
  v_tm1, v_t, r, discount, rho, lambda_, rho_bar, pg_bar
):
  """The sum of equation 1 of the paper, term by term, in O(T^2)."""
  num_steps = len(r)
  clipped = np.minimum(rho_bar, rho)
  c = lambda_ * np.minimum(1.0, rho)
  delta = clipped * (r + discount * v_t - v_tm1)
  errors = np.zeros(num_steps)
  for s in range(num_steps):
    for t in range(s, num_steps):
      weight = np.prod([discount[i] * c[i] for i in range(s, t)])
      errors[s] += weight * delta[t]
  next_target = v_t + lambda_ * np.append(errors[1:], 0.0)
  advantages = np.minimum(pg_bar, rho) * (r + discount * next_target - v_tm1)
  return errors, advantages


def test_targets_are_those_of_rlax():
  """Within an episode, where rlax's bootstrap values are ours."""
  rng = np.random.default_rng(0)
  values, r = rng.normal(size=T + 1), rng.normal(size=T)
  rho, discount = np.exp(rng.normal(size=T)), np.full(T, 0.9)
  stream = [
    jnp.asarray(x, jnp.float32) for x in (values[:-1], values[1:], r, discount)
  ]
  rho = jnp.asarray(rho, jnp.float32)
  ours = v_trace.vtrace(*stream, rho, 0.9)
  theirs = rlax.vtrace_td_error_and_advantage(*stream, rho, 0.9)
  np.testing.assert_allclose(ours.errors, theirs.errors, rtol=1e-6, atol=1e-6)
  np.testing.assert_allclose(
    ours.advantages, theirs.pg_advantage, rtol=1e-6, atol=1e-6
  )


def _random_stream(seed, ends=()):
  rng = np.random.default_rng(seed)
  values = rng.normal(size=T + 1)
  discount = np.full(T, 0.9)
  rho = np.exp(rng.normal(size=T))
  for t, terminated in ends:  # The step at t + 1 is LAST.
    discount[t] = 0.0 if terminated else discount[t]
    if t + 1 < T:
      rho[t + 1] = 0.0
  return values[:-1], values[1:], rng.normal(size=T), discount, rho


@pytest.mark.parametrize('seed', range(5))
@pytest.mark.parametrize('lambda_', [1.0, 0.8, 0.0])
@pytest.mark.parametrize('bars', [(1.0, 1.0), (0.5, 2.0)])
def test_vtrace_equals_its_definition(seed, lambda_, bars):
  stream = _random_stream(seed, ends=[(2, True), (4, False)])
  expected = _vtrace_by_definition(*stream, lambda_, *bars)
  stream = tuple(jnp.asarray(x, jnp.float32) for x in stream)
  for variant in (v_trace.vtrace, jax.jit(v_trace.vtrace)):
    returns = variant(*stream, lambda_, *bars)
    np.testing.assert_allclose(returns.errors, expected[0], atol=1e-5)
    np.testing.assert_allclose(returns.advantages, expected[1], atol=1e-5)


def test_on_policy_vtrace_is_the_n_step_return():
  v_tm1, v_t, r, discount, _ = _random_stream(0, ends=[(3, True)])
  returns = v_trace.vtrace(
    *(jnp.asarray(x, jnp.float32) for x in (v_tm1, v_t, r, discount)),
    jnp.ones(T),
  )
  target = v_t[-1]
  targets = np.zeros(T)
  for t in reversed(range(T)):
    target = r[t] + discount[t] * target
    targets[t] = target
  np.testing.assert_allclose(returns.errors + v_tm1, targets, atol=1e-5)


def test_nothing_crosses_the_end_of_an_episode():
  v_tm1, v_t, r, discount, rho = (
    jnp.asarray(x, jnp.float32) for x in _random_stream(0, ends=[(2, False)])
  )
  before = v_trace.vtrace(v_tm1, v_t, r, discount, rho)
  after = v_trace.vtrace(v_tm1, v_t, r.at[4:].add(100.0), discount, rho)
  np.testing.assert_array_equal(before.errors[:4], after.errors[:4])
  np.testing.assert_array_equal(before.advantages[:4], after.advantages[:4])
  assert np.all(before.errors[4:] != after.errors[4:])


class _Hyperparameters(NamedTuple):
  discount: float = 0.9
  max_abs_reward: float = np.inf


def _trajectory(step_types, discounts):
  """A stream with random rewards; step types and discounts have T + 1."""
  rng = np.random.default_rng(3)
  num_actions = 3
  step_type = jnp.asarray(step_types, jnp.int32)
  first = step_type == dm_env.StepType.FIRST
  timestep = dm_env.TimeStep(
    step_type=step_type,
    reward=jnp.where(first, 0.0, rng.normal(size=T + 1).astype(np.float32)),
    discount=jnp.asarray(discounts, jnp.float32),
    observation=(),
  )
  logits = rng.normal(size=(T + 1, num_actions)).astype(np.float32)
  trajectory = types.Trajectory(
    timestep=timestep,
    previous_action=jnp.where(first, types.NO_ACTION, 1),
    logits=jnp.asarray(
      logits[:-1] + 0.3 * rng.normal(size=(T, 3)), jnp.float32
    ),
    recurrent_state=(),
  )
  output = types.NetworkOutput(
    logits=jnp.asarray(logits),
    value=jnp.asarray(rng.normal(size=T + 1), jnp.float32),
    features=jnp.zeros((T + 1, 0)),
    auxiliary={},
  )
  return output, trajectory


FIRST, MID, LAST = 0, 1, 2
STREAM = [MID, MID, LAST, FIRST, MID, MID, MID, MID]


@pytest.mark.parametrize('last_discount', [0.0, 1.0])
def test_truncation_bootstraps_and_termination_does_not(last_discount):
  """The first action's target, by hand, in an episode that ends inside."""
  output, trajectory = _trajectory(STREAM, [1, 1, last_discount, 1, 1, 1, 1, 1])
  trajectory = trajectory._replace(logits=output.logits[:-1])  # On policy.
  transitions = policy_loss.make_transitions(
    output, trajectory, _Hyperparameters()
  )
  losses = v_trace.vtrace_loss(transitions, _Hyperparameters())
  reward, value = trajectory.timestep.reward, output.value
  target = reward[1] + 0.9 * (reward[2] + 0.9 * last_discount * value[2])
  np.testing.assert_allclose(
    losses.value[0], 0.5 * (target - value[0]) ** 2, rtol=1e-5
  )


def test_steps_without_an_action_lose_nothing():
  output, trajectory = _trajectory(STREAM, [1, 1, 1, 1, 1, 1, 1, 1])
  transitions = policy_loss.make_transitions(
    output, trajectory, _Hyperparameters()
  )
  losses = v_trace.vtrace_loss(transitions, _Hyperparameters())
  np.testing.assert_array_equal(transitions.mask_tm1, [1, 1, 0, 1, 1, 1, 1])
  for loss in (losses.policy, losses.value, losses.entropy):
    chex.assert_shape(loss, (T,))
    assert loss[2] == 0.0
    assert np.all(np.delete(np.asarray(loss), 2) != 0.0)


def test_a_ratio_that_overflows_where_nothing_was_done_counts_nothing():
  output, trajectory = _trajectory(STREAM, [1, 1, 1, 1, 1, 1, 1, 1])
  transitions = policy_loss.make_transitions(
    output, trajectory, _Hyperparameters()
  )
  others = transitions.behaviour_logits_tm1.at[2].set(0.0)
  chosen = transitions.a_tm1[2]
  unlikely = others.at[2, chosen].set(-200.0)
  expected, actual = (
    v_trace.vtrace_loss(
      transitions._replace(behaviour_logits_tm1=logits), _Hyperparameters()
    )
    for logits in (others, unlikely)
  )
  chex.assert_trees_all_equal(actual, expected)
  assert np.all(np.isfinite(actual.policy))


def test_gradient_reaches_policy_and_value_apart():
  output, trajectory = _trajectory(STREAM, [1, 1, 1, 1, 1, 1, 1, 1])

  def loss(output, name):
    transitions = policy_loss.make_transitions(
      output, trajectory, _Hyperparameters()
    )
    losses = v_trace.vtrace_loss(transitions, _Hyperparameters())
    return jnp.sum(getattr(losses, name))

  policy = jax.grad(loss)(output, 'policy')
  value = jax.grad(loss)(output, 'value')
  assert np.any(policy.logits != 0) and not np.any(policy.value)
  assert np.any(value.value != 0) and not np.any(value.logits)
  # The value that only bootstraps, and that of the end, learn nothing here.
  assert value.value[-1] == 0.0 and value.value[2] == 0.0


def test_rewards_are_clipped():
  output, trajectory = _trajectory(STREAM, [1, 1, 1, 1, 1, 1, 1, 1])
  transitions = policy_loss.make_transitions(
    output, trajectory, _Hyperparameters(max_abs_reward=0.1)
  )
  reward = np.asarray(trajectory.timestep.reward)[1:]
  np.testing.assert_allclose(transitions.r_t, np.clip(reward, -0.1, 0.1))
  assert np.any(np.abs(reward) > 0.1)
