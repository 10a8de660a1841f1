"""A2C and PPO against NumPy, term by term, with numerical gradients."""

from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
import loss_streams
import numpy as np
import pytest

from ftwax import distributions, types
from ftwax.agents import a2c, a3c
from ftwax.losses import (
  advantage_actor_critic,
  clipped_surrogate,
  policy_loss,
  returns,
  rollouts,
  v_trace,
)

T, NUM_ACTIONS = 11, 3


class _Hyperparameters(NamedTuple):
  gae_lambda: float = 0.9
  clip_epsilon: float = 0.2
  value_clip: float = np.inf


def _softmax(logits):
  exp = np.exp(np.float64(logits))
  return exp / exp.sum(-1, keepdims=True)


def _parts(transitions, lambda_):
  """Advantages, log-probabilities, their ratios, entropies and the mask."""
  t = jax.tree.map(lambda x: np.float64(x), transitions)
  mask = t.mask_tm1
  advantages, following = np.zeros(T), 0.0
  for step in reversed(range(T)):
    delta = t.r_t[step] + t.discount_t[step] * t.v_t[step] - t.v_tm1[step]
    following = delta + t.discount_t[step] * lambda_ * following
    following *= mask[step]
    advantages[step] = following
  actions = np.maximum(0, transitions.a_tm1)
  new, old = _softmax(t.logits_tm1), _softmax(t.behaviour_logits_tm1)
  taken = (np.arange(T), actions)
  entropy = -np.sum(new * np.log(new), -1)
  ratio = np.where(mask, new[taken] / old[taken], 1.0)
  return advantages, np.log(new[taken]), ratio, mask * entropy, mask


@pytest.mark.parametrize('lambda_', [1.0, 0.9, 0.0])
def test_advantage_actor_critic_equals_the_oracle(lambda_):
  loss = jax.jit(advantage_actor_critic.advantage_actor_critic_loss)
  for seed in range(4):
    transitions = loss_streams.random_transitions(seed, T)
    advantages, log_prob, _, entropy, _ = _parts(transitions, lambda_)
    found = loss(transitions, _Hyperparameters(lambda_))
    for name, expected in (
      ('policy', -advantages * log_prob),
      ('value', 0.5 * advantages**2),
      ('entropy', entropy),
    ):
      np.testing.assert_allclose(getattr(found, name), expected, atol=1e-5)


def test_a3c_corrects_nothing_but_lag():
  lagging = loss_streams.random_transitions(3, T)
  current = lagging._replace(behaviour_logits_tm1=lagging.logits_tm1)
  asynchronous, synchronous, not_corrected = (
    jax.jit(config.loss_fn)
    for config in (
      a3c.A3CConfig(),
      a2c.A2CConfig(),
      a3c.A3CConfig(correct_lag=False),
    )
  )
  chex.assert_trees_all_close(
    asynchronous(current, _Hyperparameters())[:3],
    synchronous(current, _Hyperparameters())[:3],
    atol=1e-6,
  )
  _, _, ratio, *_ = _parts(lagging, 0.0)  # One-step targets.
  hyperparameters = _Hyperparameters(gae_lambda=0.0)
  expected = synchronous(lagging, hyperparameters).policy
  np.testing.assert_allclose(
    asynchronous(lagging, hyperparameters).policy,
    np.minimum(ratio, 1.0) * expected,
    atol=1e-5,
  )
  chex.assert_trees_all_equal(
    not_corrected(lagging, hyperparameters).policy, expected
  )


_log_prob = jax.jit(distributions.log_prob)


def _old_log_prob(transitions):
  return _log_prob(transitions.behaviour_logits_tm1, transitions.a_tm1)


@pytest.mark.parametrize('value_clip', [np.inf, 0.1])
def test_ppo_equals_the_oracle(value_clip):
  hyperparameters = _Hyperparameters(value_clip=value_clip)
  loss = jax.jit(clipped_surrogate.ppo_loss)
  num_clipped = 0
  for seed in range(4):
    before = loss_streams.random_transitions(seed, T)
    advantages, _, ratio, entropy, mask = _parts(before, 0.9)
    after = before._replace(
      v_tm1=before.v_tm1 + 0.3 * np.sin(np.arange(T, dtype=np.float32)),
      targets=clipped_surrogate.PPOTargets(
        jnp.float32(advantages),
        jnp.float32(advantages + before.v_tm1),
        before.v_tm1,
        _old_log_prob(before),
      ),
    )
    found = loss(after, hyperparameters)
    clipped = np.clip(ratio, 0.8, 1.2)
    change = np.asarray(after.v_tm1 - before.v_tm1)
    bounded = np.clip(change, -value_clip, value_clip)
    value = mask * np.maximum(
      (advantages - change) ** 2, (advantages - bounded) ** 2
    )
    for name, expected in (
      ('policy', -np.minimum(ratio * advantages, clipped * advantages)),
      ('value', 0.5 * value),
      ('entropy', entropy),
    ):
      np.testing.assert_allclose(getattr(found, name), expected, atol=1e-5)
    np.testing.assert_allclose(
      found.metrics['clip_fraction'], np.sum(ratio != clipped) / np.sum(mask)
    )
    np.testing.assert_allclose(
      found.metrics['kl_old_new'],
      np.sum(ratio - 1 - np.log(ratio)) / np.sum(mask),
      rtol=1e-4,
    )
    num_clipped += np.sum(ratio * advantages > clipped * advantages)
  assert num_clipped > 5


def test_ppo_without_targets_makes_them_of_the_values_given():
  transitions = loss_streams.random_transitions(0, T)
  advantages, _, ratio, _, _ = _parts(transitions, 0.9)
  found = jax.jit(clipped_surrogate.ppo_loss)(transitions, _Hyperparameters())
  clipped = np.clip(ratio, 0.8, 1.2)
  expected = -np.minimum(ratio * advantages, clipped * advantages)
  np.testing.assert_allclose(found.policy, expected, atol=1e-5)
  np.testing.assert_allclose(found.value, 0.5 * advantages**2, atol=1e-5)


def test_first_step_of_ppo_has_the_gradient_of_the_policy():
  """On policy, where all ratios are one, it is that of A2C."""
  transitions = loss_streams.random_transitions(3, T)

  def gradient(loss):
    def total(logits, values):
      replaced = transitions._replace(
        logits_tm1=logits, v_tm1=values[:-1], v_t=values[1:]
      )
      losses = loss(replaced, _Hyperparameters())
      return jnp.sum(losses.policy + 0.5 * losses.value - losses.entropy)

    values = np.append(transitions.v_tm1, transitions.v_t[-1:])
    differentiate = jax.jit(jax.grad(total, (0, 1)))
    return differentiate(transitions.behaviour_logits_tm1, values)

  chex.assert_trees_all_close(
    gradient(clipped_surrogate.ppo_loss),
    gradient(advantage_actor_critic.advantage_actor_critic_loss),
    atol=1e-5,
  )


def test_gradients_equal_finite_differences():
  """Of the oracle in float64, advantages fixed."""
  transitions = loss_streams.random_transitions(2, T)
  hyperparameters = _Hyperparameters()
  targets = clipped_surrogate.PPOTargets(
    *(jnp.float32(x) for x in (*[_parts(transitions, 0.9)[0]] * 2, np.ones(T))),
    _old_log_prob(transitions),
  )

  def loss(logits):
    replaced = transitions._replace(logits_tm1=logits, targets=targets)
    return jnp.sum(clipped_surrogate.ppo_loss(replaced, hyperparameters).policy)

  def oracle(logits):
    advantages = np.float64(targets.advantages)
    ratio = _parts(transitions._replace(logits_tm1=logits), 0.9)[2]
    clipped = np.clip(ratio, 0.8, 1.2)
    return -np.sum(np.minimum(ratio * advantages, clipped * advantages))

  logits = np.float64(transitions.logits_tm1)
  expected, step = np.zeros(logits.shape), 1e-6
  for index in np.ndindex(*logits.shape):
    ends = []
    for sign in (1, -1):
      moved = logits.copy()
      moved[index] += sign * step
      ends.append(oracle(moved))
    expected[index] = (ends[0] - ends[1]) / (2 * step)
  found = jax.jit(jax.grad(loss))(transitions.logits_tm1)
  np.testing.assert_allclose(found, expected, atol=1e-5)
  assert np.any(np.all(np.abs(expected) < 1e-9, -1))


def test_advantages_are_normalized_over_the_whole_batch():
  streams = [loss_streams.random_transitions(seed, T) for seed in range(3)]
  streams[0] = streams[0]._replace(mask_tm1=jnp.zeros(T))
  batch = jax.tree.map(lambda *x: np.stack(x, 1), *streams)
  targets = jax.jit(clipped_surrogate.make_targets)(batch, _Hyperparameters())
  mask = np.asarray(batch.mask_tm1) != 0
  raw = np.stack([_parts(x, 0.9)[0] for x in streams], 1)
  live = raw[mask]
  expected = np.where(mask, (raw - live.mean()) / live.std(), 0.0)
  np.testing.assert_allclose(targets.advantages, expected, atol=1e-5)
  np.testing.assert_allclose(targets.returns, raw + batch.v_tm1, atol=1e-5)
  np.testing.assert_array_equal(targets.v_tm1, batch.v_tm1)


def test_equal_advantages_and_no_advantages_become_zero():
  for mask in (np.ones(3), np.zeros(3)):
    found = policy_loss.normalize_advantages(
      jnp.full(3, 7.0), jnp.asarray(mask)
    )
    np.testing.assert_array_equal(found, np.zeros(3))


def test_padding_changes_no_loss_and_has_none():
  hyperparameters = _Hyperparameters()
  for loss in map(
    jax.jit,
    (
      advantage_actor_critic.advantage_actor_critic_loss,
      clipped_surrogate.ppo_loss,
      v_trace.vtrace_loss,
    ),
  ):
    transitions = loss_streams.random_transitions(1, T)
    short = loss(transitions, hyperparameters)
    long = loss(rollouts.pad(transitions, T + 4), hyperparameters)
    for name in ('policy', 'value', 'entropy'):
      found = np.asarray(getattr(long, name))
      np.testing.assert_allclose(found[:T], getattr(short, name), rtol=1e-6)
      np.testing.assert_array_equal(found[T:], np.zeros(4))


def test_padding_to_less_is_refused():
  transitions = loss_streams.random_transitions(1, T)
  with pytest.raises(ValueError, match=r'length \(4\) must be at least .*\(11'):
    rollouts.pad(transitions, 4)


def test_loss_of_steps_is_that_of_their_streams():
  """With targets nothing looks ahead: steps can be shuffled."""
  streams = [loss_streams.random_transitions(seed, T) for seed in range(2)]
  batch = jax.tree.map(lambda *x: np.stack(x, 1), *streams)
  targets = jax.jit(clipped_surrogate.make_targets)(batch, _Hyperparameters())
  batch = batch._replace(targets=targets)
  losses = jax.jit(jax.vmap(clipped_surrogate.ppo_loss, (1, None)))(
    batch, _Hyperparameters()
  )
  order = np.random.default_rng(0).permutation(2 * T)
  steps = jax.tree.map(
    lambda x: np.asarray(x)[order], jax.jit(rollouts.flatten)(batch)
  )
  found = jax.jit(clipped_surrogate.ppo_loss)(steps, _Hyperparameters())
  np.testing.assert_allclose(
    found.policy, np.asarray(losses.policy).T.reshape(-1)[order], rtol=1e-6
  )


def test_generalized_advantages_reach_no_other_episode():
  transitions = loss_streams.random_transitions(0, T)
  gap = int(np.flatnonzero(transitions.mask_tm1 == 0)[0])
  moved = transitions.r_t.at[gap:].add(9.0)
  before, after = (
    returns.generalized_advantages(
      transitions.v_tm1,
      transitions.v_t,
      r_t,
      transitions.discount_t,
      transitions.mask_tm1,
    )
    for r_t in (transitions.r_t, moved)
  )
  np.testing.assert_array_equal(before[: gap + 1], after[: gap + 1])
  assert np.any(before[gap + 1 :] != after[gap + 1 :])


def test_what_fills_the_end_of_a_trajectory_is_no_timestep():
  first, mid, last = types.FIRST, types.MID, types.LAST
  step_type = jnp.array(
    [[first, mid, last, last, last], [first, last, first, mid, last]]
  )
  np.testing.assert_array_equal(
    policy_loss.is_timestep(step_type.T).T,
    [[1, 1, 0, 0, 0], [1, 1, 1, 1, 1]],
  )
